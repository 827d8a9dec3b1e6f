"""The folder of a run that may be killed and resumed: who is at work there, whose work it is, and what is done.

::

    <out>/.work/lock        held while a run is at work
    <out>/.work/run.json    whose work it is; nothing else is written before it
    <out>/.work/temporary   what is being written, until it is moved to its place
    <out>/.work/...         what is done, each with its checksum
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import polars
import scipy

import blue_solvers
import constraint_builders
from blue_solvers.results.checksums import DamagedError, read_sealed_json, seal_bytes, seal_json, unseal_bytes
from blue_solvers.streaming.packing import Kept, pack, unpack
from constraint_builders.compiled import has_numba
from constraint_builders.files.new_files import inside

WORK, RUN, TEMPORARY, LOCK = ".work", "run.json", "temporary", "lock"
VERSIONS = "versions"
ATTEMPTS = 1000  # at a lock: each fails only if another run ends between two of our steps
IN_USE = (errno.EAGAIN, errno.EACCES)


class Workplace:
    """Where a run writes.

    Parameters
    ----------
    out : Path
    steps : collection of str
        Names within the folder ``.work`` of what a run keeps there.
    products : collection of str
        Names within `out` of what a run makes before it is done.
    last : str, optional
        Name within `out` of what is there when a run is done, and not before.
    """

    def __init__(
        self, out: Path, steps: Collection[str], products: Collection[str] = (), last: str | None = None
    ) -> None:
        self.out = out
        self.work = out / WORK
        self._steps = {*steps, TEMPORARY}
        self._products = set(products)
        self._last = last

    @contextmanager
    def held(self, identity: Mapping[str, Any]) -> Iterator[None]:
        """Lock the folder, and begin in it or take up what an earlier run left.

        Parameters
        ----------
        identity : mapping
            What tells this work from any other, as JSON.

        Raises
        ------
        BlockingIOError
            If another run is at work there.
        FileExistsError
            If there is something else.
        ValueError
            If it is the work of another input, of other wishes or of other versions of packages.
        DamagedError
            If the file that says whose work it is is damaged.
        """
        self.clear_ended()
        self.require_free()
        with locked(inside(self.out, WORK), self.out):
            try:
                self.require_free()
                self._begin(json.loads(json.dumps({**identity, VERSIONS: versions()})))
            except BaseException:
                if not self.is_begun:
                    self.close()
                raise
            yield

    def clear_ended(self) -> None:
        """Remove the folder of work of a run that was killed when all but that was done."""
        if self.is_done and not self.is_begun and self._is_ours():
            with locked(inside(self.out, WORK), self.out):
                self.close()

    @property
    def is_begun(self) -> bool:
        """Whether it is somebody's work."""
        return (self.work / RUN).is_file()

    @property
    def is_done(self) -> bool:
        """Whether the last file is there."""
        return self._last is not None and (self.out / self._last).exists()

    def require_free(self) -> None:
        """Raise `FileExistsError` if the folder holds anything but the work of a run."""
        if self.is_begun or not os.path.lexists(self.out):
            return
        if self.out.is_dir():
            found = {path.name for path in self.out.iterdir()}
            if not found or (WORK in found and found <= {WORK, *self._products} and self._is_ours()):
                return
        raise FileExistsError(f"{self.out}: it is there already: remove it, or choose another name")

    def _is_ours(self) -> bool:
        """Whether the folder of work, which is nobody's, was left by a run that was killed as it began or ended."""
        return self.work.is_dir() and {path.name for path in self.work.iterdir()} <= {LOCK, *self._steps}

    def _begin(self, said: Mapping[str, Any]) -> None:
        remove(self.work / TEMPORARY)
        if self.is_begun:
            self._require_same(said)
            return
        self._clean()
        with self.replacing(f"{WORK}/{RUN}") as temporary:
            temporary.write_text(seal_json(said), encoding="utf-8")

    def _require_same(self, said: Mapping[str, Any]) -> None:
        """Refuse the work of another input, or of other wishes."""
        try:
            known = read_sealed_json(self.work / RUN)
        except DamagedError as error:
            raise DamagedError(f"{error}; it says whose work this is: remove {self.out}, and run again") from None
        if known != said:
            raise ValueError(
                f"{self.out} holds the work of another input, or of other wishes ({_difference(known, said)}): choose "
                "another folder, or remove that one"
            )

    @contextmanager
    def replacing(self, path: str) -> Iterator[Path]:
        """Give a temporary path, which becomes `path` within the folder at the end, or vanishes if anything goes wrong.

        Raises
        ------
        ValueError
            If a symbolic link leads out of the folder.
        """
        target = inside(self.out, path)
        temporary = inside(self.out, f"{WORK}/{TEMPORARY}/{secrets.token_hex(8)}")
        for folder in (target.parent, temporary.parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def seal(self, name: str, payload: bytes) -> None:
        """Keep bytes under a name, with their checksum."""
        with self.replacing(f"{WORK}/{name}") as temporary:
            temporary.write_bytes(seal_bytes(name, payload))

    def sealed(self, name: str) -> bytes | None:
        """What was kept under a name; None if it is missing or damaged."""
        path = self.work / name
        return unseal_bytes(name, path.read_bytes()) if path.is_file() else None

    def keep(self, name: str, thing: Any) -> None:
        """Keep a thing of a type that `packing` knows."""
        self.seal(name, pack(thing))

    def kept(self, name: str, kind: type[Kept]) -> Kept | None:
        """The thing of this type that was kept under a name; None if it is missing or damaged."""
        known = self.sealed(name)
        return None if known is None else unpack(known, kind)

    def discard(self) -> None:
        """Leave nothing of a run."""
        (self.work / RUN).unlink(missing_ok=True)  # first: what is left by a run that is killed now is nobody's
        self._clean()
        self.close()

    def close(self) -> None:
        """Remove the folder of work, and the folder itself if there is nothing else in it."""
        (self.work / RUN).unlink(missing_ok=True)
        self.clean_steps()
        remove(self.work / LOCK)
        for folder in (self.work, self.out):
            with suppress(OSError):
                folder.rmdir()

    def _clean(self) -> None:
        self.clean_steps()
        for name in self._products:
            remove(self.out / name)

    def clean_steps(self) -> None:
        """Remove all that is kept in the folder of work, but what says whose it is."""
        for name in self._steps:
            remove(self.work / name)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _difference(known: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    """The first thing in which two identities differ."""
    key = next(key for key in {**said, **known} if known.get(key) != said.get(key))
    before, now = dict(known).get(key), dict(said).get(key)
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f"{key} differ"
    if key == VERSIONS:
        return difference(now, before)
    name = next(name for name in {**now, **before} if before.get(name) != now.get(name))
    return f"{name} differs"


@cache
def versions() -> dict[str, str]:
    """What bytes depend on beside the input: versions of Python and the packages at work, a digest of our own source.

    Compiled loops add in another order than their references, so that sums with and without numba differ in rounding.
    """
    return {
        "Python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "polars": polars.__version__,
        "numba": metadata.version("numba") if has_numba() else "not installed",
        "blue_solvers": _source_digest(blue_solvers),
        "constraint_builders": _source_digest(constraint_builders),
    }


def difference(here: dict[str, str], there: dict[str, str]) -> str:
    """The first package whose versions differ, with both; empty if all agree."""
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            return f"{name} {there.get(name)} instead of {here.get(name)}"
    return ""


def _source_digest(package: ModuleType) -> str:
    folder = Path(package.__path__[0])
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return f"source {digest.hexdigest()[:12]}"


@contextmanager
def locked(folder: Path, what: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made where it is missing.

    The lock is the system's, on an open file: it ends with the process, however that ends. What the file says is for
    the message to others only.

    Parameters
    ----------
    folder : Path
    what : Path
        What is locked, for messages.

    Raises
    ------
    BlockingIOError
        If another run holds it, which is named.
    OSError
        If the folder or the lock cannot be made.
    """
    path = folder / LOCK
    descriptor = _acquire(path, what)
    try:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now().isoformat(" ", "seconds")}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
    finally:
        if _is_at(path, descriptor):  # and nobody else removes it, since we hold it
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path, what: Path) -> int:
    """A descriptor that holds the lock of the file that is at `path` now."""
    for _ in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # the run before is just removing its folder
            continue
        except FileExistsError:  # it was there when it was to be made, and gone when it was looked at; or it is a file
            if os.path.lexists(path.parent) and not path.parent.is_dir():
                raise
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except OSError as error:
            message = f"{what}: {_holder(descriptor)} is at work there: wait for its end, or choose another folder"
            os.close(descriptor)
            if error.errno in IN_USE:
                raise BlockingIOError(message) from None
            raise OSError(error.errno, f"cannot be locked: {error.strerror}", str(path)) from None
        os.close(descriptor)  # the run before removed it meanwhile
    raise BlockingIOError(f"{what}: other runs come and go there: choose another folder")


def _is_at(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as they have said."""
    try:
        said = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {said['pid']} on {said['host']}, since {said['since']},"
    except (ValueError, KeyError, TypeError):
        return "another process"
