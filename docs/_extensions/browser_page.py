"""The page that runs the lines of the README in a browser: it is given them, and our wheel is built beside it."""

from __future__ import annotations

import html
import re
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
BESIDE = Path("_static/browser")  # of the site: where its scripts are, and the wheel
TEN_LINES = re.compile(r"^## Ten lines\n+```python\n(.*?)```", re.MULTILINE | re.DOTALL)


def wheel_in(folder: Path) -> Path:
    """Our wheel, built in a folder."""
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def filled(page: str, wheel: str) -> str:
    """The page with the area of its lines, which names the wheel."""
    (lines,) = TEN_LINES.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    area = (ROOT / "docs" / "_templates" / "in_a_browser.html").read_text(encoding="utf-8")
    area = area.replace("{lines}", html.escape(lines)).replace("{wheel}", (BESIDE / wheel).as_posix())
    return page.replace("{lines that run}", area.rstrip())


def prepare(app: Sphinx) -> None:
    """Build the wheel, whose name the page needs."""
    folder = Path(app.outdir) / BESIDE
    for old in folder.glob("*.whl"):
        old.unlink()
    app.config.wheel_beside_page = wheel_in(folder).name


def fill(app: Sphinx, name: str, source: list[str]) -> None:
    """Fill the page as it is read."""
    if name == "in_a_browser":
        source[0] = filled(source[0], app.config.wheel_beside_page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect."""
    app.add_config_value("wheel_beside_page", "", "env")
    app.connect("builder-inited", prepare)
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
