"""``scripts/mutants``: which changes of our code no test notices."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.helpers.mutation.lines_of_tests import Tests, concerned
from tests.helpers.mutation.sampling import AREAS, Mutant, sample
from tests.helpers.mutation.trying import Outcome, attempt, failure, import_libraries


def from_there(name: str) -> Path:
    """A file that is named relative to the folder in which the script was called."""
    return Path(os.environ.get("CALLED_FROM", "."), name)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", help=f"files, folders or areas; by default every area: {', '.join(AREAS)}")
    parser.add_argument("--sample", type=int, metavar="N", help="how many, evenly from every path; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each mutant (60)")
    parser.add_argument("--out", type=from_there, help="a line of JSON for each, as they are tried")
    parser.add_argument("--again", type=from_there, help="try the survivors that such a file has instead")
    return parser.parse_args()


def survivors(path: Path) -> list[Mutant]:
    """Those of an earlier run."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Mutant(**line["mutant"]) for line in lines if not line["outcome"]["killed"]]


def change(mutant: Mutant) -> str:
    """The line before and after."""
    source = Path(mutant.path).read_text()
    before, after = source.splitlines(), mutant.text(source).splitlines()
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after) - 1)
    return f"{mutant.path}:{first + 1}\n    - {before[first].strip()}\n    + {after[first].strip()}"


def main() -> int:
    told = arguments()
    mutants = survivors(told.again) if told.again else sample(Path(), told.paths, told.sample, told.seed)
    print(f"{len(mutants)} mutants; measuring which tests run which lines", flush=True)
    coverage = Path("coverage_by_test.json")
    measuring = [sys.executable, "-m", "tests.helpers.mutation.lines_of_tests", str(coverage)]
    of_these = concerned(mutant.path for mutant in mutants)
    subprocess.run([*measuring, *of_these], check=True, stdout=subprocess.DEVNULL)
    tests = Tests.read(coverage)
    import_libraries()
    quick = sorted(tests.seconds, key=tests.seconds.__getitem__)[:20]
    if wrong := failure(quick, 300.0):
        raise SystemExit(f"tests fail without any mutant: {wrong}")
    counted: Counter[tuple[str, bool]] = Counter()
    for mutant in mutants:
        outcome = attempt(mutant, tests, told.seconds)
        counted[mutant.area, outcome.killed] += 1
        report(mutant, outcome, told.out)
    for area in dict.fromkeys(mutant.area for mutant in mutants):
        print(f"{area}: {counted[area, True]} killed, {counted[area, False]} survived")
    return 1 if any(not killed for _, killed in counted) else 0


def report(mutant: Mutant, outcome: Outcome, out: Path | None) -> None:
    """Print a survivor; write either as a line of JSON."""
    if not outcome.killed:
        print(f"{change(mutant)}\n    survived {outcome.tests} tests {outcome.by}", flush=True)
    if out is not None:
        with out.open("a") as file:
            line = {
                "mutant": dataclasses.asdict(mutant),
                "outcome": dataclasses.asdict(outcome),
                "change": change(mutant),
            }
            print(json.dumps(line), file=file)


if __name__ == "__main__":
    sys.exit(main())
