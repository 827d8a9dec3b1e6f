"""One run at a time in a folder: a lock of the operating system, which no process outlives."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

LOCK = "lock"
ATTEMPTS = 1000  # each fails only if another run ends between two of our steps
IN_USE = (errno.EAGAIN, errno.EACCES)


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
