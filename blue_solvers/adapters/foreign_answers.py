"""Estimates that others made, laid out as a problem has them, and judged by certificate."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.verification import certify
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array
from constraint_builders.description.spine import Spine
from constraint_builders.extras import needing
from constraint_builders.opening import NUMBER_BYTES, DeclaredSize, open_file

if TYPE_CHECKING:
    import polars

Tables = dict[Any, Float]
GEOCODE, QUERY_SHAPE, VALUE = "geocode", "query_shape", "value"
BESIDE = ("value", "lower", "upper", "note", "nonnegative", "adjustment", "adjustment_z")  # an estimate in a long table
SEPARATOR = ": "  # between the geolevel and the table in the name of an array of an .npz file


def answer_from(
    problem: Problem, source: Any, variables: Sequence[str] | None = None, *, order: Literal["C", "F"] = "C"
) -> Float:
    """Somebody's estimate over a problem's observed layout.

    Parameters
    ----------
    problem : Problem
    source : array_like, mapping, model, frame or path
        An array (n,), or a mapping of names to arrays, flat or of the table's shape: ``"sex * age"``, or the tuple of
        its variables, as SEA BLUE's ``down_pass`` gives; with a geography (geolevel, table). The path of an ``.npz``
        file of such arrays, ``"State: sex"`` for a table of a geolevel. A model with ``project(variables)``, as
        private-pgm's and OpenDP's are. A planner with ``marg_dict``, as ResidualPlanner+'s after its reconstruction, of
        identity bases. Rows of arrays, a mapping of geolevels to frames with columns ``geocode``, ``query_shape`` and
        ``value``, as census-bluedown writes where its estimates are split. A long table, a frame or a file, with the
        estimates in ``estimate`` or ``value``. Tables that were not measured are not looked at.
    variables : sequence of str, optional
        What the axes of a planner or of query shapes are, by default the schema's variables in its order.
    order : {"C", "F"}
        Which variable of a table that is given flat goes fastest: its last, or its first as in SEA BLUE's lists.

    Returns
    -------
    ndarray, (n,)

    Raises
    ------
    ValueError
        If a measured table is missing, is given twice, or has another size or shape.
    TypeError
        If it is none of these.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0})
    >>> answer_from(problem, {(): [3.0], ("sex",): [1.0, 2.0]})
    array([3., 1., 2.])
    """
    names = _variables(problem, variables)
    if order not in ("C", "F"):
        raise ValueError(f"order must be 'C' or 'F': got {order!r}")
    if hasattr(source, "project") and not hasattr(source, "columns"):  # a model may be a mapping too: private-pgm's is
        found = _of_model(problem, source.project)
    elif isinstance(source, Mapping):
        found = _of_query_shapes(problem, source, names) if _are_frames(source) else _of_mapping(problem, source, order)
    elif isinstance(source, str | os.PathLike) and Path(source).suffix == ".npz":
        found = _of_mapping(problem, _of_npz(source), order)
    elif hasattr(source, "marg_dict"):
        found = _of_planner(problem, source, names)
    elif getattr(source, "ndim", None) == 1:  # a series streams itself too
        return problem.observed.one_vector(source, "the answer")
    elif isinstance(source, str | os.PathLike) or hasattr(source, "columns") or hasattr(source, "__arrow_c_stream__"):
        found = _of_long_table(problem, source)
    elif isinstance(source, np.ndarray | list) or hasattr(source, "__array__"):
        return problem.observed.one_vector(source, "the answer")
    else:
        raise TypeError(f"an answer is arrays, tables, a model or a planner: got {type(source).__name__}")
    return _laid_out(problem, found)


def judge(
    problem: Problem, y: ArrayLike, answers: Mapping[str, Any], variables: Sequence[str] | None = None
) -> polars.DataFrame:
    """How far several people's estimates are from the best one; needs the extra ``frames``.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,)
        What was measured.
    answers : mapping of str to anything that `answer_from` reads
    variables : sequence of str, optional
        As in `answer_from`.

    Returns
    -------
    polars.DataFrame
        For each answer ``distance``, proved: how far any combination of its figures is at most from the best estimate,
        in that one's standard errors, null where nothing is certified; ``disagreement``: the largest between its
        tables, in standard errors of the measurements; ``proof``.

    Raises
    ------
    ValueError
        If an answer cannot be read, or is not one of the problem; the message has its name.
    """
    with needing("a frame of judgements needs polars", "frames"):
        import polars
    rows = []
    for name, source in answers.items():
        try:
            x = answer_from(problem, source, variables)
        except ValueError as error:
            raise ValueError(f"answer {name!r}: {error}") from None
        proof = certify(problem, y, x)
        rows.append((name, proof.bound, proof.violation, proof.reason))
    number, text = polars.Float64, polars.String
    kinds = {"answer": text, "distance": number, "disagreement": number, "proof": text}
    return polars.DataFrame(rows, schema=kinds, orient="row")


def _of_npz(path: str | os.PathLike[str]) -> dict[Any, Any]:
    """The arrays of an ``.npz`` file by the tables that their names are."""
    what = f"{os.fspath(path)}: not readable as an .npz file"
    with open_file(path) as file:
        if not is_zipfile(file):
            raise ValueError(f"{what}: it is no archive of arrays, as numpy.savez writes them")
        try:
            arrays = np.load(file, allow_pickle=False)
            plain = sum(part.file_size for part in arrays.zip.infolist())
            DeclaredSize(0, 1, plain, NUMBER_BYTES).require_moderate(os.fstat(file.fileno()).st_size)
            found = {name: arrays[name] for name in arrays.files}
        except (ValueError, OverflowError, EOFError, OSError, RuntimeError, BadZipFile, zlib.error) as error:
            raise ValueError(f"{what}: {error}") from None
        except MemoryError as error:
            raise MemoryError(f"{what}: {error}") from None
    strange = [name for name, array in found.items() if not isinstance(array, np.ndarray)]
    if strange:
        raise ValueError(f"{what}: {strange[0]!r} is no array")
    return {_level_and_table(name): array for name, array in found.items()}


def _variables(problem: Problem, variables: Sequence[str] | None) -> tuple[str, ...]:
    known = problem.domain.schema.names if problem.is_tabular else ()
    strange = [name for name in variables or () if name not in known]
    if strange:
        raise ValueError(f"{strange[0]!r} is no variable: there are {', '.join(known)}")
    return known if variables is None else tuple(variables)


def _laid_out(problem: Problem, found: Mapping[Any, Any]) -> Float:
    """Arrays by the names of the observed tables in one vector; NaN where one that was not measured is not given."""
    parts = []
    for name, measured in zip(problem.observed.names, problem.measured_tables, strict=True):
        shape = problem.observed.shape(name)
        if name not in found:
            if measured:
                there = ", ".join(map(repr, list(found)[:8])) or "none"
                raise ValueError(f"table {name!r} is missing: there are {there}")
            parts.append(np.full(int(np.prod(shape)), np.nan))
            continue
        own = real_array(found[name], f"table {name!r}")
        _require_shape(name, own, shape)
        parts.append(own.ravel())
    return np.concatenate(parts)


def _require_shape(name: Any, array: Float, shape: tuple[int, ...], leading: int = 0) -> None:
    """Refuse arrays that are neither of a table's shape, nor flat, all or behind their leading axes."""
    if array.size != prod(shape):
        raise ValueError(f"table {name!r} must have {prod(shape)} cells: got {array.size}")
    if array.shape not in (shape, (array.size,), (*shape[:leading], prod(shape[leading:]))):
        raise ValueError(f"table {name!r} must have shape {shape}, or be flat: got {array.shape}")


def _of_mapping(problem: Problem, source: Mapping[Any, Any], order: Literal["C", "F"] = "C") -> Tables:
    """Tables by the problem's names for them, whatever the order of their factors there."""
    if not problem.is_tabular:
        return dict(source)
    layout, first = problem.observed, int(problem.places is not None)
    found: Tables = {}
    for name, values in source.items():
        spelt, what = _spelt(problem, name), f"table {name!r}"
        try:
            index = layout.index(spelt)
        except ValueError:
            continue  # a table that is no business of the problem
        array = real_array(layout.by_position(values, spelt, what), what)
        if layout.names[index] in found:
            raise ValueError(f"table {layout.names[index]!r} is given twice: give it once")
        shape = layout.shape(spelt)
        _require_shape(name, array, shape, first)
        if order == "F" and array.ndim <= 1 + first:
            array = array.reshape((*shape[:first], *reversed(shape[first:])))
            array = array.transpose(*range(first), *reversed(range(first, array.ndim)))
        found[layout.names[index]] = array.reshape(shape).transpose(layout.turn(spelt, index))
    return found


def _spelt(problem: Problem, name: Any) -> Any:
    """A table's name, with its geolevel where there are places, from any spelling."""
    if problem.places is None:
        return (" * ".join(name) or "total") if isinstance(name, tuple) else str(name)
    if not (isinstance(name, tuple) and len(name) == 2):
        raise ValueError(f"table {name!r}: with a geography a name is (geolevel, table)")
    table = name[1]
    return str(name[0]), (" * ".join(table) or "total") if isinstance(table, tuple) else str(table)


def _level_and_table(name: str) -> Any:
    level, separator, table = name.partition(SEPARATOR)
    return (level, table) if separator else name


def _of_model(problem: Problem, project: Callable[[Sequence[str]], Any]) -> Tables:
    """Every observed table by a model's projection to its variables."""
    if not problem.is_tabular or problem.places is not None:
        raise ValueError("a model projects to tables of one place: this problem has others")
    found: Tables = {}
    for name, table in zip(problem.observed.names, problem.observed_tables, strict=True):
        strange = [factor for factor in table.factors if factor not in problem.domain.schema.names]
        if strange:
            raise ValueError(f"table {name!r}: a model knows no recode, {strange[0]!r} is one")
        found[name] = _array_of(project(table.factors))
    return found


def _array_of(projected: Any) -> Float:
    """The numbers of a projection: an array, or a factor of private-pgm."""
    if hasattr(projected, "datavector"):
        return np.asarray(projected.datavector(), dtype=np.float64)
    return np.asarray(getattr(projected, "values", projected), dtype=np.float64)


def _of_planner(problem: Problem, planner: Any, variables: Sequence[str]) -> Tables:
    bases = set(getattr(planner, "bases", None) or "I")
    if not bases <= {"I"}:
        raise ValueError(f"a planner's answers are tables where all its bases are 'I': it has {sorted(bases)}")
    answers = {
        tuple(variables[axis] for axis in attributes): own.get_noisy_answer_vector()
        for attributes, own in planner.marg_dict.items()
    }
    missing = [clique for clique, own in answers.items() if own is None]
    if missing:
        raise ValueError(f"the planner has no answer of {missing[0]}: call measurement() and reconstruction() first")
    return _of_mapping(problem, {clique: np.ravel(own) for clique, own in answers.items()})  # its total is 1 x 1


def _are_frames(source: Mapping[Any, Any]) -> bool:
    return bool(source) and all(hasattr(own, "columns") for own in source.values())


def _of_query_shapes(problem: Problem, source: Mapping[Any, Any], variables: Sequence[str]) -> Tables:
    """Tables from a frame for each geolevel with a row for every geounit and query, its cells in an array."""
    from constraint_builders.files.source import open_source

    if problem.spine is None:
        raise ValueError("frames by geolevel are of a geography: this problem has none")
    found: Tables = {}
    for level, own in source.items():
        frame = open_source(own).frame
        for column in (GEOCODE, QUERY_SHAPE, VALUE):
            if column not in frame.columns:
                raise ValueError(f"geolevel {level!r} has no column {column!r}: there are {', '.join(frame.columns)}")
        members = problem.spine.members[problem.spine.level_index(level)].tolist()
        place = {problem.spine.geocodes[unit]: i for i, unit in enumerate(members)}
        rows: dict[str, dict[int, Any]] = {}
        for geocode, shape, values in zip(frame[GEOCODE], frame[QUERY_SHAPE], frame[VALUE], strict=True):
            table = _table_of_shape(problem, variables, list(shape))
            if str(geocode) in place:
                if place[str(geocode)] in rows.get(table, {}):
                    raise ValueError(f"table {table!r} of {level} {str(geocode)!r} is given twice: give it once")
                rows.setdefault(table, {})[place[str(geocode)]] = np.asarray(values, dtype=np.float64).ravel()
        for table, of_units in rows.items():
            missing = [unit for i, unit in enumerate(members) if i not in of_units]
            if missing:
                raise ValueError(f"table {table!r} of {level} {problem.spine.geocodes[missing[0]]!r} is missing")
            found[level, table] = np.stack([of_units[i] for i in range(len(members))])
    return _of_mapping(problem, found)


def _table_of_shape(problem: Problem, variables: Sequence[str], shape: Sequence[int]) -> str:
    """The table whose factors have these sizes, 1 where a variable is summed out."""
    schema = problem.domain.schema
    if len(shape) != len(variables):
        raise ValueError(f"query shape {list(shape)} has {len(shape)} axes: variables are {', '.join(variables)}")
    factors = []
    for size, variable in zip(shape, variables, strict=True):
        if size == 1:
            continue
        fitting = [factor for factor in schema.factors_of(variable) if schema.size_of(factor) == size]
        if len(fitting) != 1:
            raise ValueError(f"query shape {list(shape)}: {len(fitting)} factors of {variable!r} have {size} levels")
        factors.append(fitting[0])
    return " * ".join(factors) or "total"


def _of_long_table(problem: Problem, source: Any) -> Tables:
    """The estimates of a long table, whatever it says of their errors."""
    import polars

    from constraint_builders.files.columns import plain_name
    from constraint_builders.files.measured_table import measured
    from constraint_builders.files.source import open_source

    table = open_source(source)
    plain = {plain_name(name): name for name in table.frame.columns}
    value = plain.get("estimate", plain.get("value"))
    if value is None:
        raise ValueError(f"no column is the answer: call it 'estimate'; there are {', '.join(table.frame.columns)}")
    beside = [own for name, own in plain.items() if own != value and (name in BESIDE or _says_spread(own))]
    unsaid = polars.col(value).cast(polars.Float64).fill_nan(None).is_null()
    spread = polars.when(unsaid).then(np.inf).otherwise(1.0)
    frame = table.frame.with_columns(spread.alias("_spread")).drop(beside).rename({"_spread": "variance"})
    own = measured(replace(table, frame=frame), problem.schema, undetermined="nan")
    if problem.spine is not None and own.problem.spine is not None:
        return _of_mapping(problem, _by_geocode(problem.spine, own.problem.spine, own.problem.observed.tables(own.y)))
    return _of_mapping(problem, own.problem.observed.tables(own.y))


def _says_spread(name: str) -> bool:
    from constraint_builders.files.columns import read_spread

    try:
        return read_spread(name) is not None
    except ValueError:  # one that does not say its unit: it is left out all the same
        return True


def _by_geocode(spine: Spine, other: Spine, tables: Mapping[Any, Float]) -> Tables:
    """Tables of another spine with the same geounits, (G, ...) each, in the order of the problem's."""
    found: Tables = {}
    for name, array in tables.items():
        level, _ = name
        theirs = [other.geocodes[i] for i in other.members[other.level_index(level)].tolist()]
        if level not in spine.levels:
            continue
        ours = [spine.geocodes[i] for i in spine.members[spine.level_index(level)].tolist()]
        if sorted(theirs) != sorted(ours):
            raise ValueError(f"geounits of {level} are not those of the problem")
        found[name] = array[[theirs.index(code) for code in ours]]
    return found
