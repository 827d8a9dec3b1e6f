"""Base forecasts in the frames of hierarchicalforecast, reconciled, in and out; that library is not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from blue_solvers.adapters.forecast_arguments import coverages
from blue_solvers.adapters.forecasts import ExactMinTrace
from blue_solvers.quantiles import normal_multiple
from constraint_builders.arrays import Float

if TYPE_CHECKING:
    import polars

BOUND = re.compile(r"(.*)-(lo|hi)-(\d+(?:\.\d+)?)", re.ASCII)


def reconcile(
    Y_hat_df: Any,
    S_df: Any,
    tags: Mapping[str, Any] | None = None,
    Y_df: Any = None,
    *,
    method: str = "mint_shrink",
    nonnegative: bool = False,
    covariance: Any = None,
    level: Sequence[float] | None = None,
    intervals_method: str | None = None,
    seed: int | None = None,
    id_col: str = "unique_id",
    time_col: str = "ds",
    target_col: str = "y",
) -> Any:
    """Reconcile base forecasts exactly; needs the extra ``frames``.

    Parameters
    ----------
    Y_hat_df : data frame
        A row for each series and time: the columns `id_col`, `time_col`, one for each model, and where there are ones
        its intervals ``MODEL-lo-90`` and ``MODEL-hi-90``. Of pandas, polars or pyarrow.
    S_df : data frame or SMatrix
        The summing matrix: `id_col`, or an index, and a column for each leaf; or hierarchicalforecast's sparse one.
    tags : mapping of str to array_like, optional
        The series of every level, as hierarchicalforecast has them: checked, and not needed.
    Y_df : data frame, optional
        The sample, for methods and intervals by residuals: `id_col`, `time_col`, `target_col`, and every model's
        forecasts of it.
    method, nonnegative, covariance
        As in `ExactMinTrace`.
    level : sequence of float, optional
        Coverages in per cent of prediction intervals, from the models' own where they have them, otherwise from the
        method's covariance.
    intervals_method : {"normality", "student", "bootstrap", "conformal"}, optional
        As in `ExactMinTrace.predict`.
    seed : int, optional
        Of bootstrap draws.
    id_col, time_col, target_col : str

    Returns
    -------
    data frame
        `Y_hat_df`, its rows and columns as they were, with ``MODEL/ExactMinTrace_method-...`` for every model, and for
        every level ``...-lo-90`` and ``...-hi-90``.

    Raises
    ------
    ValueError
        If a series is missing, unknown or has no forecast at some time, a row has no time, a column holds no numbers, a
        level is no coverage; or as `ExactMinTrace`.
    TypeError
        If levels are no list.
    """
    from constraint_builders.files.source import open_source

    levels = coverages(level)
    frame = open_source(Y_hat_df).frame
    S, names = _summing_matrix(S_df, id_col)
    if len(set(names)) < len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise ValueError(f"S_df has two rows of series {twice!r}: keep one, or give them two names")
    _check_tags(tags, names)
    rows = _Rows(frame, names, id_col, time_col, "Y_hat_df")
    sample = None if Y_df is None else open_source(Y_df).frame
    past = None if sample is None else _Rows(sample, names, id_col, time_col, "Y_df")
    models = [name for name in frame.columns if name not in (id_col, time_col) and not BOUND.fullmatch(name)]
    if not models:
        raise ValueError(f"Y_hat_df has no column of forecasts beside {id_col!r} and {time_col!r}")
    added: dict[str, Float] = {}
    for model in models:
        own = ExactMinTrace(method, nonnegative, covariance=covariance)
        y_hat = rows.matrix(frame, model)
        if np.isnan(y_hat).any():
            series = names[int(np.isnan(y_hat).any(axis=1).argmax())]
            raise ValueError(
                f"series {series!r} has no forecast {model!r} at some time that others have: give every one"
            )
        values = fitted = None
        by_sample = own.insample or (bool(levels) and intervals_method not in (None, "normality"))
        if by_sample and past is not None and sample is not None:
            if model not in sample.columns:
                asking = f"method {method!r}" if own.insample else f"intervals_method {intervals_method!r}"
                raise ValueError(f"Y_df has no column {model!r}: {asking} needs the forecasts of the sample")
            values, fitted = past.matrix(sample, target_col), past.matrix(sample, model)
        sigmah = _from_intervals(frame, rows, model) if levels else None
        found = own.fit_predict(S, y_hat, values, fitted, sigmah, levels, intervals_method, seed=seed)
        called = f"{model}/{_name(own)}"
        added[called] = rows.column(found["mean"])
        for position, bound in enumerate(_bounds(levels)):
            added[f"{called}-{bound}"] = rows.column(found["quantiles"][:, :, position])
    return _with_columns(Y_hat_df, added)


class _Rows:
    """Where the rows of a frame sit in a matrix of series by times."""

    def __init__(self, frame: polars.DataFrame, names: Sequence[str], id_col: str, time_col: str, what: str) -> None:
        import polars

        for column in (id_col, time_col):
            if column not in frame.columns:
                raise ValueError(f"{what} has no column {column!r}: there are {', '.join(map(repr, frame.columns))}")
        ids = frame[id_col].cast(polars.String)
        if frame[time_col].null_count():
            series = ids.filter(frame[time_col].is_null())[0]
            raise ValueError(f"{what}: series {series!r} has a row without a time in {time_col!r}: give it one")
        number = {name: i for i, name in enumerate(names)}
        places = ids.replace_strict(list(number), list(number.values()), default=None, return_dtype=polars.Int64)
        if places.null_count():
            raise ValueError(f"{what}: series {ids.filter(places.is_null())[0]!r} is no row of S_df")
        self._series = places.to_numpy().astype(np.intp)
        missing = np.flatnonzero(np.bincount(self._series, minlength=len(names)) == 0)
        if missing.size:
            raise ValueError(f"{what}: series {names[int(missing[0])]!r} of S_df has no rows")
        self._times = frame[time_col].rank("dense").to_numpy().astype(np.intp) - 1
        self._shape = (len(names), int(self._times.max()) + 1)
        flat = self._series * self._shape[1] + self._times
        rows_of = np.bincount(flat)
        if rows_of.max(initial=0) > 1:
            twice = int(flat[rows_of[flat] > 1][0]) // self._shape[1]
            raise ValueError(f"{what}: series {names[twice]!r} has two rows of one time: keep one")

    def matrix(self, frame: polars.DataFrame, column: str) -> Float:
        """A column as (series, times), NaN where there is no row."""
        if column not in frame.columns:
            raise ValueError(f"column {column!r} is missing: there are {', '.join(map(repr, frame.columns))}")
        kind = frame[column].dtype
        if not kind.is_numeric() and frame[column].null_count() < frame.height:
            raise ValueError(f"column {column!r} holds {kind}: forecasts are numbers, leave out what is none")
        found = np.full(self._shape, np.nan)
        found[self._series, self._times] = frame[column].cast(float).fill_null(float("nan")).to_numpy()
        return found

    def column(self, matrix: Float) -> Float:
        """The entries of a matrix (series, times) in the order of the rows."""
        return matrix[self._series, self._times]


def _summing_matrix(S_df: Any, id_col: str) -> tuple[sparse.csr_array, list[str]]:
    """The matrix, and the names of its rows."""
    if hasattr(S_df, "to_csr") and hasattr(S_df, "row_labels"):
        return sparse.csr_array(S_df.to_csr()), [str(name) for name in S_df.row_labels]
    import polars

    from constraint_builders.files.source import open_source

    table = open_source(S_df).frame
    labels = [name for name in table.columns if not table[name].dtype.is_numeric()]
    called = id_col if id_col in table.columns else labels[0] if len(labels) == 1 else None
    if called is None and not hasattr(S_df, "index"):
        raise ValueError(f"S_df has no column {id_col!r}: it names the series of its rows")
    names = [str(name) for name in (S_df.index if called is None else table[called].to_list())]
    leaves = [name for name in table.columns if name != called]
    for name in set(leaves) & set(labels):
        if table[name].dtype != polars.Boolean:
            raise ValueError(f"column {name!r} of S_df holds {table[name].dtype}: weights are numbers, drop all else")
    S = sparse.csr_array(table.select(leaves).to_numpy().astype(np.float64))
    _check_leaves(S, names, leaves)
    return S, names


def _check_leaves(S: sparse.csr_array, names: Sequence[str], leaves: Sequence[str]) -> None:
    """`ValueError` where rows of S, (series, leaves), are called as leaves, and others have none, or count more."""
    row = {name: number for number, name in enumerate(names)}
    places = [row.get(leaf, -1) for leaf in leaves]
    if max(places, default=-1) < 0 or list(leaves) == [str(number) for number in range(len(leaves))]:  # pandas' own
        return
    if -1 in places:
        leaf = leaves[places.index(-1)]
        raise ValueError(f"S_df: column {leaf!r} has no row of its name, as other leaves have: drop it, or add its row")
    own = S[places]
    other = np.flatnonzero((np.diff(own.indptr) != 1) | (own.diagonal() == 0))
    if other.size and np.isfinite(S.data).all():
        raise ValueError(f"S_df: row {leaves[other[0]]!r} is not the leaf whose column is called so: rename either")


def _check_tags(tags: Mapping[str, Any] | None, names: Sequence[str]) -> None:
    known = set(names)
    for tag, series in (tags or {}).items():
        for name in np.ravel(np.asarray(series, dtype=object)).tolist():
            if str(name) not in known:
                raise ValueError(f"tag {tag!r}: series {name!r} is no row of S_df")


def _from_intervals(frame: polars.DataFrame, rows: _Rows, model: str) -> Float | None:
    """Standard deviations (series, times) by the model's own intervals, the mean of those of all levels; or None."""
    found = []
    for bound in filter(None, map(BOUND.fullmatch, frame.columns)):
        other = f"{model}-{'hi' if bound[2] == 'lo' else 'lo'}-{bound[3]}"
        if bound[1] == model and other not in frame.columns:
            raise ValueError(f"Y_hat_df has {bound[0]!r} and no {other!r}: give both bounds, or leave it out")
        if bound[1] == model and bound[2] == "lo":
            width = rows.matrix(frame, other) - rows.matrix(frame, bound[0])
            found.append(width / (2 * normal_multiple(coverages([float(bound[3])])[0] / 100)))
    return np.mean(found, axis=0) if found else None


def _bounds(levels: Sequence[float]) -> list[str]:
    return [f"lo-{own}" for own in reversed(levels)] + [f"hi-{own}" for own in levels]


def _name(own: ExactMinTrace) -> str:
    return "_".join([type(own).__name__, *(f"{name}-{value}" for name, value in own._init_params.items())])


def _with_columns(source: Any, added: Mapping[str, Float]) -> Any:
    """A frame of the same kind with columns more."""
    if hasattr(source, "assign"):
        return source.assign(**added)
    import polars

    from constraint_builders.files import frame_like

    frame = source if isinstance(source, polars.DataFrame) else polars.DataFrame(source)
    return frame_like(source, frame.with_columns([polars.Series(name, own) for name, own in added.items()]))
