"""Both passes over a nation that is made a piece at a time, of which nothing but small records of states is kept.

Up, every state tells the root what it knows, and keeps what its pieces told; down, its pieces are made again from their
seeds and estimated, and only sums and checksums of them stay. A record is written whole or not at all, so that a run
that was killed goes on after the last state that it finished.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.invented_nation import LEVELS, STATE, US, Cut, Measured, Nation, State
from blue_solvers.benchmarking.clock import peak_bytes
from blue_solvers.streaming.message_files import pack_arrays, pack_upward, unpack_arrays, unpack_upward
from blue_solvers.streaming.part_data import Downward, Estimates, Upward
from blue_solvers.streaming.proofs import PartProof, ResultToProve, prove_part, put_together
from blue_solvers.streaming.subtrees import SubtreeForm
from blue_solvers.streaming.workplace import Workplace
from blue_solvers.verification.fit_of_parts import FitOfParts
from blue_solvers.verification.placed_tables import Below
from blue_solvers.verification.tally import Tally
from constraint_builders.arrays import Float, Index

UP, DOWN, RESULT = "up", "down", "result.json"
CHOSEN = ("total", "votingage")  # tables of states that are kept
QUANTILE = 1.959963984540054  # of 95 % intervals
ROWS = 1 << 20  # cells compared with the truth at once

Say = Callable[[str], None]


@dataclass
class Errors:
    """Estimates of a geolevel beside the truth.

    Attributes
    ----------
    cells, covered : int
        Those with a standard error above 0, and those of them whose 95 % intervals hold the truth.
    squares : float
        Errors, squared, in variances: of mean 1.
    """

    cells: int = 0
    covered: int = 0
    squares: float = 0.0

    def look_at(self, x: Float, variances: Float, truth: Float) -> None:
        """Take in estimates, (G, cells) each."""
        step = ROWS // x.shape[1] + 1
        for start in range(0, len(x), step):
            here = slice(start, start + step)
            spread = variances[here]
            squares = np.square(x[here] - truth[here])[spread > 0] / spread[spread > 0]
            self.cells += squares.size
            self.covered += int((squares <= QUANTILE**2).sum())
            self.squares += float(squares.sum())

    def add(self, other: Errors) -> None:
        """Take in what another saw."""
        self.cells += other.cells
        self.covered += other.covered
        self.squares += other.squares


@dataclass
class Reduced:
    """What is kept of the estimates of some parts.

    Attributes
    ----------
    errors : dict of str to Errors
        By geolevel.
    digests : list of str
        SHA-256 of the estimates of every part.
    tables : dict of str to list
        Estimates, standard errors and true values of the chosen tables of the first part's root.
    proof : PartProof
    """

    errors: dict[str, Errors] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    proof: PartProof = field(default_factory=lambda: PartProof(Tally(), "", FitOfParts()))

    def add(self, other: Reduced) -> None:
        """Take in another, whose root lies above."""
        for level, errors in other.errors.items():
            self.errors.setdefault(level, Errors()).add(errors)
        self.digests += other.digests
        self.tables = other.tables
        mine, own = self.proof, other.proof
        tally = None if mine.tally is None or own.tally is None else mine.tally + own.tally
        fit = None if mine.fit is None or own.fit is None else mine.fit + own.fit
        self.proof = PartProof(tally, mine.refusal or own.refusal, fit, own.below)

    @property
    def digest(self) -> str:
        """Of all parts."""
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()

    def pack(self, seconds: Mapping[str, float]) -> bytes:
        """In bytes; the inverse of `unpack`."""
        errors = {level: asdict(own) for level, own in self.errors.items()}
        said = {"errors": errors, "digests": self.digests, "tables": self.tables, "seconds": seconds}
        return _pack(said, {"proof": _bytes(self.proof.pack())})

    @classmethod
    def unpack(cls, data: bytes) -> tuple[Reduced, dict[str, float]]:
        """What `pack` wrote, with the seconds that it took."""
        said, arrays = _unpack(data)
        errors = {level: Errors(**own) for level, own in said["errors"].items()}
        proof = PartProof.unpack(arrays["proof"].tobytes())
        return cls(errors, said["digests"], said["tables"], proof), said["seconds"]


@dataclass(frozen=True)
class FromState:
    """What a state tells after the way up.

    Attributes
    ----------
    own : Upward
    pieces : list of Upward
        What its pieces told.
    roots : ndarray, (1 + pieces, cells)
        True counts of its own and of the roots of its pieces.
    seconds : dict of str to float
    """

    own: Upward
    pieces: list[Upward]
    roots: Float
    seconds: dict[str, float]

    def pack(self) -> bytes:
        """In bytes; the inverse of `unpack`."""
        told = {f"{i}": _bytes(pack_upward(own)) for i, own in enumerate([self.own, *self.pieces])}
        return _pack({"seconds": self.seconds}, {"roots": self.roots, **told})

    @classmethod
    def unpack(cls, data: bytes) -> FromState:
        """What `pack` wrote."""
        said, arrays = _unpack(data)
        roots = arrays.pop("roots")
        own, *pieces = (unpack_upward(arrays[f"{i}"].tobytes()) for i in range(len(arrays)))
        return cls(own, pieces, roots, said["seconds"])


def _pack(said: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    return pack_arrays({"said": _bytes(json.dumps(said).encode()), **arrays})


def _unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = dict(unpack_arrays(data))
    return json.loads(arrays.pop("said").tobytes()), arrays


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


class Passes:
    """A run in a folder.

    Parameters
    ----------
    nation : Nation
    folder : Path
        Where records are kept; what a killed run of the same nation left there is taken up.
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
                told = self._kept_up(state)
                below[leaf] = told.own
                cells.append(told.roots[0])
            top = self.nation.top(cells)
            result = SubtreeForm(self.nation.design, top.part, below).estimates().agreed()
            reduced = {
                state.code: self._kept_down(state, result.below[leaf])
                for leaf, state in enumerate(self.nation.states, 1)
            }
            said = self._finish(top, result, reduced)
            with self.place.replacing(RESULT) as temporary:
                temporary.write_text(json.dumps(said, indent=1), encoding="utf-8")
            return said

    def _kept_up(self, state: State) -> FromState:
        known = self.place.sealed(f"{UP}/{state.code}")
        if known is None:
            with _timed(state) as seconds:
                own, pieces, roots = self.up(self.nation.cut(state))
            known = FromState(own, pieces, roots, seconds).pack()
            self.place.seal(f"{UP}/{state.code}", known)
            self._say(_line(UP, state, seconds))
        found = FromState.unpack(known)
        self.seconds[UP][state.code] = found.seconds
        return found

    def _kept_down(self, state: State, above: Downward) -> Reduced:
        known = self.place.sealed(f"{DOWN}/{state.code}")
        if known is None:
            told = self._kept_up(state)
            with _timed(state) as seconds:
                found = self.down(self.nation.cut(state), told, above)
            known = found.pack(seconds)
            self.place.seal(f"{DOWN}/{state.code}", known)
            self._say(_line(DOWN, state, seconds))
        reduced, self.seconds[DOWN][state.code] = Reduced.unpack(known)
        return reduced

    def up(self, cut: Cut) -> tuple[Upward, list[Upward], Float]:
        """What a state and its pieces tell of their roots, and the true counts of these."""
        design, told, roots = self.nation.design, [], []
        for number in range(len(cut.members)):
            own = self.nation.piece(cut, number)
            told.append(SubtreeForm(design, own.part, wanted=()).message())
            roots.append(own.root)
            del own
        if cut.is_whole:
            return told[0], [], np.array(roots)
        crown = self.nation.crown(cut, roots)
        below = dict(zip(cut.leaves.tolist(), told, strict=True))
        message = SubtreeForm(design, crown.part, below, wanted=()).message()
        return message, told, np.array([crown.root, *roots])

    def down(self, cut: Cut, told: FromState, above: Downward) -> Reduced:
        """What is kept of the estimates of a state, told what is known of its root."""
        if cut.is_whole:
            return self._piece(cut, 0, above)
        crown, leaves = self.nation.crown(cut, list(told.roots[1:])), cut.leaves.tolist()
        form = SubtreeForm(self.nation.design, crown.part, dict(zip(leaves, told.pieces, strict=True)), above)
        result = form.estimates().agreed()
        found, handed = Reduced(), {}
        for number, leaf in enumerate(leaves):
            own = self._piece(cut, number, result.below[leaf])
            if own.proof.below is not None:
                handed[leaf] = own.proof.below
            found.add(own)
        found.add(self.reduce(crown, result, handed, np.setdiff1d(np.arange(cut.top.size), leaves)))
        return found

    def _piece(self, cut: Cut, number: int, above: Downward) -> Reduced:
        own = self.nation.piece(cut, number)
        result = SubtreeForm(self.nation.design, own.part, above=above).estimates().agreed()
        return self.reduce(own, result, {}, np.arange(own.part.level_of.size))

    def reduce(self, own: Measured, result: Estimates, handed: Mapping[int, Below], kept: Index) -> Reduced:
        """What is kept of a part, of which those geounits are in no other."""
        design, part = self.nation.design, own.part
        claim = ResultToProve(result.cells, result.variances)
        is_top = part.level_of[0] == US
        found = Reduced(proof=prove_part(design, part, claim, handed, kept, is_top=bool(is_top)))
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
            found.errors.setdefault(LEVELS[level], Errors()).look_at(*arrays)
            digest.update(np.ascontiguousarray(arrays[0]).data)
            if level == part.level_of[0] <= STATE and table.name in CHOSEN:
                x, variances, truth = (array[0].tolist() for array in arrays)
                found.tables[table.name] = [x, np.sqrt(np.array(variances)).tolist(), truth]
        found.digests.append(digest.hexdigest())
        return found

    def _finish(self, top: Measured, result: Estimates, states: Mapping[str, Reduced]) -> dict[str, Any]:
        """What is said of the whole nation."""
        handed = {i: own.proof.below for i, own in enumerate(states.values(), 1) if own.proof.below is not None}
        parts = {**states, "US": self.reduce(top, result, handed, np.arange(1))}
        proof = put_together(self.nation.design, {name: own.proof for name, own in parts.items()})
        errors: dict[str, Errors] = {level: Errors() for level in LEVELS}
        for own in parts.values():
            for level, found in own.errors.items():
                errors[level].add(found)
        digests = {name: own.digest for name, own in parts.items()}
        fit = {} if proof.fit is None else {level: asdict(own) for level, own in proof.fit.by_geolevel().items()}
        return {
            "nation": self.nation.identity,
            "sha256": hashlib.sha256("".join(digests.values()).encode()).hexdigest(),
            "of states": digests,
            "tables": {name: own.tables for name, own in parts.items()},
            "certificate": None if proof.certificate is None else asdict(proof.certificate),
            "fit": fit,
            "p-value": None if proof.fit is None else proof.fit.p_value,
            "errors": {level: asdict(own) for level, own in errors.items()},
        }


def _source_digest() -> str:
    """Of what makes the nation and what is kept of it; of the packages at work the folder says it itself."""
    files = (Path(__file__), Path(__file__).with_name("invented_nation.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@contextmanager
def _timed(state: State) -> Iterator[dict[str, float]]:
    """Fill in the seconds of processor and wall, and the peak memory of the process so far."""
    seconds: dict[str, float] = {"geounits": state.geounits}
    wall, processor = time.perf_counter(), time.process_time()
    yield seconds
    seconds["processor"] = time.process_time() - processor
    seconds["wall"] = time.perf_counter() - wall
    seconds["peak"] = peak_bytes()


def _line(step: str, state: State, seconds: Mapping[str, float]) -> str:
    took = f"{seconds['processor']:.1f} s of processor, {seconds['wall']:.1f} s of wall"
    return f"{step} {state.code}: {state.blocks:,} blocks, {took}, {seconds['peak'] / 1e6:,.0f} MB at most"
