"""The command ``blue-solvers``.

Exit codes: 0 done, 1 failed inside, 2 bad input, 129 hung up, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from blue_solvers.commands import demo, estimate, info, query, simulate, spine
from blue_solvers.signals import Unwinding
from blue_solvers.solver import ConvergenceError

COMMANDS = (estimate, info, simulate, query, spine, demo)

FAILED, BAD_INPUT = 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command ``blue-solvers``.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments, by default those of the process, which is to end then: signals find nothing to interrupt.

    Returns
    -------
    int
        Exit code.

    Raises
    ------
    SystemExit
        For ``--help``, ``--version`` and arguments that are no command.
    """
    args = _parser().parse_args(argv)
    unwinding = Unwinding(forever=argv is None)
    try:
        with unwinding:
            args.run(args)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _complain(*unwinding.message())
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (ValueError, OSError, ImportError, MemoryError) as error:
        return _complain(_reason(error), BAD_INPUT)
    except ConvergenceError as error:
        return _complain(str(error), FAILED)
    except Exception as error:  # the last resort: a defect of ours, told in one line like everything else
        return _complain(f"internal error, please report it: {type(error).__name__}: {error}", FAILED)
    return 0


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, as `main` does everything else."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"blue-solvers: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="blue-solvers",
        description="Exact best linear unbiased estimates from noisy tables that must agree.",
        epilog="example:\n  blue-solvers demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"blue-solvers {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def _version() -> str:
    try:
        return version("blue-solvers")
    except PackageNotFoundError:
        return "(not installed: run from its source)"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _complain(message: str, code: int) -> int:
    print("blue-solvers:", " ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
