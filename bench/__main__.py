"""``python -m bench NAME [options]`` runs one measurement; without a name it lists them."""

import os
import sys
from importlib import import_module
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def measurements() -> dict[str, str]:
    """Modules of all measurements by their names: those, here and in folders, that have a command line."""
    home = Path(__file__).parent
    found = [path for path in home.rglob("*.py") if "\ndef main(argv" in path.read_text("utf-8")]
    return {path.stem: ".".join(("bench", *path.relative_to(home).with_suffix("").parts)) for path in sorted(found)}


def main() -> None:
    """Run the measurement that the command line names, on one BLAS thread."""
    modules = measurements()
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name not in modules:
        sys.exit(f"usage: python -m bench NAME [options]\nmeasurements: {', '.join(sorted(modules))}")
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    import_module(modules[name]).main(sys.argv[2:])


if __name__ == "__main__":
    main()
