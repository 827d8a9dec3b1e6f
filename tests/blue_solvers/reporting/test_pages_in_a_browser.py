"""A page in headless Chromium: it renders at two widths, sorts by mouse and key, downloads, and prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from blue_solvers import examples
from blue_solvers.cli import main
from tests.helpers.browser import Browser, chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt-get install chromium")

COLUMN = """
((table, name) => {
  const heads = [...table.tHead.rows[0].cells];
  const place = heads.findIndex((head) => head.textContent === name);
  const rows = [...table.tBodies[0].rows];
  return [heads[place].getAttribute("aria-sort"), rows.map((row) => row.cells[place].textContent)];
})
"""
ESTIMATES = "document.querySelector('section[aria-labelledby=estimates] table')"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(examples.BERKELEY), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as own:
        yield own
        assert own.complaints == []


def column(browser: Browser, name: str) -> tuple[str | None, list[str]]:
    order, cells = browser.value(f"{COLUMN}({ESTIMATES}, {name!r})")
    return order, cells


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.replace(",", "").replace("−", "-")) for cell in cells]


def focus(browser: Browser, name: str) -> None:
    browser.value(f"[...{ESTIMATES}.querySelectorAll('button')].find((own) => own.textContent === {name!r}).focus()")


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders(browser: Browser, path: Path, width: int, dark: bool) -> None:
    browser.open(path, width, dark)
    assert browser.value("document.documentElement.scrollWidth") <= width  # only tables and pictures scroll sideways
    assert browser.value("document.querySelectorAll('svg .filled').length") > 10
    paper = browser.value("getComputedStyle(document.documentElement).backgroundColor")
    assert paper == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    sizes = browser.value(
        "[...document.querySelectorAll('h1, h2, p:not(.hidden), svg')].map((e) => e.getBoundingClientRect().width)"
    )
    assert min(sizes) > 100
    assert browser.screenshot()[:8] == b"\x89PNG\r\n\x1a\n"
    assert browser.complaints == []


def test_it_sorts_by_numbers_with_the_mouse(browser: Browser, path: Path) -> None:
    browser.open(path)
    before = numbers(column(browser, "estimate")[1])
    assert before != sorted(before)
    click = f"[...{ESTIMATES}.querySelectorAll('button')].find((own) => own.textContent === 'estimate').click()"
    browser.value(click)
    order, cells = column(browser, "estimate")
    assert order == "ascending"
    assert numbers(cells) == sorted(before)
    browser.value(click)
    order, cells = column(browser, "estimate")
    assert order == "descending"
    assert numbers(cells) == sorted(before, reverse=True)
    assert browser.value("document.getElementById('said').textContent") == "Sorted by estimate, largest first"


def test_it_sorts_by_text_with_the_keyboard(browser: Browser, path: Path) -> None:
    browser.open(path)
    focus(browser, "department")
    browser.press("Enter", 13)
    order, cells = column(browser, "department")
    assert order == "ascending"
    assert cells == sorted(cells)
    assert column(browser, "estimate")[0] is None
    assert browser.value(f"{ESTIMATES}.tBodies[0].rows.length") == len(cells) == 63


def test_downloads_are_the_tables(browser: Browser, path: Path) -> None:
    browser.open(path)
    text = browser.value("""(() => {
      const link = document.querySelector("a[download='estimates.csv']");
      return atob(link.href.split(",")[1]);
    })()""")
    assert text.startswith("table,admitted,sex,department,estimate,std error,lower,upper\n")
    assert text.count("\n") == 64


def test_it_prints(browser: Browser, path: Path) -> None:
    browser.open(path)
    printed = browser.pdf()
    assert printed[:5] == b"%PDF-"
    assert printed.count(b"/Type /Page\n") >= 2


def test_no_script_gets_in_from_a_label(browser: Browser, tmp_path: Path) -> None:
    label = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
    rows = [f'"{label.replace(chr(34), chr(34) * 2)}",9,1', "b,8,1"]
    text = "table,sex,value,variance\n" + "".join(f"sex,{row}\n" for row in rows) + "total,*,18,1\n"
    (tmp_path / "hostile.csv").write_text(text)
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "hostile.csv"), "--out", str(out)]) == 0
    browser.open(out)
    assert browser.value("document.title") == "Estimates of hostile.csv"
    assert label in browser.value("document.body.textContent")
