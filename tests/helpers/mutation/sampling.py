"""Mutants of our code, made by the operators of cosmic-ray, and a sample of them that a seed determines.

A sample takes at most one mutant of every place in the text, since an operator such as ``+`` has eleven others. What
only changes an annotation is none: nobody evaluates them.
"""

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

SMALL_MATRICES = [
    *(f"blue_solvers/components/{name}.py" for name in ("orthogonal", "reflections")),
    *(f"blue_solvers/components/tree/{name}.py" for name in ("messages", "projected_work")),
    "blue_solvers/structured",
]
READERS = [
    f"constraint_builders/files/{name}.py"
    for name in (
        *("arrow_files", "block_tables", "columns", "exact_totals", "excel", "expected_rows", "labels"),
        *("long_table", "measured_table", "measurement_files", "measurement_rows"),
        *("noisy_measurements", "numbers", "rows", "schema_file", "source", "spine_of_codes", "survey_frame"),
        "text_table",
    )
]
AREAS = {  # a file is of the first area that has it
    "small matrices": SMALL_MATRICES,
    "components": ["blue_solvers/components"],
    "relations": ["constraint_builders/relations"],
    "readers": READERS,
    "intervals": ["blue_solvers/uncertainty", "blue_solvers/quantiles.py"],
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the `occurrence`-th of an operator, which stands at a line and column."""

    area: str
    path: str
    line: int
    column: int
    operator: str
    occurrence: int

    def text(self, source: str) -> str:
        """The file with this change."""
        changed = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert changed is not None, self
        return changed


def files_by_area(root: Path, paths: Sequence[str]) -> dict[str, list[str]]:
    """The files of every area, or of every path given: a file, a folder or the name of an area."""
    asked = {path: AREAS.get(path, [path]) for path in paths} or AREAS
    taken: set[str] = set()
    files: dict[str, list[str]] = {}
    for area, places in asked.items():
        files[area] = []
        for place in places:
            whole = root / place
            found = [whole] if whole.is_file() else sorted(whole.rglob("*.py"))
            if not found:
                raise ValueError(f"{place}: no Python file is there; give files, folders or areas ({', '.join(AREAS)})")
            files[area] += [name for path in found if (name := str(path.relative_to(root))) not in taken]
        taken.update(files[area])
    return files


def operators() -> Iterator[tuple[str, Operator]]:
    """All that need no arguments."""
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if not kind.arguments() and not name.endswith("/NoOp"):
            yield name, kind()


def mutants_of(area: str, path: str, source: str) -> Iterator[Mutant]:
    """Every one of a file, those of annotations too."""
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in operators():
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(places):
            yield Mutant(area, path, line, column, name, occurrence)


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node


def meaning(source: str) -> str:
    """The text without annotations and layout."""
    return ast.dump(_WithoutAnnotations().visit(ast.parse(source)))


def changes_meaning(source: str, mutant: Mutant) -> bool:
    """Whether more than an annotation changes; a text that is no longer Python is no mutant either."""
    try:
        return meaning(mutant.text(source)) != meaning(source)
    except SyntaxError:
        return False


def sample(root: Path, paths: Sequence[str], number: int | None, seed: int) -> list[Mutant]:
    """As many from every area, as far as it has them, in turns: first places are drawn, then a change of each.

    Parameters
    ----------
    root : Path
        The folder that `paths` are relative to.
    paths : sequence of str
        Files, folders and names of areas; none for every area.
    number : int or None
        How many, over all areas; None for every mutant of every place.
    """
    drawn = []
    areas = files_by_area(root, paths)
    for area, files in areas.items():
        sources = {path: (root / path).read_text() for path in files}
        places: dict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
        for path, source in sources.items():
            for mutant in mutants_of(area, path, source):
                places[path, mutant.line, mutant.column].append(mutant)
        rng, chosen = random.Random(f"{seed} {area}"), sorted(places)
        rng.shuffle(chosen)
        if number is None:
            picked = [mutant for place in chosen for mutant in places[place]]
        else:
            picked = [rng.choice(places[place]) for place in chosen]
        real = (mutant for mutant in picked if changes_meaning(sources[mutant.path], mutant))
        drawn.append(list(islice(real, None if number is None else number // len(areas))))
    return [mutant for turn in zip_longest(*drawn) for mutant in turn if mutant is not None]
