"""Both passes over a nation that is made a piece at a time, of which nothing but small records of states is kept.

Up, every state tells the root what it knows, and keeps what its pieces told; down, its pieces are made again from their
seeds and estimated, and only sums and checksums of them stay. A record is written whole or not at all, so that a run
that was killed goes on after the last state that it finished.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import peak_bytes, timed
from bench.synthetic_nation import LEVELS, STATE, US, Cut, Measured, Nation, State
from blue_solvers.streaming.part_data import Downward, Estimates, Upward
from blue_solvers.streaming.proofs import NO_PARTS, PartProof, ResultToProve, prove_part, put_together
from blue_solvers.streaming.subtrees import SubtreeForm
from blue_solvers.streaming.workplace import Workplace
from blue_solvers.verification.placed_tables import ChildSummary
from constraint_builders.arrays import Float, Index

UP, DOWN, RESULT = "up", "down", "result.json"
CHOSEN = ("total", "votingage")  # tables of states that are kept
QUANTILE = 1.959963984540054  # of 95 % intervals
ROWS = 1 << 20  # cells compared with the truth at once

Say = Callable[[str], None]
Told = tuple[Upward, list[Upward], Float]  # by a state and its pieces, with the true counts of the roots of all


def errors_of(x: Float, variances: Float, truth: Float) -> Float:
    """Of estimates beside the truth, (G, cells) each: how many are uncertain, covered, and their squares in variances.

    Covered are those whose 95 % intervals hold the truth; errors, squared, in variances are of mean 1.
    """
    found, step = np.zeros(3), ROWS // x.shape[1] + 1
    for start in range(0, len(x), step):
        here = slice(start, start + step)
        spread = variances[here]
        squares = np.square(x[here] - truth[here])[spread > 0] / spread[spread > 0]
        found += squares.size, (squares <= QUANTILE**2).sum(), squares.sum()
    return found


@dataclass
class Reduced:
    """What is kept of the estimates of some parts.

    Attributes
    ----------
    errors : dict of str to ndarray, (3,)
        By geolevel, as `errors_of` counts them.
    digests : list of str
        SHA-256 of the estimates of every part.
    tables : dict of str to list
        Estimates, standard errors and true values of the chosen tables of the first part's root.
    proof : PartProof
    """

    errors: dict[str, Float] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    proof: PartProof = NO_PARTS

    def look_at(self, level: str, x: Float, variances: Float, truth: Float) -> None:
        """Take in estimates of a geolevel."""
        self.errors[level] = self.errors.get(level, 0) + errors_of(x, variances, truth)

    def add(self, other: Reduced) -> None:
        """Take in another, whose root lies above."""
        for level, errors in other.errors.items():
            self.errors[level] = self.errors.get(level, 0) + errors
        self.digests += other.digests
        self.tables = other.tables
        self.proof += other.proof

    @property
    def digest(self) -> str:
        """Of all parts."""
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()


class Passes:
    """A run in a folder.

    Parameters
    ----------
    nation : Nation
    folder : Path
        Where records are kept, as pickles; what a killed run of the same nation left there is taken up.
    say : callable, optional
        Called with a line whenever a state is done.
    """

    def __init__(self, nation: Nation, folder: Path, say: Say = lambda _: None) -> None:
        self.nation, self._say = nation, say
        self.place = Workplace(folder, [UP, DOWN], [RESULT])
        self.seconds: dict[str, dict[str, dict[str, float]]] = {UP: {}, DOWN: {}}

    def run(self) -> dict[str, Any]:
        """All that is not done yet; gives what `RESULT` says.

        Raises
        ------
        ValueError
            If the folder holds the work of another nation, or of other programs.
        BlockingIOError, FileExistsError, DamagedError
            As `Workplace.held`.
        """
        with self.place.held({**self.nation.identity, "made by": _source_digest()}):
            below, cells = {}, []
            for leaf, state in enumerate(self.nation.states, 1):
                below[leaf], _, roots = self._kept_up(state)
                cells.append(roots[0])
            top = self.nation.top(cells)
            result = SubtreeForm(self.nation.design, top.part, below).estimates()
            reduced = {}
            for leaf, state in enumerate(self.nation.states, 1):
                reduced[state.code] = self._kept_down(state, result.below[leaf])
            said = self._finish(top, result, reduced)
            with self.place.replacing(RESULT) as temporary:
                temporary.write_text(json.dumps(said, indent=1), encoding="utf-8")
            return said

    def _kept_up(self, state: State) -> Told:
        return self._kept(UP, state, lambda: self.up(self.nation.cut(state)))

    def _kept_down(self, state: State, above: Downward) -> Reduced:
        return self._kept(DOWN, state, lambda: self.down(self.nation.cut(state), self._kept_up(state), above))

    def _kept(self, step: str, state: State, work: Callable[[], Any]) -> Any:
        """What a step gave of a state; it is taken now unless its record is there."""
        record = self.place.sealed(f"{step}/{state.code}")
        if record is None:
            wall = time.perf_counter()
            found, processor = timed(work)
            seconds = {"processor": processor, "wall": time.perf_counter() - wall, "peak": peak_bytes()}
            record = pickle.dumps((found, seconds))
            self.place.seal(f"{step}/{state.code}", record)
            took = f"{processor:.1f} CPU s, {seconds['wall']:.1f} s of wall"
            self._say(f"{step} {state.code}: {state.blocks:,} blocks, {took}, {seconds['peak'] / 1e6:,.0f} MB at most")
        found, self.seconds[step][state.code] = pickle.loads(record)
        return found

    def up(self, cut: Cut) -> Told:
        """What a state and its pieces tell of their roots, and the true counts of these."""
        design, told, roots = self.nation.design, [], []
        for number in range(len(cut.members)):
            own = self.nation.piece(cut, number)
            told.append(SubtreeForm(design, own.part, wanted=()).message())
            roots.append(own.root)
            del own
        if cut.is_whole:
            return told[0], [], np.array(roots)
        state_top = self.nation.state_top(cut, roots)
        below = dict(zip(cut.leaves.tolist(), told, strict=True))
        message = SubtreeForm(design, state_top.part, below, wanted=()).message()
        return message, told, np.array([state_top.root, *roots])

    def down(self, cut: Cut, told: Told, above: Downward) -> Reduced:
        """What is kept of the estimates of a state, told what is known of its root."""
        if cut.is_whole:
            return self._piece(cut, 0, above)
        _, pieces, roots = told
        state_top, leaves = self.nation.state_top(cut, list(roots[1:])), cut.leaves.tolist()
        form = SubtreeForm(self.nation.design, state_top.part, dict(zip(leaves, pieces, strict=True)), above)
        result = form.estimates()
        found, summaries = Reduced(), {}
        for number, leaf in enumerate(leaves):
            own = self._piece(cut, number, result.below[leaf])
            if own.proof.below is not None:
                summaries[leaf] = own.proof.below
            found.add(own)
        found.add(self.reduce(state_top, result, summaries, np.setdiff1d(np.arange(cut.top.size), leaves)))
        return found

    def _piece(self, cut: Cut, number: int, above: Downward) -> Reduced:
        own = self.nation.piece(cut, number)
        result = SubtreeForm(self.nation.design, own.part, above=above).estimates()
        return self.reduce(own, result, {}, np.arange(own.part.level_of.size))

    def reduce(self, own: Measured, result: Estimates, summaries: Mapping[int, ChildSummary], kept: Index) -> Reduced:
        """What is kept of a part, of which those geounits are in no other."""
        design, part = self.nation.design, own.part
        claim = ResultToProve(result.cells, result.variances)
        is_top = part.level_of[0] == US
        found = Reduced(proof=prove_part(design, part, claim, summaries, kept, is_top=bool(is_top)))
        digest = hashlib.sha256()
        for i, (level, table) in enumerate(design.desired):
            members = part.members(level)
            rows = kept[(kept >= members.start) & (kept < members.stop)] - members.start
            if not rows.size:
                continue
            arrays = [
                array if rows.size == len(array) else array[rows]
                for array in (result.cells[i], result.variances[i], own.truth[i])
            ]
            found.look_at(LEVELS[level], *arrays)
            digest.update(np.ascontiguousarray(arrays[0]).data)
            if level == part.level_of[0] <= STATE and table.name in CHOSEN:
                x, variances, truth = (array[0].tolist() for array in arrays)
                found.tables[table.name] = [x, np.sqrt(np.array(variances)).tolist(), truth]
        found.digests.append(digest.hexdigest())
        return found

    def _finish(self, top: Measured, result: Estimates, states: Mapping[str, Reduced]) -> dict[str, Any]:
        """What is said of the whole nation."""
        summaries = {i: own.proof.below for i, own in enumerate(states.values(), 1) if own.proof.below is not None}
        parts = {**states, "US": self.reduce(top, result, summaries, np.arange(1))}
        proof = put_together(self.nation.design, {name: own.proof for name, own in parts.items()})
        errors = {level: sum(own.errors.get(level, np.zeros(3)) for own in parts.values()) for level in LEVELS}
        digests = {name: own.digest for name, own in parts.items()}
        fit = {} if proof.fit is None else {level: asdict(own) for level, own in proof.fit.by_geolevel.items()}
        return {
            "nation": self.nation.identity,
            "sha256": hashlib.sha256("".join(digests.values()).encode()).hexdigest(),
            "of states": digests,
            "tables": {name: own.tables for name, own in parts.items()},
            "certificate": None if proof.certificate is None else asdict(proof.certificate),
            "fit": fit,
            "p-value": None if proof.fit is None else proof.fit.p_value,
            "errors": {
                level: {"cells": int(cells), "covered": int(covered), "squares": squares}
                for level, (cells, covered, squares) in errors.items()
            },
        }


def _source_digest() -> str:
    """Of what makes the nation and what is kept of it; of the packages at work the folder says it itself."""
    files = (Path(__file__), Path(__file__).with_name("synthetic_nation.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
