"""Names from data never lead out of the folder that they are written in."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.files.new_files import inside, path_component
from tests.helpers.every import cases, every
from tests.helpers.refused import refuses

SAFE = re.compile(r"""(?![ .])[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff/\\=:<>"|?*]+(?<![ .])""")

tricky = st.text(st.sampled_from("ab.. /\\=:*\x00\n\x7f\u2028é "), max_size=8)


@given(name=tricky | st.text("abé.", min_size=190, max_size=210) | st.text(max_size=300))
def test_a_name_is_one_component_that_a_file_can_have_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if SAFE.fullmatch(name) is None or len(name.encode()) > 200:
        refuses(r"(?s)^geocode .{1,200}; rename it$", path_component, name, "geocode")
        return
    folder = tmp_path_factory.mktemp("names")
    (folder / f"{path_component(name, 'geocode')}.parquet").touch()
    assert [path.name for path in folder.iterdir()] == [f"{name}.parquet"]
    assert Path(f"State={name}").parts == (f"State={name}",)


@every("name", ["44001", "Block Group", "São Paulo", "44-001_b", "東京", "a.b"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert path_component(name, "geolevel") == name


@cases(
    ("", "it is empty"),
    (".", "it begins or ends with a dot or a space"),
    ("..", "it begins or ends with a dot or a space"),
    (" Block", "it begins or ends with a dot or a space"),
    ("Block.", "it begins or ends with a dot or a space"),
    ("../../Evil", "it begins or ends with a dot or a space"),
    ("44/../../evil", "it has the character '/'"),
    ("44\\1", "it has the character '\\\\\\\\'"),
    ("State=44", "it has the character '='"),
    ("C:x", "it has the character ':'"),
    ("4\x004", r"it has the character '\\x00'"),
    ("4\n4", r"it has the character '\\n'"),
    ("4\u20284", r"it has the character '\\u2028'"),
    ("4\ud8004", r"it has the character '\\ud800'"),
    ("é" * 101, "it is longer than 200 bytes"),
)
def test_other_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    refuses(f"geolevel .* cannot name a file: {reason}; rename it", path_component, name, "geolevel")


@given(parts=st.lists(st.sampled_from(["a", "b", "..", ".", "link", "out", "c.parquet"]), max_size=6))
def test_a_path_leads_where_the_system_says(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("folder")
    folder = root / "own"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "a")
    (folder / "a" / "out").symlink_to(root)
    path = Path(*parts)
    if f"{os.path.realpath(folder / path)}/".startswith(f"{os.path.realpath(folder)}/"):
        assert inside(folder, path) == folder / path
    else:
        refuses("leads out of the folder", inside, folder, path)


def test_links_out_and_circles_are_refused_and_links_within_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    (folder / "a").mkdir(parents=True)
    (folder / "within").symlink_to("a")
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    assert inside(folder, "within/new.parquet") == folder / "within" / "new.parquet"
    for path in ("out/new.parquet", "..", "/etc/passwd", "loop/x"):
        refuses("leads out of the folder", inside, folder, path)
