"""The subcommands of ``blue-solvers``: a module each, whose `run` does it; their options are data beside."""
