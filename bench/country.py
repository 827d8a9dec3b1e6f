"""Exactly the estimate of a whole nation of 8.1 million blocks, of which neither input nor output is ever whole.

    python -m bench country --folder DIR                              16 cells, every block of the nation
    python -m bench country --cells 2016 --share 0.1 --folder DIR     states that have a tenth of the blocks
    python -m bench country --quick                                   16 cells, states that have a hundredth

The nation is invented, with the real numbers of geounits (`bench.synthetic_nation`). A state, or a part of it that fits
in memory, is worked on at a time, first up, then down, by `streaming`; of each pass a small record stays in the folder.
A run that was killed is started again with the same options and goes on. Printed are seconds and memory, a projection
to the whole country from what was done, and what is known of the estimates: the proof, chi-square of the measurements
by geolevel, and how often 95 % intervals hold the truth.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import parser_of, print_table
from bench.nation_passes import Passes
from bench.synthetic_nation import GEOUNITS, LEVELS, Nation, State, all_states, states_within

QUICK_SHARES = {"16": 0.01, "2016": 0.003}  # of the blocks


def main(argv: list[str]) -> None:
    """Run both passes, and print what they took and what they found."""
    parser = parser_of("country", __doc__, "few states, unless others are asked for")
    parser.add_argument("--cells", choices=("16", "2016"), default="16", help="in every geounit (16)")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--states", type=int, choices=range(1, 52), metavar="N", help="the first N states (all 51)")
    some.add_argument("--share", type=float, metavar="P", help="states that have at most this share of the blocks")
    parser.add_argument("--folder", type=Path, help="where records are kept, to go on there (a temporary folder)")
    options = parser.parse_args(argv)
    is_open = options.share is None and options.states is None
    share = QUICK_SHARES[options.cells] if options.quick and is_open else options.share
    if share is not None and not 0 < share <= 1:
        parser.error(f"--share is {share:g}: give a number above 0, at most 1")
    states = all_states()[: options.states] if share is None else states_within(share)
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
        print_seconds(passes, states)
    print_findings(found)


def print_seconds(passes: Passes, states: list[State]) -> None:
    """By state and in all, with a projection to all blocks of the nation."""
    rows = {}
    for state in states:
        took = [passes.seconds(name) for name in passes.input.parts if name.startswith(f"{state.code}-")]
        summed = [sum(own[i][clock] for own in took) for i in (0, 1) for clock in ("processor", "wall")]
        peak = max(own["peak"] for both in took for own in both)
        rows[state.code] = np.array([state.blocks, *summed, peak / 1e6])
    total = np.sum(list(rows.values()), axis=0)
    total[-1] = max(own[-1] for own in rows.values())
    scale = GEOUNITS["Block"] / total[0]
    country = np.array([*(total[:-1] * scale), total[-1]])
    header = ["state", "blocks", "up: processor s", "wall s", "down: processor s", "wall s", "peak MB so far"]
    printed = {**rows, "all": total, "country": country}
    print_table(header, [[name, *own] for name, own in printed.items()])
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
