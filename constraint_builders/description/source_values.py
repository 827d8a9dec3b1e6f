"""Where the numbers of a problem are from: what each source measured, and what whoever read an input made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.noise import Noise

FIELDS = ("cell", "values", "variances", "others")
AGREES = 1e-9  # relative: by which values and variances may differ from the combination of what sources say


@dataclass(frozen=True)
class Understood:
    """What whoever reads an input made of it; said beside the equations wherever an estimate is shown.

    Attributes
    ----------
    sources : tuple of str
        Who measured, where several did.
    totals : tuple of str
        Labels that were taken for totals, such as ``"sex 'Total:'"``.
    places : str
        Which geolevels lie in which, and by what that was told.
    notes : tuple of str
        What else was decided, each in a few words, such as ``"3 rows without numbers left out"``.
    left_out : tuple of str
        What was taken for no part of a table, such as ``"row 9 below the table: 'Source: Office'"``; in no doubt.
    """

    sources: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    places: str = ""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SourceValues:
    """The measurements of cells of a problem that several sources measured, independently of one another.

    The problem's own values and variances are their combination: the same estimates, but it does not say whether the
    sources agree.

    Attributes
    ----------
    names : tuple of str
        Of the sources; empty for what nobody else measured.
    source : ndarray of int, (k,)
        Which of them measured.
    cell : ndarray of int, (k,)
        What, as a position in the observed layout.
    values, variances : ndarray, (k,)
        Finite.
    others : ndarray of int
        Further cells that were measured, once: of a joint problem those of products without several sources.
    """

    names: tuple[str, ...]
    source: Index
    cell: Index
    values: Float
    variances: Float
    others: Index = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    @classmethod
    def unknown(cls, cells: Index) -> SourceValues:
        """Of cells, (n,), that were measured once, by nobody in particular."""
        nothing = np.zeros(0)
        return cls((), cells[:0], cells[:0], nothing, nothing, cells)

    @classmethod
    def joined(cls, parts: Sequence[SourceValues]) -> SourceValues:
        """Those of several problems whose layouts are one, with names of sources all different."""
        starts = np.cumsum([0, *(len(own.names) for own in parts)])
        return cls(
            tuple(name for own in parts for name in own.names),
            np.concatenate([own.source + start for own, start in zip(parts, starts[:-1], strict=True)]),
            *(np.concatenate([getattr(own, name) for own in parts]) for name in FIELDS),
        )

    def within(self, product: str, start: int) -> SourceValues:
        """The same in the layout of a joint problem, where that of a product begins at some position."""
        names = tuple(f"{name} ({product})" for name in self.names)
        return replace(self, names=names, cell=self.cell + start, others=self.others + start)

    def completed(self, noise: Noise, y: Float) -> SourceValues:
        """With the measurements of the other cells of a problem, which are its own values, (n,)."""
        cell = self.others
        if not cell.size:
            return self
        rest = SourceValues(("",), np.zeros(cell.size, dtype=np.intp), cell, y[cell], noise.variances[cell])
        return SourceValues.joined([replace(self, others=cell[:0]), rest])

    @property
    def repeated(self) -> Flags:
        """Measurements of cells that have others too, (k,)."""
        return np.bincount(self.cell)[self.cell] > 1

    @cached_property
    def weights(self) -> Float:
        """What every measurement counts in the combination of its cell, (k,); an exact one alone."""
        size = int(self.cell.max(initial=-1)) + 1
        least = np.full(size, np.inf)
        np.minimum.at(least, self.cell, self.variances)
        own = least[self.cell]
        share = np.divide(own, self.variances, out=np.zeros(own.size), where=own > 0)
        exact = np.flatnonzero(own == 0)
        exact = exact[self.variances[exact] == 0]
        share[exact[np.unique(self.cell[exact], return_index=True)[1]]] = 1.0
        return share / np.bincount(self.cell, share, size)[self.cell]

    def combined(self, values: Float, size: int) -> Float:
        """Means of values, (k,) or (k, K), in every cell of a layout of some size, 0 where nothing was measured."""
        places = self.cell, np.arange(self.cell.size)
        means: Float = sparse.csr_array((self.weights, places), shape=(size, self.cell.size)) @ values
        return means

    def are_of(self, noise: Noise, y: Float) -> bool:
        """Whether values, (n,), and variances are what these measurements combine to."""
        if noise.covariance is not None or self.cell.max(initial=-1) >= y.size:
            return False
        weights, size = self.weights, y.size
        variances = np.bincount(self.cell, weights**2 * self.variances, size)
        measured = np.bincount(self.cell, minlength=size) > 0
        apart = abs(self.combined(self.values, size) - y)[measured]
        known, spread = noise.variances[measured], variances[measured]
        near = apart <= AGREES * (abs(y[measured]) + np.sqrt(known))
        return bool(near.all() and (abs(known - spread) <= AGREES * spread).all())

    def by(self, number: int, size: int) -> tuple[Float, Float]:
        """What one source measured of a layout of some size: values, NaN elsewhere, and variances, infinite there."""
        own = self.source == number
        values, variances = np.full(size, np.nan), np.full(size, np.inf)
        values[self.cell[own]], variances[self.cell[own]] = self.values[own], self.variances[own]
        return values, variances
