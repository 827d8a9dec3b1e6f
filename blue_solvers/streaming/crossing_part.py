"""A part in which areas cross: what it tells of its root, and its estimates once the root is known.

The root is a geounit of the tree above, so that what goes up and down is the same as for a part that is a tree. Inside,
the estimate is that over areas, of which the part factorises its own.

The root is anchored: a measurement of its finest table is added. With a component's orthonormal group sums u of the
root, let the added noise have variance s, and B = V (V + s)^-1 be what the estimate of u takes of it, V being the
covariance of u given what was measured inside. What the estimate takes of the real measurements, U' with U' Sigma U =
(1 - B) V (1 - B)', gives the inverse of V by sums of positive terms:

    V^-1 = (U B^-1)' Sigma (U B^-1) / s^2,

where nothing is exact (B = 0 along what is) and zero along what nothing inside determines. The estimate of u without
the added measurement has the shares U (1 + V / s) in the real ones. Told the root's final
estimate, the anchor is that, as if it were exact; with its covariance L L', and K what the estimates take of the
anchor, (K L) (K L)' is added to their covariance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from scipy import sparse

from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.splitting import Division
from blue_solvers.contract.prepared import NOTHING, without_rounding
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.component_problem import ComponentEstimate, Contrasts, gathered
from blue_solvers.streaming.cutting import names_not_in
from blue_solvers.streaming.part_data import Design, Downward, Estimates, Part, Upward
from blue_solvers.streaming.subtrees import plan_of
from blue_solvers.threads import Workers
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.areas import LEAF
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import factors_of

ANCHOR = "anchor"
TAKEN = 1e-9  # share of the anchor that is taken along a direction, below which that is known exactly
UNKNOWN = 1e-10  # root of the information about a direction, times the anchor's deviation, below which nothing is known


class CrossingForm(AreaForm):
    """The estimates of parts in which areas cross, as one problem in which they lie side by side.

    What does not depend on how much there is, equations and factors in tens of arrays for every component, is so
    shared by all parts.

    Parameters
    ----------
    design : Design
    parts : sequence of Part
        With roots of one layer; of their areas the first, the root, has all leaves of a part.
    above : sequence of Downward, optional
        What all measurements tell of the roots: the anchors, in place of the roots' own measurements.
    """

    def __init__(self, design: Design, parts: Sequence[Part], above: Sequence[Downward] = ()) -> None:
        self._design, self._parts, self._above = design, parts, above
        self._areas = [part.areas for part in parts if part.areas is not None]
        self._counts = np.array([np.bincount(part.level_of, minlength=len(design.levels)) for part in parts])
        self._anchor = next(names_not_in(design.levels, ANCHOR))
        root = parts[0].level_of[0] if above else -1
        self._layers = [self._anchor if level == root else name for level, name in enumerate(design.levels)]
        groupings = groupings_of(design.schema, factors_of([table for _, table in (*design.observed, *design.desired)]))
        self._order, plan = list(_components(groupings)), plan_of(design)
        self._divisions = [plan.division(key) for key in plan.design_keys]
        present = self._counts.sum(axis=0) > 0
        self._inside = [i for i, (level, _) in enumerate(design.observed) if present[level] and level != root]
        self._wanted = [i for i, (level, _) in enumerate(design.desired) if present[level] and above]
        areas = self._areas_by_level()
        self._noise = np.zeros(len(parts)) if above else self._usual_variances(areas)
        super().__init__(self._problem_of_parts(areas), groupings)

    def messages(self) -> list[Upward]:
        """What every part knows of its root, whose estimate is zero along directions that are not estimable."""
        slots, given = self._slots[self._design.finest.name], self._observed.slots(self._lay_out(), Workers(0))
        array = np.zeros((len(self._parts), slots.size, 1))
        told: list[dict[Contrasts, Message]] = [{} for _ in self._parts]
        for own in self._shared:
            places = np.concatenate([slots.places(component) for component in own.components], axis=1)
            numbers = gathered(own.observed, given)
            for part, (message, shares, rows) in enumerate(self._told(own)):
                told[part] |= dict.fromkeys(own.components, message)
                array[part, places, 0] = shares.T @ numbers[rows]
        slots.basis.to_cells(array.reshape(-1, *slots.shape, 1))
        divisions = list(zip(self._order, self._divisions, strict=True))
        return [
            Upward(cells, [_in_pieces(known[own], division) for own, division in divisions], part.least)
            for part, cells, known in zip(self._parts, array, told, strict=True)
        ]

    def estimates(self, variances: bool) -> list[Estimates]:
        """The tables of every part, the roots being what all measurements tell of them."""
        cells = self._cut(self.apply(self._lay_out())[:, 0])
        spreads = self._cut(self.variances()) if variances else [{} for _ in self._parts]
        for areas, own, above in zip(self._areas, spreads, self._above, strict=True):
            for found in own.values():
                without_rounding(found, NOTHING * above.least * float(abs(areas.data).min()) ** 2)
        return [Estimates(*own, {}, {}) for own in zip(cells, spreads, strict=True)]

    def _scales(self, own: ComponentEstimate) -> Float:
        """What turns orthonormal group sums of the root into those of a component's problem, (m,)."""
        return self._slots[self._design.finest.name].roots(own.components[0])

    def _anchored(self, layout: Layout) -> slice:
        """The anchor in a layout of a component's problem."""
        (name,) = (name for name in layout.names if isinstance(name, tuple) and name[0] == self._anchor)
        return layout.slice(name)

    def _variances_of(self, own: ComponentEstimate) -> Iterator[Float]:
        """With what the root adds to those of measurements inside."""
        layout = own.estimate.problem.observed
        for component, inside in zip(own.components, super()._variances_of(own), strict=True):
            number = self._order.index(component)
            above = np.array([_put_together(told.roots[number], self._divisions[number]) for told in self._above])
            anchors = np.zeros((layout.size, above.shape[-1]))
            anchors[self._anchored(layout)] = (self._scales(own)[:, None] * above).reshape(-1, above.shape[-1])
            yield inside + (own.estimate.apply(anchors)[0] ** 2).sum(axis=1)

    def _told(self, own: ComponentEstimate) -> Iterator[tuple[Message, Float, Index]]:
        """Of every part what each component tells of the root's group sums, and its measurements' shares in these.

        These shares are of rows of the component's problem, (k, m), and where they are there, (k,).
        """
        problem, scales = own.estimate.problem, self._scales(own)
        pulls, anchor = np.zeros((problem.desired.size, scales.size)), self._anchored(problem.observed)
        pulls[self._anchored(problem.desired)] = np.tile(np.diag(1 / scales), (len(self._parts), 1))
        U = own.estimate.adjoint(pulls)
        taken = (U[anchor] * np.tile(scales, len(self._parts))[:, None]).reshape(-1, scales.size, scales.size)
        noise = np.where(np.isfinite(problem.variances), problem.variances, 0.0)
        noise[anchor] = 0
        for part, rows in enumerate(self._rows(problem.observed)):
            yield (*_learnt(taken[part], U[rows], noise[rows], self._noise[part]), rows)

    def _rows(self, layout: Layout) -> list[Index]:
        """Where every part is in a layout of a component's problem."""
        counts = dict(zip(self._layers, self._counts.T, strict=True)) | {self._anchor: np.ones_like(self._noise, int)}
        layers = [name[0] for name in layout.names if isinstance(name, tuple)]
        blocks = [np.repeat(np.arange(len(self._parts)), counts[layer]) for layer in layers]
        sizes = zip(blocks, layout.sizes.tolist(), strict=True)
        of_rows = np.concatenate([np.repeat(own, size // max(own.size, 1)) for own, size in sizes])
        ends = np.bincount(of_rows, minlength=len(self._parts)).cumsum()
        return np.split(np.argsort(of_rows, kind="stable"), ends[:-1])

    def _areas_by_level(self) -> list[sparse.csr_array]:
        """The areas of every layer that is there, those of one part after those of another, (areas, leaves)."""
        every, levels = sparse.block_diag(self._areas, format="csr"), [part.level_of for part in self._parts]
        level_of = np.concatenate(levels)
        return [every[np.flatnonzero(level_of == level)] for level in range(len(self._layers))]

    def _problem_of_parts(self, areas: Sequence[sparse.csr_array]) -> Problem:
        """The problem of all parts, of areas (G, leaves) by layer, with anchors: desired where no table is."""
        design, finest = self._design, self._design.finest.name
        observed: dict[str, dict[str, Float]] = {self._anchor: {finest: self._noise}}
        for i in self._inside:
            level, table = design.observed[i]
            observed.setdefault(self._layers[level], {})[table.name] = self._noise_of(i)
        desired: dict[str, list[str]] = {} if self._wanted else {self._anchor: [finest]}
        for i in self._wanted:
            level, table = design.desired[i]
            desired.setdefault(self._layers[level], []).append(table.name)
        layers: dict[str, sparse.csr_array | Index]
        layers = {name: own for name, own in zip(self._layers, areas, strict=True) if name != LEAF and own.shape[0]}
        leaves = [own.shape[1] for own in self._areas]
        layers[self._anchor] = np.repeat(np.arange(len(leaves)), leaves)
        return Problem(design.schema, observed, desired, areas=Areas(sum(leaves), layers))

    def _noise_of(self, i: int) -> Float:
        """Variances of an observed table by its number, (areas,)."""
        return np.concatenate([part.variances[i] for part in self._parts])

    def _lay_out(self) -> Float:
        """What was measured, and the roots' cells, over the observed layout, (n, 1)."""
        y, layout = np.zeros((self._problem.observed.size, 1)), self._problem.observed
        for i in self._inside:
            level, table = self._design.observed[i]
            values = [part.values[i].ravel() for part in self._parts]
            y[layout.slice((self._layers[level], table.name)), 0] = np.concatenate(values)
        y[self._problem.unmeasured] = 0
        if self._above:
            anchor = layout.slice((self._anchor, self._design.finest.name))
            y[anchor] = np.concatenate([own.cells for own in self._above])
        return y

    def _cut(self, vector: Float) -> list[dict[int, Float]]:
        """Of every part tables by their number in the design, (areas, cells), of a vector over the desired layout."""
        found: list[dict[int, Float]] = [{} for _ in self._parts]
        for i in self._wanted:
            level, table = self._design.desired[i]
            own = vector[self._problem.desired.slice((self._layers[level], table.name))].reshape(-1, table.size)
            ends = self._counts[:, level].cumsum()
            for part in np.flatnonzero(self._counts[:, level]).tolist():
                found[part][i] = own[ends[part] - self._counts[part, level] : ends[part]]
        return found

    def _usual_variances(self, areas: Sequence[sparse.csr_array]) -> Float:
        """Half way, by decades, between the least and the largest variance of a group sum in every part, (parts,)."""
        numbers, least = np.arange(len(self._parts)), np.full(len(self._parts), np.inf)
        largest, weights = np.zeros(numbers.size), []
        for own, counts in zip(areas, self._counts.T, strict=True):
            of_entry = np.repeat(np.repeat(numbers, counts), np.diff(own.indptr))
            weights.append((np.full(numbers.size, np.inf), np.zeros(numbers.size)))
            np.minimum.at(weights[-1][0], of_entry, abs(own.data))
            np.maximum.at(weights[-1][1], of_entry, abs(own.data))
        for i in self._inside:
            level, table = self._design.observed[i]
            known, of_part = self._noise_of(i) * table.size, np.repeat(numbers, self._counts[:, level])
            (low, high), noisy = weights[level], (known > 0) & np.isfinite(known)
            known, of_part = known[noisy], of_part[noisy]
            with np.errstate(divide="ignore"):  # areas without leaves have no weights
                np.minimum.at(least, of_part, known / high[of_part] ** 2)
            np.maximum.at(largest, of_part, known / low[of_part] ** 2)
        noisy = largest > 0
        return np.where(noisy, np.sqrt(np.where(noisy, least, 1.0) * largest) / self._design.finest.size, 1.0)


def _in_pieces(message: Message, division: Division) -> list[Message]:
    """Of every piece of a component what a message, of matrices (1, m, m), tells of one copy."""
    if division.coordinates.are_numbers:
        return [message]
    bases = [piece.basis.toarray()[:, :: piece.multiplicity] for piece in division.pieces]
    return [Message(*(basis.T @ own @ basis for own in vars(message).values())) for basis in bases]


def _put_together(roots: Sequence[Float], division: Division) -> Float:
    """The square root of a component's covariance, (m, k), of those of its pieces, (b, b)."""
    if division.coordinates.are_numbers:
        return roots[0]
    copies = [np.kron(own, np.eye(piece.multiplicity)) for own, piece in zip(roots, division.pieces, strict=True)]
    return np.concatenate([own.basis @ root for own, root in zip(division.pieces, copies, strict=True)], axis=1)


def _learnt(taken: Float, U: Float, noise: Float, variance: float) -> tuple[Message, Float]:
    """What a component tells of its root's group sums, and the shares of measurements in their estimate, (k, m).

    Of what the estimate takes of an anchor of some variance, (m, m), and of measurements, (k, m), of noise (k,).
    """
    shares, directions = np.linalg.eigh((taken + taken.T) / 2)
    exact, rest = directions[:, shares < TAKEN], directions[:, shares >= TAKEN]
    learnt = np.sqrt(noise)[:, None] * U @ (rest / shares[shares >= TAKEN]) / variance
    values, turned = np.linalg.svd(np.linalg.qr(learnt, mode="r"), full_matrices=True)[1:]
    values = np.concatenate([values, np.zeros(rest.shape[1] - values.size)])
    known = values * np.sqrt(variance) > UNKNOWN
    finite, roots, unknown = rest @ turned[known].T, values[known], rest @ turned[~known].T
    message = Message(
        ((finite / roots) @ finite.T)[None],
        ((finite * roots) @ finite.T)[None],
        (unknown @ unknown.T)[None],
        (exact @ exact.T)[None],
    )
    # U (1 + V / s) direction by direction: rounding of so large a matrix would reach what is exact
    along = (U @ finite) * (1 + 1 / (roots**2 * variance))
    return message, (U @ exact) @ exact.T + along @ finite.T


def _components(groupings: Sequence[Grouping]) -> Iterator[Contrasts]:
    """All components, in the order of the tree's plan."""
    for chosen in product(*([False, True] if own.has_contrasts else [False] for own in groupings)):
        yield frozenset(grouping.axis for grouping, own in zip(groupings, chosen, strict=True) if own)
