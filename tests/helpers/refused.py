"""What is refused, as a table: arguments, and what is said of them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.every import every

Refusals = type[Exception] | tuple[type[Exception], ...]


def refuses(message: str, call: Callable, /, *args: Any, error: Refusals = ValueError, **named: Any) -> None:
    """A call that is refused with an error whose message matches."""
    with pytest.raises(error, match=message):
        call(*args, **named)


def refused(*rows: tuple[Any, ...], error: Refusals = ValueError) -> Callable[[Callable], Callable]:
    """Call with the first of each row, and any fixtures, what refuses them with the message that matches the last."""

    def decorate(call: Callable) -> Callable:
        own = inspect.signature(call)
        arguments = [*own.parameters][: len(rows[0]) - 1]

        @functools.wraps(call)
        def test(message: str, **given: Any) -> None:
            with pytest.raises(error, match=message):
                call(**given)

        said = inspect.Parameter("message", inspect.Parameter.KEYWORD_ONLY)
        test.__signature__ = own.replace(parameters=[*own.parameters.values(), said])  # type: ignore[attr-defined]
        return every((*arguments, "message"), rows)(test)

    return decorate
