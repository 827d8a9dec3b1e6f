"""The subcommands, by `commands.toml`: of their modules no more are loaded than are asked for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A subcommand; `now` is what is said of a name of an earlier version."""

    module: str
    options: Sequence[str]
    examples: Sequence[str]
    purpose: str = ""
    now: str = ""
    defaults: Mapping[str, Any] = {}
    required: Sequence[str] = ()


@cache
def table(name: str) -> dict[str, Any]:
    """What a file of data beside this one says."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


_SAID = table("commands")
_FORMER: dict[str, dict[str, Any]] = _SAID.pop("former")
COMMANDS = {name: Command(**own) for name, own in _SAID.items()}
FORMER = {
    name: Command(**{**_SAID.get(own.pop("like", ""), {}), "purpose": f"is now: {own['now']}", **own})
    for name, own in _FORMER.items()
}
