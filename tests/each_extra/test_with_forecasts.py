"""With the extra ``forecasts``: beside hierarchicalforecast's own class."""

import numpy as np
import pandas as pd

from blue_solvers.adapters import ExactMinTrace


def test_a_class_beside_mintrace() -> None:
    from hierarchicalforecast.core import HierarchicalReconciliation  # here: seconds, which other tests need not wait
    from hierarchicalforecast.methods import MinTrace

    S = pd.DataFrame({"unique_id": ["total", "east", "west"], "east": [1.0, 1, 0], "west": [1.0, 0, 1]})
    base = pd.DataFrame({"unique_id": ["total", "east", "west"], "ds": [1, 1, 1], "ETS": [100.0, 58, 47]})
    tags = {"all": np.array(["total"]), "region": np.array(["east", "west"])}
    both = HierarchicalReconciliation([MinTrace("wls_struct"), ExactMinTrace("wls_struct")])
    out = both.reconcile(Y_hat_df=base, S_df=S, tags=tags)
    theirs, ours = (out.filter(like=f"/{name}").iloc[:, 0] for name in ("MinTrace", "Exact"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
