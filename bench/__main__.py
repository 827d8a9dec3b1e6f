"""``python -m bench NAME [options]`` runs one measurement; without a name it lists them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SHARED_CODE = (
    "__init__", "__main__", "contests", "datasets", "files_peer", "forecast_peers", "general_peers",
    "interval_designs", "invented_answers", "invented_nation", "invented_state", "measuring", "nation_passes",
    "other_systems", "paper_times", "printed_figures", "release_history", "unequal_variances", "version_cases",
)  # fmt: skip


def main() -> None:
    """Run the measurement that the command line names, on one BLAS thread."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in SHARED_CODE)
    if len(sys.argv) < 2 or sys.argv[1].replace("-", "_") not in names:
        sys.exit(f"usage: python -m bench NAME [options]\nmeasurements: {', '.join(names)}")
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    import_module(f"bench.{sys.argv[1].replace('-', '_')}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
