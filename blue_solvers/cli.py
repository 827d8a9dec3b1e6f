"""The command ``blue-solvers``.

Exit codes: 0 done, 1 failed inside, 2 bad input, 3 done and in doubt (with ``--strict``), 129 hung up, 130 interrupted,
143 terminated.
"""

from __future__ import annotations

import argparse
import errno
import gc
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from blue_solvers.about import __version__
from blue_solvers.commands.listed import COMMANDS, FORMER
from blue_solvers.commands.screen import CLOCK, SCREEN, DoubtfulError
from blue_solvers.errors import ConvergenceError
from blue_solvers.signals import Unwinding
from constraint_builders.compiled import load_for_many
from constraint_builders.extras import EXTRA_OF, missing_extra
from constraint_builders.printable import printable

LONGEST, MOST_READ = 400, 100_000  # characters of a message that are shown, and looked at
FLAGS = (  # parameters of the library, in messages, and what they are called here
    (
        re.compile(
            r"\b(areas|desired|exact|memory|schema|settings|solver|suppressed|totals?|undetermined|within)=(?!\S)"
        ),
        r"--\1",
    ),
    (re.compile(r"\brecodes=\{('[^']*'): ('[^']*'|\.\.\.)\}"), r"--same \1=\2"),
    (re.compile(r"\brecodes=(?!\S)"), "--same"),
    (re.compile(r"\bsums= what it is, year"), "--sum VARIABLE=year"),
    (re.compile(r"\bsums=(?!\S)"), "--sum"),
    (re.compile(r"\b(plus|skip)_(minus|rows)="), r"--\1-\2 "),
    (re.compile(r"\bsheet="), "--sheet "),
    (re.compile(r"\bcells=\['(\w+)', '(\w+)'\]"), r"--cells \1 --cells \2"),
    (re.compile(r"\bnoise=RandomRounding\((\d+)\)"), r"--rounded \1"),
    (re.compile(r"\bcolumns=\{('[^']*'): \.\.\.\}"), r"--columns \1=..."),
    (re.compile(r"\bcolumns=(?![\w\[{])"), "--columns"),
    (re.compile(r"(?<!['\w])names_(to|sep)\b=?"), r"--names-\1"),
)
FAILED, BAD_INPUT, DOUBTFUL = 1, 2, 3
MOST_UNSEEN = 10_000  # objects that are made before garbage is looked for among them
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
EXIT_CODES = """exit codes:
  0  done; with --strict, what was measured fits its noise too
  1  failed inside, or the output could not be written
  2  bad input or arguments, and nothing was written
  3  done, and in doubt: with --strict, measurements do not fit their noise, or nothing tests them"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command ``blue-solvers``.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments, by default those of the process, which is to end then: signals find nothing to interrupt, and
        no garbage is looked for among what is there.

    Returns
    -------
    int
        Exit code.

    Raises
    ------
    SystemExit
        For ``--help``, ``--version`` and arguments that are no command.
    """
    if argv is not None:
        return _run(argv, Unwinding(forever=False))
    load_for_many()
    gc.disable()  # while modules are loaded, none of which is garbage
    gc.set_threshold(MOST_UNSEEN)  # what is loaded later is none either
    try:
        return _run(None, Unwinding(forever=True))
    finally:
        gc.freeze()
        gc.enable()


def _run(argv: Sequence[str] | None, unwinding: Unwinding) -> int:
    SCREEN.open()
    try:
        args = _parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
        run = import_module(f"blue_solvers.commands.{args.module}").run
        CLOCK.begin()
        if argv is None:
            gc.freeze()
            gc.enable()
        with warnings.catch_warnings(), unwinding:
            warnings.showwarning = lambda message, *_, **__: SCREEN.tell(f"blue-solvers: {message}")
            run(args)
            SCREEN.close()
            if args.now:
                SCREEN.tell(f"blue-solvers: this is now: {args.now}")
    except SystemExit as end:  # help, the version, or wrong arguments, which were said
        if end.code or SCREEN.lost is None:
            raise
    except KeyboardInterrupt:
        return _complain(*unwinding.message())
    except (ValueError, OSError, ImportError, MemoryError) as error:
        return _complain(_reason(error), FAILED if getattr(error, "errno", None) in UNWRITABLE else BAD_INPUT)
    except DoubtfulError as error:
        SCREEN.close()
        if SCREEN.lost is None:
            return _complain(str(error), DOUBTFUL)
    except ConvergenceError as error:
        return _complain(str(error), FAILED)
    except Exception as error:  # the last resort: a defect of ours, told in one line like everything else
        return _complain(f"internal error, please report it: {type(error).__name__}: {error}", FAILED)
    if SCREEN.lost is None:
        return 0
    if isinstance(SCREEN.lost, BrokenPipeError):  # the reader of our output went away, as `head` does
        return FAILED
    return _complain(f"standard output: {SCREEN.lost.strerror}", FAILED)


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, as `main` does everything else."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(_complain(f"{message} (see {self.prog} --help)", BAD_INPUT))

    def _print_message(self, message: str, file: object = None) -> None:
        """Help, and the version."""
        SCREEN.say(*message.rstrip("\n").split("\n"))
        SCREEN.close()


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that is asked for by name; of all of them, without their arguments, otherwise."""
    parser = _Parser(
        prog="blue-solvers",
        description="Exact best linear unbiased estimates from noisy tables that must agree.",
        epilog=f"example:\n  blue-solvers demo\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"blue-solvers {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    asked = next((name for name in argv if name in COMMANDS or name in FORMER), None)
    if asked is not None:
        from blue_solvers.commands.arguments import add_command

        add_command(subparsers, asked, COMMANDS.get(asked) or FORMER[asked])
    else:
        for name, command in COMMANDS.items():
            subparsers.add_parser(name, help=command.purpose)
    return parser


def _reason(error: Exception) -> str:
    text = _complaint(error)
    for parameter, flag in FLAGS:
        text = parameter.sub(flag, text)
    return text


def _complaint(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF:
        return str(missing_extra(f"this needs {error.name}", EXTRA_OF[error.name]))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _complain(message: str, code: int) -> int:
    """Say what is wrong, in one line, its end kept if it is too long."""
    text = printable(" ".join(message[:MOST_READ].split()))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 100]} ... {text[-90:]}"
    SCREEN.tell(f"blue-solvers: {text}")
    return code


if __name__ == "__main__":
    sys.exit(main())
