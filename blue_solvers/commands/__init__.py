"""The subcommands of ``blue-solvers``: a module each, with `add_parser` to declare it and `run` to do it."""
