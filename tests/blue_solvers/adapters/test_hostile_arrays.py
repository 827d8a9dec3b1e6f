"""Archives of arrays that are damaged, or say more than they hold, are refused by name and fill no memory."""

import io
import pickle
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.adapters import answer_from
from constraint_builders import Problem, Schema
from tests.helpers import hostile
from tests.helpers.effort import examples

PROBLEM = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0})
FIRST = b"\x93NUMPY\x01\x00"


def array(shape: str, kind: str = "<f8", data: bytes = b"") -> bytes:
    """An array of a shape that is stated, whatever data follows."""
    stated = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    stated += b" " * (63 - (len(stated) + len(FIRST) + 2) % 64) + b"\n"
    return FIRST + len(stated).to_bytes(2, "little") + stated + data


def archive(**parts: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as own:
        for name, data in parts.items():
            own.writestr(f"{name}.npy", data)
    return file.getvalue()


def single() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


HOSTILE = {
    "8 TB": lambda: archive(total=array("(1000000000000,)")),
    "8 GB and no number": lambda: archive(total=array("(1000000000,)")),
    "more than can be counted": lambda: archive(total=array("(99999999999999999999999,)")),
    "a negative number": lambda: archive(total=array("(-1,)")),
    "objects": lambda: archive(total=array("(2,)", "|O")),
    "300 MB of zeros": lambda: archive(total=array("(37500000,)", data=bytes(300_000_000))),
    "no array": lambda: archive(total=b"text"),
    "an empty part": lambda: archive(total=b""),
    "no part": archive,
    "nothing": bytes,
    "a beginning": lambda: b"PK\x03\x04",
    "one array": single,
    "a pickle": lambda: pickle.dumps([1]),
}


@pytest.mark.few(7)
@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archives_are_refused_by_name(what: str, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(HOSTILE[what]())
    with pytest.raises((ValueError, MemoryError), match=r"bad\.npz"):
        answer_from(PROBLEM, tmp_path / "bad.npz")


@pytest.mark.parametrize("what", ["a link to endless zeros", "a pipe"])
def test_what_has_no_end_is_refused(what: str, tmp_path: Path) -> None:
    hostile.ENDLESS[what](tmp_path / "bad.npz")
    with pytest.raises(ValueError, match=r"bad\.npz"):
        answer_from(PROBLEM, tmp_path / "bad.npz")


@examples(400)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 255), st.booleans())
def test_damaged_archives_are_read_or_refused_by_name(first: int, second: int, byte: int, cut: bool) -> None:
    data = bytearray(archive(total=array("()", data=np.float64(3).tobytes()), sex=array("(2,)", data=bytes(16))))
    data[first % len(data)] = byte
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        file.write(data[: second % len(data)] if cut else data)
        file.flush()
        found, said = np.zeros(3), ""
        try:
            found = answer_from(PROBLEM, file.name)
        except (ValueError, MemoryError) as error:
            said = str(error)
        assert not said or file.name in said or "table" in said  # another name of an array is that of no table
        assert found.shape == (3,)
