"""Every example of the gallery runs, warns of nothing, draws what a reader can read, and answers a question."""

import ast
import re
import runpy
import warnings
from pathlib import Path

import pytest

from tests.helpers.every import every
from tests.helpers.places import ROOT

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
NEEDS = {"dask_cluster": "distributed", "pandas_frames": "pandas"}
FEWEST = 20


@pytest.mark.few(1)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip(NEEDS.get(path.stem, "numpy"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plt.close("all")
    with warnings.catch_warnings(), matplotlib.rc_context():
        plt.rcdefaults()
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
        monkeypatch.setattr(plt, "show", lambda: None)
        runpy.run_path(str(path), run_name="__main__")
        assert plt.get_fignums(), "the example draws nothing"
        for number in plt.get_fignums():
            figure = plt.figure(number)
            figure.canvas.draw()
            drawn = [ax for ax in figure.get_axes() if ax.has_data() and not hasattr(ax, "_colorbar")]
            assert any(ax.get_title(loc="left") for ax in drawn), "a picture has no title"
            for ax in drawn:
                named = ax.get_xlabel() or ax.get_ylabel() or not ax.axison
                assert named or ax.get_title(loc="left"), "axes have neither a label nor a title"
    plt.close("all")


@every("path", EXAMPLES)
def test_example_asks_and_is_short(path: Path) -> None:
    """Its title is a question, what it reads ships with the package, and it imports no internals."""
    text = path.read_text()
    title = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    assert title.endswith("?") or ":" in title, "the title is no question"
    assert len(text.splitlines()) <= 120
    assert "shared/" not in text
    assert 'plt.style.use("blue_solvers.pictures.clear")' in text
    assert not re.search(r"(?:from|import) \S*\._", text)


def test_there_are_enough() -> None:
    assert len(EXAMPLES) >= FEWEST
    assert len({path.stem for path in EXAMPLES}) == len(EXAMPLES)
