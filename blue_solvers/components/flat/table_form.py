"""The exact estimate table by table, over the closed family of the observed tables.

Collection: every member gathers the means of all observed tables that contain it, weighted by precision. Down pass:
every member, the smallest first, is corrected to agree with the members just below it; each correction is a small
table spread evenly. Tables of equal shape and pattern are one batch. This is SEA BLUE's collection step and down
pass (Algorithms 1 and 2, first branch) with Theorem 17's Z^ - Z' written as a sequence of corrections, which needs
neither nested desired tables nor all margins.

Bytes that must move: every cell of a large table is read once for the means over each of its maximal subsets, once for
each correction, and written once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.axis_sums import sum_axes
from blue_solvers.components.flat.family import Family, Group, Positions, smallest_superset
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders.arrays import Float


@dataclass(frozen=True)
class Run:
    """Consecutive rows of a group that are consecutive tables of a layout."""

    rows: slice
    cells: slice
    weights: Float  # (rows, 1, 1)


@dataclass(frozen=True)
class Output:
    """Desired tables that are one pattern of rows of a group, summed from another output or the group itself."""

    pattern: Positions
    source: Positions | None
    rows: NDArray[np.intp] | slice
    runs: list[Run]


class TableForm:
    """The exact estimate through the closed family of tables; see the module.

    Parameters
    ----------
    problem : StructuredProblem
        Of one geounit, without recodes and zeros.
    """

    def __init__(self, problem: StructuredProblem) -> None:
        self._problem = problem
        shape, variances = problem.schema.shape, np.concatenate(problem.geounit_variances)
        masks = [sum(1 << axis for axis in table.axes if shape[axis] > 1) for table in problem.observed_tables]
        measured = [i for i, variance in enumerate(variances) if np.isfinite(variance)]
        self._family = Family([masks[i] for i in measured], [variances[i] == 0 for i in measured], list(shape))
        self._groups = self._family.groups
        self._inputs = self._input_runs(masks, variances, measured)
        self._outputs = self._plan_outputs(shape)
        self._densities = self._collect_scalars(masks, variances, measured)

    def _input_runs(self, masks: list[int], variances: Float, measured: list[int]) -> list[list[Run]]:
        entries: list[list[tuple[int, int, float]]] = [[] for _ in self._groups]
        for i in measured:
            g, row = self._family.place[masks[i]]
            weight = self._weight(g, float(variances[i]))
            if weight:
                entries[g].append((row, int(self._problem.observed.offsets[i]), weight))
        return [_runs(found, group.size) for found, group in zip(entries, self._groups, strict=True)]

    def _weight(self, group: int, variance: float) -> float:
        """Weight of a measurement: exact ones count alike, and noisy ones not at all where something exact is known."""
        if self._groups[group].exact:
            return float(variance == 0)
        return 1 / variance

    def _collect_scalars(self, masks: list[int], variances: Float, measured: list[int]) -> list[Float]:
        """Total precision of every member from all observed tables that contain it."""
        own = [np.zeros(len(group.masks)) for group in self._groups]
        for i in measured:
            g, row = self._family.place[masks[i]]
            own[g][row] += self._weight(g, float(variances[i]))
        total = [array.copy() for array in own]
        for g, group in enumerate(self._groups):
            for pattern in group.patterns:
                for link in group.links[pattern]:
                    if group.exact or not self._groups[link.group].exact:
                        np.add.at(total[link.group], link.targets, own[g][link.members] / group.summed(pattern))
        return total

    def _plan_outputs(self, shape: tuple[int, ...]) -> list[list[Output]]:
        wanted: list[dict[Positions, list[tuple[int, int, float]]]] = [{} for _ in self._groups]
        for table, offset in zip(
            self._problem.desired_tables, self._problem.desired.offsets[:-1].tolist(), strict=True
        ):
            mask = sum(1 << axis for axis in table.axes if shape[axis] > 1)
            closure = self._family.closure(mask)
            g, row = self._family.place[closure]
            below = [(closure & ((1 << axis) - 1)).bit_count() for axis in table.axes if shape[axis] > 1]
            wanted[g].setdefault(tuple(below), []).append((row, offset, 1.0))
        return [_plan(group, found) for group, found in zip(self._groups, wanted, strict=True)]

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        estimates = self._kernel(self._read(Y), adjoint=False)
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        for group, outputs, estimate in zip(self._groups, self._outputs, estimates, strict=True):
            done: dict[Positions, Float] = {}
            for output in outputs:
                source = estimate[output.rows] if output.source is None else done[output.source]
                between = _axes_between(group.whole if output.source is None else output.source, output.pattern)
                table = sum_axes(source, between)
                done[output.pattern] = table
                cells = prod(group.shape[i] for i in output.pattern)
                for run in output.runs:
                    X[run.cells].reshape(-1, cells, Y.shape[1])[...] = table[run.rows].reshape(-1, cells, Y.shape[1])
        return X

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        information: list[Float | None] = []
        for group, outputs in zip(self._groups, self._outputs, strict=True):
            information.append(self._spread_outputs(group, outputs, V) if outputs else None)
        estimates = self._kernel(information, adjoint=True)
        result = np.zeros((self._problem.observed.size, V.shape[1]))
        for group, runs, estimate in zip(self._groups, self._inputs, estimates, strict=True):
            flat = estimate.reshape(-1, group.size, V.shape[1])
            for run in runs:
                np.multiply(flat[run.rows], run.weights, out=result[run.cells].reshape(-1, group.size, V.shape[1]))
        return result

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        estimates = self._kernel(self._read(Y), adjoint=False)
        worst = 0.0
        for group, estimate in zip(self._groups, estimates, strict=True):
            for pattern in group.children:
                sums = sum_axes(estimate, _axes_between(group.whole, pattern))
                for link in group.links[pattern]:
                    worst = max(worst, float(abs(sums[link.members] - estimates[link.group][link.targets]).max()))
        return worst

    def _spread_outputs(self, group: Group, outputs: list[Output], V: Float) -> Float:
        information = np.zeros((len(group.masks), *group.shape, V.shape[1]))
        pending: dict[Positions, Float] = {}
        for output in reversed(outputs):
            count = len(np.arange(len(group.masks))[output.rows])
            shape = tuple(group.shape[i] for i in output.pattern)
            table = np.zeros((count, *shape, V.shape[1]))
            flat = table.reshape(count, -1, V.shape[1])
            for run in output.runs:
                flat[run.rows] += V[run.cells].reshape(-1, flat.shape[1], V.shape[1])
            if output.pattern in pending:
                table += pending.pop(output.pattern)
            if output.source is None:
                information[output.rows] += np.expand_dims(table, _axes_between(group.whole, output.pattern))
                continue
            shape = tuple(group.shape[i] for i in output.source)
            total = pending.setdefault(output.source, np.zeros((count, *shape, V.shape[1])))
            total += np.expand_dims(table, _axes_between(output.source, output.pattern))
        return information

    def _read(self, Y: Float) -> list[Float | None]:
        """Observed cells times their precision, by group."""
        information: list[Float | None] = []
        for group, runs in zip(self._groups, self._inputs, strict=True):
            if not runs:
                information.append(None)
                continue
            covered = np.zeros(len(group.masks), dtype=int)
            for run in runs:
                covered[run.rows] += 1
            array = np.empty((len(covered), group.size, Y.shape[1]))
            array[covered == 0] = 0
            repeated = np.zeros(len(covered), dtype=bool)
            for run in runs:
                cells = Y[run.cells].reshape(-1, group.size, Y.shape[1])
                if repeated[run.rows].any():
                    rows = np.arange(len(covered))[run.rows]
                    array[rows[~repeated[rows]]] = 0
                    array[run.rows] += cells * run.weights
                else:
                    np.multiply(cells, run.weights, out=array[run.rows])
                repeated[run.rows] = True
            information.append(array.reshape(-1, *group.shape, Y.shape[1]))
        return information

    def _kernel(self, information: list[Float | None], adjoint: bool) -> list[Float]:
        """Estimates of all members from information vectors: their joint covariance times the information.

        Exact members hear only exact tables; in the transpose they are what noisy tables do not hear.
        """
        columns = next(array.shape[-1] for array in information if array is not None)
        collected = [
            np.zeros((len(group.masks), *group.shape, columns)) if array is None else array
            for group, array in zip(self._groups, information, strict=True)
        ]
        received = {
            link.group
            for g, group in enumerate(self._groups)
            if information[g] is not None
            for links in group.links.values()
            for link in links
        }
        sums: list[dict[Positions, Float]] = []
        for g, group in enumerate(self._groups):
            found = self._pattern_sums(group, collected[g]) if information[g] is not None else {}
            self._contribute(group, found, collected, adjoint)
            sums.append({} if g in received else {p: found[p] for p in group.children if found})
        for g, group in enumerate(self._groups):
            precision = np.where(self._densities[g] > 0, self._densities[g], np.inf).reshape(
                -1, *[1] * (len(group.shape) + 1)
            )
            collected[g] /= precision
            scaled = {p: own / precision.reshape(-1, *[1] * (own.ndim - 1)) for p, own in sums[g].items()}
            self._correct(group, collected, collected[g], scaled, adjoint)
        return collected

    def _pattern_sums(self, group: Group, array: Float) -> dict[Positions, Float]:
        found = {group.whole: array}
        for pattern in group.patterns:
            parent = smallest_superset(pattern, list(found), group.shape) or group.whole
            found[pattern] = sum_axes(found[parent], _axes_between(parent, pattern))
        return found

    def _contribute(self, group: Group, sums: dict[Positions, Float], collected: list[Float], adjoint: bool) -> None:
        for pattern in group.patterns if sums else ():
            means = sums[pattern] / group.summed(pattern)
            for link in group.links[pattern]:
                if adjoint or group.exact or not self._groups[link.group].exact:
                    link.add(means, collected[link.group])

    def _correct(
        self, group: Group, estimates: list[Float], own: Float, sums: dict[Positions, Float], adjoint: bool
    ) -> None:
        """Make every table of a group agree with the members just below it, in place."""
        corrections: list[tuple[Positions, Float]] = []
        for pattern in group.children:
            correction = -(sums[pattern] if pattern in sums else sum_axes(own, _axes_between(group.whole, pattern)))
            for link in group.links[pattern]:
                if not (adjoint and self._groups[link.group].exact and not group.exact):
                    correction[link.members] += estimates[link.group][link.targets]
            correction /= group.summed(pattern)
            for other, earlier in corrections:
                shared = tuple(i for i in other if i in pattern)
                repeats = prod(group.shape[i] for i in other if i not in pattern)
                mean_of_earlier = sum_axes(earlier, _axes_between(other, shared)) / repeats
                correction -= np.expand_dims(mean_of_earlier, _axes_between(pattern, shared))
            corrections.append((pattern, correction))
        for pattern, correction in corrections:
            own += np.expand_dims(correction, _axes_between(group.whole, pattern))

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        by_table = np.empty(len(self._problem.desired_tables))
        start = {int(offset): i for i, offset in reversed(list(enumerate(self._problem.desired.offsets[:-1])))}
        for g, (group, outputs) in enumerate(zip(self._groups, self._outputs, strict=True)):
            variances = self._group_variances(g, group) if outputs else np.zeros(0)
            for output in outputs:
                rows = np.arange(len(group.masks))[output.rows]
                index = tuple(int(i in output.pattern) for i in range(len(group.shape)))
                for run in output.runs:
                    first = start[run.cells.start]
                    chosen = rows[run.rows]
                    by_table[first : first + chosen.size] = variances[(chosen, *index)]
        return np.repeat(by_table, self._problem.desired.sizes)

    def _group_variances(self, g: int, group: Group) -> Float:
        """Variance of a cell of every marginal of every member, (members, 2, ..., 2): 1 keeps a variable, 0 sums it."""
        dims = len(group.shape)
        V = np.zeros((len(group.masks), *[2] * dims))
        for index in np.ndindex(*[2] * dims):
            kept = {i for i in range(dims) if index[i]}
            closure = min((p for p in (group.whole, *group.patterns) if kept <= set(p)), key=len)
            spread = prod(group.shape[i] for i in closure if i not in kept)
            V[(slice(None), *index)] = spread * self._component_variance(g, group, closure)
        for i, levels in enumerate(group.shape):
            total, own = (np.moveaxis(V, i + 1, 0)[k] for k in (0, 1))
            own *= 1 - 1 / levels
            own += total / levels**2
        return V

    def _component_variance(self, g: int, group: Group, closure: Positions) -> Float:
        if len(closure) == len(group.shape):
            return np.zeros(len(group.masks)) if group.exact else 1 / self._densities[g]
        result = np.zeros(len(group.masks))
        for link in group.links[closure]:
            if not self._groups[link.group].exact:
                result[link.members] = 1 / self._densities[link.group][link.targets]
        return result


def _runs(entries: Iterable[tuple[int, int, float]], cells: int) -> list[Run]:
    """Join (row, offset, weight) entries that are consecutive both in their group and in the layout."""
    runs: list[list[tuple[int, int, float]]] = []
    for entry in sorted(entries, key=lambda entry: entry[1]):
        if runs and entry[0] == runs[-1][-1][0] + 1 and entry[1] == runs[-1][-1][1] + cells:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return [
        Run(
            slice(run[0][0], run[-1][0] + 1),
            slice(run[0][1], run[-1][1] + cells),
            np.array([weight for *_, weight in run])[:, None, None],
        )
        for run in runs
    ]


def _plan(group: Group, wanted: dict[Positions, list[tuple[int, int, float]]]) -> list[Output]:
    """Outputs of a group, each summed from the smallest one already at hand for the same rows."""
    outputs: list[Output] = []
    rows_of: dict[Positions, tuple[int, ...]] = {}
    for pattern in sorted(wanted, key=lambda p: (-len(p), p)):
        rows = tuple(sorted({row for row, _, _ in wanted[pattern]}))
        source = smallest_superset(pattern, [p for p, other in rows_of.items() if other == rows], group.shape)
        rows_of[pattern] = rows
        position = {row: i for i, row in enumerate(rows)}
        entries = [(position[row], offset, weight) for row, offset, weight in wanted[pattern]]
        index = slice(None) if len(rows) == len(group.masks) else np.array(rows)
        outputs.append(Output(pattern, source, index, _runs(entries, prod(group.shape[i] for i in pattern))))
    return outputs


def _axes_between(source: Positions, pattern: Positions) -> tuple[int, ...]:
    """Axes of an array (members, *source, K) that a pattern leaves out."""
    return tuple(i + 1 for i, position in enumerate(source) if position not in pattern)
