"""Why there is no estimate: a solver does not take a problem, or does not come to an end."""

from __future__ import annotations


class ConvergenceError(RuntimeError):
    """An iterative solver stopped before it reached its tolerance; the message says what to do next."""


class UnsupportedProblemError(ValueError):
    """A solver cannot take a problem; the message says why."""


class Refusal(str):
    """Why a solver cannot take a problem, and what to do instead: the text is both.

    Parameters
    ----------
    reason : str
    advice : str
        Such as ``"use solver='cg'"``.

    Examples
    --------
    >>> refusal = Refusal("its noise is correlated", "use solver='cg'")
    >>> print(refusal)
    its noise is correlated: use solver='cg'
    >>> refusal.reason
    'its noise is correlated'
    """

    __slots__ = ("advice", "reason")

    reason: str
    advice: str

    def __new__(cls, reason: str, advice: str) -> Refusal:
        refusal = super().__new__(cls, f"{reason}: {advice}")
        refusal.reason, refusal.advice = reason, advice
        return refusal
