"""Sealed JSON files with every part in turn replaced by something else, and sealed anew."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from blue_solvers.results.checksums import SEAL, seal_json

VALUES: list[Any] = [
    None, True, 0, -1, 1, 3, 10**30, 1.5, float("nan"), float("inf"), "", "x", "../x", "total", "Block", [], [0], ["x"],
    [[0, "total"]], {}, {"a": 1}, [None], "\x1b[2J",
]  # fmt: skip
MISSING = object()
MOST = 3  # entries of a list that are replaced


def escaped(path: Path, use: Callable[[], object], documented: tuple[type[Exception], ...], every: int) -> list[str]:
    """What other exceptions the use of a file raises that says something else, of one in every few that may be said."""
    good = path.read_text()
    said = {key: value for key, value in json.loads(good).items() if key != SEAL}
    found, refused, tried = [], 0, 0
    others = [(where, value) for where in _places(said) for value in (*VALUES, MISSING)]
    for where, value in others[::every]:
        path.write_text(seal_json(_with(said, where, value)))
        tried += 1
        try:
            use()
        except documented:
            refused += 1
        except Exception as error:
            found.append(f"{where} = {'nothing' if value is MISSING else repr(value)}: {type(error).__name__}: {error}")
    path.write_text(good)
    assert tried > 50
    assert refused > tried / 2
    return found


def _with(said: Any, where: tuple, value: Any) -> Any:
    other = whole = copy.deepcopy(said)
    for key in where[:-1]:
        whole = whole[key]
    if value is MISSING:
        del whole[where[-1]]
    else:
        whole[where[-1]] = value
    return other


def _places(said: Any, above: tuple = ()) -> Iterator[tuple]:
    if above:
        yield above
    for key in said if isinstance(said, dict) else range(min(len(said), MOST)) if isinstance(said, list) else ():
        yield from _places(said[key], (*above, key))
