"""One test over many cases, where a test each would cost more than what it tries."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

SHOWN = 20  # cases that fail, of which a failure names the arguments


def every(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable], Callable]:
    """As `pytest.mark.parametrize`, in a single test: all cases are tried, and those that fail are named.

    A case that is skipped ends nothing; the test is skipped where all of its cases are.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = list(_cases(values, len(arguments) > 1))

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            failed: list[tuple[dict[str, Any], BaseException]] = []
            skipped: list[BaseException] = []
            for case in cases:
                given = dict(zip(arguments, case, strict=True))
                try:
                    with warnings.catch_warnings():
                        test(**fixtures, **given)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append((given, error))
            if failed:
                _raise(failed, len(cases))
            if skipped and len(skipped) == len(cases):
                raise skipped[0]

        own = inspect.signature(test)
        others = [own.parameters[name] for name in own.parameters if name not in arguments]
        whole.__signature__ = own.replace(parameters=others)  # type: ignore[attr-defined]
        del whole.__wrapped__
        return whole

    return decorate


def cases(*rows: tuple[Any, ...]) -> Callable[[Callable], Callable]:
    """The same of rows, each of which holds the first arguments of the test."""

    def decorate(test: Callable) -> Callable:
        return every(tuple(inspect.signature(test).parameters)[: len(rows[0])], rows)(test)

    return decorate


def _cases(values: Iterable[Any], several: bool) -> Iterator[tuple[Any, ...]]:
    for value in values:
        if hasattr(value, "marks"):
            raise ValueError("cases with marks are tests of their own: use pytest.mark.parametrize")
        yield tuple(value) if several else (value,)


def _raise(failed: list[tuple[dict[str, Any], BaseException]], number: int) -> None:
    error = failed[0][1]
    error.add_note(f"{len(failed)} of {number} cases fail:")
    for given, own in failed[:SHOWN]:
        error.add_note(f"  {given!r:.200}: {type(own).__name__}: {str(own)[:200]}")
    raise error
