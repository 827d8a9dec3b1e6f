"""The steps of a run from the files of parts to those of their estimates, for one process or many."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from blue_solvers.results.checksums import DamagedError
from blue_solvers.results.proof import StoredProof
from blue_solvers.streaming.crossing_part import CrossingForm
from blue_solvers.streaming.equalities import Correction, SharedEqualities, with_equal_noise
from blue_solvers.streaming.estimate_files import DONE, EstimateFiles
from blue_solvers.streaming.manifest import TOP
from blue_solvers.streaming.part_data import Downward, Estimates, Part, Upward, side_by_side
from blue_solvers.streaming.part_files import PartitionError, Partitions
from blue_solvers.streaming.proofs import CLAIMED, PROOFS, ResultToProve, proof_of_run, prove_part
from blue_solvers.streaming.subtrees import SubtreeForm, require_within
from blue_solvers.streaming.workplace import Workplace, remove
from blue_solvers.verification.placed_tables import Unread
from constraint_builders.arrays import Float, Index
from constraint_builders.compiled import compile_at_once

Made = TypeVar("Made")
CHECKSUMS = "checksums.json"
PROVING = 8 << 20  # bytes beside a part that its proof takes
KEPT = 64 << 20  # bytes of parts that are kept for the way down where nothing says how much memory there is
UP, SHARES, DOWN, CORRECTION, AGREED = "up", "shares", "down", "correction", "agreed"
MEASURED, ALIKE = "", "alike-"  # with the noise of the measurements, and where all noise is equal
STEPS = (UP, SHARES, DOWN, DONE, CORRECTION, AGREED, ALIKE + UP, ALIKE + DOWN, PROOFS, CLAIMED)


class Job:
    """A run from one folder to another. Every step is on disk when it is done, and is not done twice.

    Parameters
    ----------
    folder, out : path
    variances : bool
    memory : float, optional
        Bytes that one step may take.
    certify : bool
        Whether estimates are proved, and the fit of the measurements is tested, while they are made.

    Raises
    ------
    DamagedError
        If the manifest is missing or damaged.
    MemoryError
        If a part of several geounits, or one table of a part of a single geounit, needs more than `memory`.
    """

    _open = staticmethod(Partitions.open)

    def __init__(
        self,
        folder: str | os.PathLike[str],
        out: str | os.PathLike[str],
        variances: bool = True,
        memory: float | None = None,
        certify: bool = True,
    ) -> None:
        compile_at_once()
        self.input = self._open(folder)
        self.place = Workplace(Path(out), STEPS)
        self._files = EstimateFiles(self.input.design, self.place)
        self.variances, self.certify = variances, certify
        design = self.input.design
        self._asked = replace(design, desired=design.estimated, checked=()) if certify else design
        self.split = self.input.to_split(np.inf if memory is None else memory)
        self.lots = self.input.together(np.inf if memory is None else memory)
        self._noises = (MEASURED, ALIKE) if design.equal_to else (MEASURED,)
        self._spare = 0.0
        self._kept: dict[str, Part] = {}

    def keep_within(self, memory: float | None) -> None:
        """Keep parts for the way down, as far as all steps in one process leave memory over; without a limit, some.

        Raises
        ------
        MemoryError
            If the top of the tree needs more.
        """
        if memory is None:
            self._spare = KEPT
            return
        top = self.input.top
        require_within(memory, top.bytes, str(top))
        whole = (self.input.bytes_of(lot) for lot in self.lots if lot[0] not in self.split)
        self._spare = memory - max([top.bytes, *whole]) - (PROVING if self.certify else 0)

    def _level(self, name: str) -> int:
        return self.input.design.levels.index(self.input.parts[name].geolevel)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, and begin in it or take up what an earlier run left; raises as `Workplace.held`.

        Input that is refused while the folder is held leaves nothing in the way of other input.
        """
        parts = {"parts split by table": sorted(self.split), "parts estimated together": len(self.lots)}
        wishes = {"standard errors": self.variances, "proof": self.certify, **parts}
        with self.place.held({"measurements": self.input.digest, **wishes}):
            try:
                yield
            except (DamagedError, PartitionError):
                raise
            except (ValueError, TypeError):
                self._discard()
                raise

    def _discard(self) -> None:
        """Remove all that was written, and nothing else."""
        self._files.remove(self._all_outputs())
        remove(self.place.out / CHECKSUMS)
        self.place.discard()

    def _all_outputs(self) -> list[str]:
        return [*(output for lot in self.lots for output in self.outputs(lot[0])), TOP]

    def steps(self) -> Iterator[tuple[str, list[tuple[str, ...]], str]]:
        """What is done one after another: a method, what it is called with, in any order, and which pass it is of."""
        split = sorted(self.split)
        yield "message", [*self.lots], "up"
        yield "top", [()], ""
        yield "write", [lot for lot in self.lots if lot[0] not in self.split], "down"
        yield "write_output", [(name, output) for name in split for output in self.outputs(name)], "down"
        yield "prove_split", [(name,) for name in split], ""

    def parts_of(self, calls: Iterable[tuple[str, ...]]) -> int:
        """How many parts some calls of a step are of."""
        return sum(name in self.input.parts for call in calls for name in call)

    def _each(self, names: Iterable[str], make: Callable[[str], Made]) -> Iterator[Made]:
        """What is made of every part; raises `PartitionError` of all that are damaged, at the end."""
        failed = {}
        for name in names:
            try:
                yield make(name)
            except DamagedError as error:
                failed[name] = str(error)
        self.refuse(failed)

    def shares(self, name: str) -> list[list[int]]:
        """The observed tables of a part that is split, as numbers in the design, one by one."""
        level = self._level(name)
        return [[i] for i, (own, _) in enumerate(self.input.design.observed) if own == level] or [[]]

    def share(self, name: str, number: int) -> Upward:
        """A part's message as if all but one of its tables were zero: messages are linear in what was measured."""

        def alone() -> Upward:
            part = self.input.read(name, self.shares(name)[number])
            return SubtreeForm(self.input.design, part, wanted=()).message()

        return self._kept_messages(f"{SHARES}/{name}-{number:05d}", lambda: [alone()])[0]

    def message(self, *names: str, noise: str = MEASURED) -> list[Upward]:
        """What parts that are estimated together tell of their roots."""

        def made() -> list[Upward]:
            if names[0] in self.split:
                return [self._added(names[0])]
            parts, design = list(self._each(names, self._part)), self.input.design
            for name, part in zip(names, parts, strict=True):
                self._keep(name, part)
            if parts[0].areas is not None:
                return CrossingForm(design, parts).messages()
            own = with_equal_noise(parts[0]) if noise == ALIKE else parts[0]
            return [SubtreeForm(design, own, wanted=()).message()]

        return self._kept_messages(f"{noise}{UP}/{names[0]}", made)

    def _kept_messages(self, place: str, make: Callable[[], list[Upward]]) -> list[Upward]:
        known = self.place.kept(place, list[Upward])
        if known is None:
            known = make()
            self.place.keep(place, known)
        return known

    def _part(self, name: str) -> Part:
        return self._kept[name] if name in self._kept else self.input.read(name)

    def _keep(self, name: str, part: Part) -> None:
        """Keep a part for the way down, if there is room."""
        needed = sum(values.nbytes for values in part.values)
        if name not in self._kept and needed <= self._spare:
            self._kept[name] = part
            self._spare -= needed

    def _added(self, name: str) -> Upward:
        """The message of a part that is split."""
        total = self.share(name, 0)
        for number in range(1, len(self.shares(name))):
            total = replace(total, cells=total.cells + self.share(name, number).cells)
        return total

    def top(self) -> None:
        """Solve the top of the tree: its estimates, and what it tells of the root of every part."""
        design, parts = self.input.design, self.input.parts
        known = all(self.place.sealed(f"{DOWN}/{lot[0]}") is not None for lot in self.lots)
        if known and self.is_written(TOP) and (self._correction() or not design.equal_to):
            return
        part = self.input.read(TOP)
        below = {
            noise: {
                parts[name].leaf: told
                for lot in self.lots
                for name, told in zip(lot, self.message(*lot, noise=noise), strict=True)
            }
            for noise in self._noises
        }
        found = self._estimates(part, lambda own, noise: SubtreeForm(self._asked, own, below[noise]))
        for noise, result in found.items():
            for lot in self.lots:
                if self.place.sealed(f"{noise}{DOWN}/{lot[0]}") is None:
                    self.place.keep(f"{noise}{DOWN}/{lot[0]}", [result.below[parts[name].leaf] for name in lot])
        if design.equal_to and self._correction() is None:
            self._work_out_correction(part, below)
        if not self.is_written(TOP):
            kept = np.setdiff1d(np.arange(part.level_of.size), [entry.leaf for entry in parts.values()])
            self._write(TOP, part, found, kept)

    def _estimates(self, part: Part, form: Callable[[Part, str], SubtreeForm]) -> dict[str, Estimates]:
        """Estimates of a part, which agree with what is known exactly; those with equal noise too, if needed."""
        found = {MEASURED: form(part, MEASURED).estimates(self.variances)}
        for noise in self._noises[1:]:
            found[noise] = form(with_equal_noise(part), noise).estimates(self.variances)
        return found

    def _work_out_correction(self, top: Part, below: Mapping[str, Mapping[int, Upward]]) -> None:
        """Put together what all parts say of the combinations that are known exactly."""
        design = self.input.design

        def shared(name: str) -> tuple[SharedEqualities, SharedEqualities]:
            part = self._part(name)
            own = SharedEqualities.of(design, part, {}, *self._above(name))
            return own, SharedEqualities.of(design, with_equal_noise(part), {}, *self._above(name, ALIKE))

        measured = SharedEqualities.of(design, top, below[MEASURED], None)
        alike = SharedEqualities.of(design, with_equal_noise(top), below[ALIKE], None)
        for own, own_alike in self._each(self.input.parts, shared):
            measured, alike = measured + own, alike + own_alike
        self.place.keep(CORRECTION, Correction.of(measured, alike, np.array(design.equal_to)))

    def _correction(self) -> Correction | None:
        """What equalities change; None without any, or if it is not known yet."""
        return self.place.kept(CORRECTION, Correction)

    def outputs(self, name: str) -> dict[str, list[int] | None]:
        """What is written for parts estimated together, by the first: numbers of desired tables, None for all."""
        if name not in self.split:
            return {name: None}
        desired, level = self.input.design.desired, self._level(name)
        return {f"{name}-{i:05d}": [i] for i, (own, _) in enumerate(desired) if own == level}

    def write(self, *names: str) -> None:
        """Write the estimates of parts that are estimated together, once the top is solved."""
        if all(self._has_proof(name) for name in names) and self._files.are_intact(names[0]):
            return
        parts = list(self._each(names, lambda name: self._kept.pop(name, None) or self.input.read(name)))
        found = list(self._found(names, parts))
        if len(names) == 1:
            self._write(names[0], parts[0], found[0], parts[0].own(self.input.design))
            return
        for name, part, own in zip(names, parts, found, strict=True):
            if not self._has_proof(name):
                self._prove(name, part, own[MEASURED], None, part.own(self.input.design))
        whole, result = side_by_side(parts, [own[MEASURED] for own in found])
        self.place.keep(f"{DONE}/{names[0]}", self._store(names[0], whole, result, whole.own(self.input.design)))

    def _found(self, names: Sequence[str], parts: Sequence[Part]) -> Iterable[dict[str, Estimates]]:
        """Estimates of parts that are estimated together."""
        if parts[0].areas is not None:
            crossing = CrossingForm(self._asked, parts, self._above(names[0]))
            return ({MEASURED: own} for own in crossing.estimates(self.variances))

        (name,), (part,) = names, parts

        def form(own: Part, noise: str) -> SubtreeForm:
            return SubtreeForm(self._asked, own, above=self._above(name, noise)[0])

        return [self._estimates(part, form)]

    def write_output(self, name: str, output: str) -> None:
        """Write one of the outputs of a part that is split: a single geounit, whose estimate is known."""
        if self.is_written(output):
            return
        self._require_agreement(name)
        part, (above,), wanted = self.input.read(name, ()), self._above(name), self.outputs(name)[output]
        form = SubtreeForm(self._asked, part, above=above, wanted=wanted, read=())
        self._write(output, part, {MEASURED: form.estimates(self.variances)}, part.own(self.input.design))

    def prove_split(self, name: str) -> None:
        """Prove a part that is split, one table after another."""
        if not self.certify or self.place.sealed(f"{PROOFS}/{name}") is not None:
            return
        part, (above,), level = self.input.read(name, ()), self._above(name), self._level(name)

        @lru_cache(maxsize=1)
        def estimates(i: int) -> Estimates:
            return SubtreeForm(self._asked, part, above=above, wanted=[i], read=()).estimates(self.variances)

        @lru_cache(maxsize=1)
        def measured(i: int) -> Float:
            return self.input.read(name, [i]).values[i]

        own = [i for i, (where, _) in enumerate(self._asked.desired) if where == level]
        claim = ResultToProve(
            {i: Unread(partial(lambda i: estimates(i).cells[i], i)) for i in own},
            {i: Unread(partial(lambda i: estimates(i).variances[i], i)) for i in own if self.variances},
            values=[Unread(partial(measured, i)) for i in range(len(self.input.design.observed))],
        )
        self.place.keep(f"{PROOFS}/{name}", prove_part(self.input.design, part, claim, {}, np.arange(1), is_top=False))

    def _require_agreement(self, name: str) -> None:
        """Raise `ValueError` if tables known exactly of a part that is split contradict others."""
        if self.place.sealed(f"{AGREED}/{name}") is None:
            for tables in self.shares(name):
                part = self.input.read(name, tables)
                if any((part.variances[i] == 0).any() for i in tables):
                    form = SubtreeForm(self.input.design, part, above=self._above(name)[0], wanted=(), read=tables)
                    form.estimates(variances=False)
            self.place.seal(f"{AGREED}/{name}", b"")

    def _above(self, name: str, noise: str = MEASURED) -> list[Downward]:
        """What is known of the roots of parts that are estimated together, by the first of them."""
        known = self.place.kept(f"{noise}{DOWN}/{name}", list[Downward])
        if known is None:
            raise DamagedError(f"{self.place.work / (noise + DOWN) / name} is damaged: run again")
        return known

    def _write(self, output: str, part: Part, found: Mapping[str, Estimates], kept: Index) -> None:
        """Write estimates of geounits of a part, (k,); keep its share of the proof, of the top what is to be proved."""
        result, multipliers = found[MEASURED], None
        if ALIKE in found:
            correction = self._correction()
            if correction is None:
                raise DamagedError(f"{self.place.work / CORRECTION} is damaged: run again")
            result, multipliers = correction.applied(result, found[ALIKE]), correction.gain
        self._prove(output, part, result, multipliers, kept)
        self.place.keep(f"{DONE}/{output}", self._store(output, part, result, kept))

    def _prove(self, output: str, part: Part, result: Estimates, multipliers: Float | None, kept: Index) -> None:
        """Keep the share of the proof of a part's own geounits, (k,); of the top what is to be proved."""
        if self.certify and output == TOP:
            self.place.keep(CLAIMED, (result.cells, result.variances, multipliers))
        elif self._is_proved(output):
            claim = ResultToProve(result.cells, result.variances, multipliers)
            self.place.keep(f"{PROOFS}/{output}", prove_part(self.input.design, part, claim, {}, kept, is_top=False))

    def _store(self, output: str, part: Part, result: Estimates, kept: Index) -> dict[str, str]:
        """Write the files of an output, with geounits of a part, (k,); their SHA-256 by path."""
        return self._files.write(output, part, result, kept)

    def _is_proved(self, output: str) -> bool:
        """Whether a part is proved by itself, as it is written."""
        return self.certify and (output == TOP or output in self.input.parts)

    def _has_proof(self, output: str) -> bool:
        """Whether an output's share of the proof is there, if there is to be one."""
        proof = CLAIMED if output == TOP else f"{PROOFS}/{output}"
        return not self._is_proved(output) or self.place.sealed(proof) is not None

    def is_written(self, output: str) -> bool:
        """Whether an output is there and undamaged."""
        return self._has_proof(output) and self._files.are_intact(output)

    def refuse(self, failed: Mapping[str, str]) -> None:
        """Raise `PartitionError` if parts failed."""
        if failed:
            lines = "; ".join(f"{self.input.parts[name]}: {reason}" for name, reason in failed.items())
            raise PartitionError(
                f"{len(failed)} of {len(self.input.parts)} parts cannot be read: {lines}. All that is estimated "
                "without them is done: put these files back, and run again",
                failed,
            )

    def finish(self) -> tuple[dict[str, str], StoredProof | None]:
        """Say that all is done, with the SHA-256 of every file, and what is proved of them.

        Raises
        ------
        DamagedError
            If something is not done.
        """
        files = self._files.of_all(self._all_outputs())
        proof = proof_of_run(self.input, self.place) if self.certify else None
        said = {"input": self.input.digest, "files": files, **({} if proof is None else proof.to_json())}
        with self.place.replacing(CHECKSUMS) as temporary:
            temporary.write_text(json.dumps(said, indent=1), encoding="utf-8")
        return files, proof
