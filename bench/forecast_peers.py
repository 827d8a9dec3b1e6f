"""hierarchicalforecast's reconciliations, of arrays and in frames; imported only when one is asked for."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Answer = Callable[[sparse.csr_array, NDArray, NDArray], NDArray]
PATTERN = np.array([0.0, np.sqrt(2)])  # residuals whose variance and mean square are both 1


def of_arrays(called: str, method: str = "wls_var", **options: bool) -> Answer:
    """A reconciliation of one column or several; it is given residuals that have the variances."""

    def answer(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
        own: Any = getattr(import_module("hierarchicalforecast.methods"), called)(method, **options)
        is_sparse = called.endswith("Sparse")
        given = sparse.csr_matrix(S, dtype=float) if is_sparse else S.toarray().astype(float)
        pattern = PATTERN if is_sparse else np.ones(2)  # one takes variances, one mean squares
        residuals = np.sqrt(variances)[:, None] * pattern
        sample = {"y_insample": residuals, "y_hat_insample": np.zeros_like(residuals)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = own.fit_predict(S=given, y_hat=y.reshape(len(y), -1), **sample)
        return np.asarray(found["mean"]).reshape(y.shape)

    return answer


class Frames:
    """A hierarchy, its forecasts and a sample in the frames that both libraries read.

    Parameters
    ----------
    S : csr_array, (n, leaves)
        The last rows are the leaves.
    variances : ndarray, (n,)
        What residuals of the sample have.
    Y : ndarray, (n, horizon)
    """

    def __init__(self, S: sparse.csr_array, variances: NDArray, Y: NDArray) -> None:
        import pandas as pd

        n, leaves = S.shape
        self.names = np.array([f"s{row:06d}" for row in range(n)])
        bottom = self.names[-leaves:]
        utils = import_module("hierarchicalforecast.utils")
        self.S_df = utils.SMatrix(sparse.csc_matrix(S, dtype=float), self.names, bottom)
        self.tags = {"above": self.names[: n - leaves], "bottom": bottom}
        times = np.arange(Y.shape[1])
        series = {"unique_id": np.repeat(self.names, times.size), "ds": np.tile(times, n)}
        self.Y_hat_df = pd.DataFrame(series | {"base": Y.ravel()})
        residuals = np.sqrt(variances)[:, None] * PATTERN
        past = {"unique_id": np.repeat(self.names, 2), "ds": np.tile([-2, -1], n)}
        self.Y_df = pd.DataFrame(past | {"y": residuals.ravel(), "base": np.zeros(2 * n)})
        self._shape = Y.shape

    def ours(self) -> NDArray:
        """By `reconcile`, (n, horizon)."""
        from blue_solvers.adapters import reconcile

        return self._column(reconcile(self.Y_hat_df, self.S_df, self.tags, self.Y_df, method="wls_var"))

    def theirs(self, called: str) -> NDArray:
        """By a class of hierarchicalforecast, (n, horizon)."""
        method = getattr(import_module("hierarchicalforecast.methods"), called)("wls_var")
        core = import_module("hierarchicalforecast.core").HierarchicalReconciliation(reconcilers=[method])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._column(core.reconcile(self.Y_hat_df, self.tags, self.S_df, self.Y_df))

    def _column(self, frame: Any) -> NDArray:
        """The last column by series and time."""
        if not (frame["unique_id"].to_numpy() == self.Y_hat_df["unique_id"].to_numpy()).all():
            frame = frame.sort_values(["unique_id", "ds"])
        return np.asarray(frame[frame.columns[-1]], dtype=float).reshape(self._shape)
