"""Gains and covariances of components, put together from those of their pieces."""

from __future__ import annotations

from collections.abc import Sequence

from blue_solvers.components.tree.coefficient_arrays import Boundary, Coefficients, PieceCoefficients
from blue_solvers.components.tree.piecewise import Composed
from blue_solvers.components.tree.solved_pieces import PieceSolver
from blue_solvers.components.tree.splitting import Division, Piece
from blue_solvers.components.tree.tree_plan import DesignKey, TreePlan


def solve_components(
    plan: TreePlan, boundary: Boundary | None = None, numbers: Sequence[int] | None = None
) -> list[Coefficients]:
    """Coefficients of some components of a plan, by default of all; those of equal design keys share them."""
    keys = [plan.design_key(plan.components[i]) for i in (range(len(plan.components)) if numbers is None else numbers)]
    chosen = range(len(plan.components)) if numbers is None else numbers
    first_of: dict[DesignKey, int] = {}
    for i, key in zip(chosen, keys, strict=True):
        first_of.setdefault(key, i)
    lots: dict[object, list[tuple[int, Piece]]] = {}
    for key, i in first_of.items():
        for piece in plan.division(key).pieces:
            lots.setdefault(piece.size if piece.is_batched else (i, piece.place), []).append((i, piece))
    solved: dict[tuple[int, Piece], PieceCoefficients] = {}
    for lot in lots.values():
        for some in plan.stacks(lot, lot[0][1].size):
            solved |= zip(some, PieceSolver(plan, some, boundary or Boundary()).solve(), strict=True)
    found = {}
    for key, i in first_of.items():
        division = plan.division(key)
        found[key] = _put_together(plan, division, [(piece, solved.pop((i, piece))) for piece in division.pieces])
    return [found[key] for key in keys]


def _put_together(plan: TreePlan, division: Division, pieces: list[tuple[Piece, PieceCoefficients]]) -> Coefficients:
    """Coefficients of a component from those of its pieces."""
    own, pairs = division.coordinates, plan.pair_parent.size
    counts = {"children": plan.parents.size, "gain": pairs, "root": plan.class_rank.size, "posterior": pairs + 1}
    square = {
        name: Composed(own, own, {piece.place: getattr(solved, name) for piece, solved in pieces}, count)
        for name, count in counts.items()
    }
    measured = {}
    for t, count in ((t, level.class_count) for level in plan.levels for t, _ in level.tables):
        found = {piece.place: solved.measured[t] for piece, solved in pieces if t in solved.measured}
        if found:
            measured[t] = Composed(own, division.frames(plan.tables[t].name), found, count)
    return Coefficients(pieces, **square, measured=measured)
