"""Exactly the estimate of a whole nation of 8.1 million blocks, of which neither input nor output is ever whole.

    python -m bench country --folder DIR                              16 cells, every block of the nation
    python -m bench country --cells 2016 --share 0.1 --folder DIR     states that have a tenth of the blocks
    python -m bench country --quick                                   16 cells, states that have a hundredth

The nation is invented, with the real numbers of geounits (`bench.synthetic_nation`). A state, or a part of it that fits
in memory, is worked on at a time, first up, then down, by `streaming`; of each pass a small record stays in the folder.
A run that was killed is started again with the same options and goes on. Printed are seconds and memory, a projection
to the whole country from what was done, and what is known of the estimates: the proof, chi-square of the measurements
by geolevel, and how often 95 % intervals hold the truth. Of the estimates only sums and checksums stay.
"""

import hashlib
import json
import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import parser_of, peak_bytes, print_table, timed
from bench.synthetic_nation import GEOUNITS, LEVELS, Nation, all_states, states_within
from blue_solvers.streaming.job import CHECKSUMS, MEASURED, STEPS, Job
from blue_solvers.streaming.manifest import TOP
from blue_solvers.streaming.part_data import Estimates, Part, Upward
from blue_solvers.streaming.run import work_through
from blue_solvers.streaming.workplace import Workplace
from constraint_builders.arrays import Float, Index

RESULT = "result.json"
ROOTS, SECONDS, REDUCED = "roots", "seconds", "reduced"  # true counts and times up, times down, what is kept
QUANTILE = 1.959963984540054  # of 95 % intervals
ROWS = 1 << 20  # cells compared with the truth at once

Say = Callable[[str], None]


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


class Passes(Job):
    """A run in a folder.

    Parameters
    ----------
    nation : Nation
    folder : Path
        Where records are kept; what a killed run of the same nation left there is taken up.
    say : callable, optional
        Called with a line whenever a part is done.
    """

    _open = staticmethod(lambda nation: nation)

    def __init__(self, nation: Nation, folder: Path, say: Say = lambda _: None) -> None:
        super().__init__(nation, folder)
        self.place = Workplace(folder, (*STEPS, ROOTS, SECONDS, REDUCED), (RESULT, CHECKSUMS))
        self.nation, self._say = nation, say

    def run(self) -> dict[str, Any]:
        """All that is not done yet; gives what `RESULT` says.

        Raises
        ------
        ValueError
            If the folder holds the work of another nation, or of other programs.
        BlockingIOError, FileExistsError, DamagedError
            As `Workplace.held`.
        """
        with self.held():
            proof, errors, digests = work_through(self)[1], {}, hashlib.sha256()
            for output in (*self.input.parts, TOP):
                own, digest = self._noted(REDUCED, output)
                errors = {level: errors.get(level, 0) + own.get(level, 0) for level in {**errors, **own}}
                digests.update(digest.encode())
            said = {
                "nation": self.nation.identity,
                "sha256": digests.hexdigest(),
                "certificate": asdict(proof.certificate),
                "fit": {level: asdict(own) for level, own in proof.fit.by_geolevel.items()},
                "p-value": proof.fit.p_value,
                "errors": {
                    level: {"cells": int(own[0]), "covered": int(own[1]), "squares": own[2]}
                    for level, own in errors.items()
                },
            }
            with self.place.replacing(RESULT) as temporary:
                temporary.write_text(json.dumps(said, indent=1, sort_keys=True), encoding="utf-8")
            return said

    def seconds(self, name: str) -> list[dict[str, float]]:
        """What a part took, up and down, in seconds, and the peak of memory by then."""
        return [self._noted(ROOTS, name)[1], self._noted(SECONDS, name)]

    def message(self, *names: str, noise: str = MEASURED) -> list[Upward]:
        """As of a `Job`; the true counts of the part's root are kept too."""
        (name,) = names
        found, seconds = self._timed(partial(super().message, name, noise=noise))
        if self.place.sealed(f"{ROOTS}/{name}") is None:
            self._note(ROOTS, name, (self.nation.made(name).root, seconds))
            self._told("up", name, seconds)
        return found

    def top(self) -> None:
        """As of a `Job`."""
        self.nation.roots = [self._noted(ROOTS, name)[0] for name in self.input.parts]
        super().top()

    def write(self, *names: str) -> None:
        """As of a `Job`."""
        (name,) = names
        _, seconds = self._timed(partial(super().write, name))
        if self.place.sealed(f"{SECONDS}/{name}") is None:
            self._note(SECONDS, name, seconds)
            self._told("down", name, seconds)

    def _store(self, output: str, part: Part, result: Estimates, kept: Index) -> dict[str, str]:
        """Keep errors by geolevel, as `errors_of` counts them, and a digest of the estimates of geounits, (k,)."""
        truth, errors, digest = self.nation.made(output).truth, dict[str, Float](), hashlib.sha256()
        for i, (level, _) in enumerate(self.input.design.desired):
            rows = part.numbers(level, kept)
            if rows.size:
                every = result.cells[i], result.variances[i], truth[i]
                arrays = [own if rows.size == len(own) else own[rows] for own in every]
                name = self.input.design.levels[level]
                errors[name] = errors.get(name, 0) + errors_of(*arrays)
                digest.update(np.ascontiguousarray(arrays[0]).data)
        self._note(REDUCED, output, (errors, digest.hexdigest()))
        return {}

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
        wall = time.perf_counter()
        found, processor = timed(work)
        return found, {"processor": processor, "wall": time.perf_counter() - wall, "peak": peak_bytes()}

    def _told(self, step: str, name: str, seconds: dict[str, float]) -> None:
        took = f"{seconds['processor']:.1f} CPU s, {seconds['wall']:.1f} s of wall, {seconds['peak'] / 1e6:,.0f} MB"
        self._say(f"{step} {name}: {self.input.parts[name].geounits:,} geounits, {took} at most")

    def _note(self, step: str, name: str, thing: Any) -> None:
        self.place.seal(f"{step}/{name}", pickle.dumps(thing))

    def _noted(self, step: str, name: str) -> Any:
        return pickle.loads(self.place.sealed(f"{step}/{name}"))


QUICK_SHARES = {"16": 0.01, "2016": 0.003}  # of the blocks


def main(argv: list[str]) -> None:
    """Run both passes, and print what they took and what they found."""
    parser = parser_of("country", __doc__, "few states, unless others are asked for")
    parser.add_argument("--cells", choices=("16", "2016"), default="16", help="in every geounit (16)")
    parser.add_argument("--share", type=float, metavar="P", help="states that have at most this share of the blocks")
    parser.add_argument("--folder", type=Path, help="where records are kept, to go on there (a temporary folder)")
    options = parser.parse_args(argv)
    share = options.share if options.share is not None else QUICK_SHARES[options.cells] if options.quick else 1.0
    if not 0 < share <= 1:
        parser.error(f"--share is {share:g}: give a number above 0, at most 1")
    states = states_within(share)
    if not states:
        smallest = min(state.blocks for state in all_states()) / GEOUNITS["Block"]
        parser.error(f"no state has so few blocks: --share is {share:g}, and {smallest:.4f} is the least")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        passes = Passes(Nation(options.cells, states), folder, lambda line: print(line, flush=True))
        try:
            found = passes.run()
        except (ValueError, OSError) as error:  # the folder is another run's, or cannot be written
            parser.error(str(error))
        print_seconds(passes)
    print_findings(found)


def print_seconds(passes: Passes) -> None:
    """In all, with a projection to all blocks of the nation."""
    took = [passes.seconds(name) for name in passes.input.parts]
    summed = [sum(own[i][clock] for own in took) for i in (0, 1) for clock in ("processor", "wall")]
    peak, blocks = max(own["peak"] for both in took for own in both), sum(own.blocks for own in passes.nation.states)
    total = np.array([blocks, *summed])
    country = total * GEOUNITS["Block"] / blocks
    header = ["states", "blocks", "up: processor s", "wall s", "down: processor s", "wall s", "peak MB"]
    print_table(header, [["these", *total, peak / 1e6], ["country", *country, peak / 1e6]])
    print(f"projected to the country: {(country[1] + country[3]) / 3600:.2f} hours of one processor")


def print_findings(found: dict[str, Any]) -> None:
    """What is known of the estimates."""
    rows = []
    for level in LEVELS:
        own, fit = found["errors"][level], found["fit"][level]
        z = (fit["statistic"] - fit["expectation"]) / (2 * fit["expectation"]) ** 0.5
        shares = [f"{own[name] / own['cells']:.4f}" for name in ("covered", "squares")]
        rows.append([level, own["cells"], *shares, fit["statistic"], fit["expectation"], z])
    header = ["geolevel", "estimates", "95 % intervals hold", "squared error / variance", "chi-square", "expected", "z"]
    print_table(header, rows)
    certificate = found["certificate"]
    bound = certificate["bound"]
    said = f"not certified: {certificate['reason']}" if bound is None else f"at most {bound:.1g} standard errors off"
    print(f"chi-square of all: p = {found['p-value']:.3f}; {said}; sha256 of the estimates {found['sha256'][:16]}")
