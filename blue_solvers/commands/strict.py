"""``--strict``: doubt about what was measured is an exit code of its own."""

from __future__ import annotations

import argparse


class DoubtfulError(Exception):
    """All was done that was asked for, and there is doubt about what was measured."""


def refuse_doubt(args: argparse.Namespace, *doubts: str) -> None:
    """End with doubt, if there is some and it is asked about; empty ones are none.

    Raises
    ------
    DoubtfulError
    """
    if args.strict and any(doubts):
        raise DoubtfulError(f"--strict: {'; '.join(filter(None, doubts))}")
