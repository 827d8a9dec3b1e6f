"""The one way to compile: a sequential loop is declared together with numpy code that does the same, if that is faster.

Where numba is installed (the extra ``fast``) the loop is compiled for the types of arguments that it meets, and kept on
disk where a place beside the code or of the user's can be written. Elsewhere the reference runs. It also serves while
nothing is kept on disk, until references have taken `PATIENCE`: compiling the loops that estimate PL94 takes some
twenty seconds, their references a hundredth of one; Rhode Island by 16 cells 39 seconds and 2.4. Who declares a kernel
gives a case of it to ``tests/test_compiled_kernels.py``, which compares the two.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, TypeVar

from constraint_builders.extras import missing_extra

Loop = TypeVar("Loop", bound=Callable[..., Any])

KERNELS: dict[str, CompiledLoop] = {}
PATIENCE = 4.0  # CPU seconds of references in a process before loops that are not kept are compiled
ALL_AT_ONCE = 2**24  # numbers in the arrays of a call that numpy takes in a second or so
ONE_BY_ONE = 2**12  # and Python
A_CALL, FEW = 2**12, 2**21  # numbers that a call counts for at least, and all that are few: .2 seconds
_PASSED = [0.0]  # seconds of references already
_COUNTED = [FEW]  # numbers already of those of kept loops: no clock decides which process loads them when
OPTIONS = {"error_model": "numpy", "nogil": True}  # division by zero as in the references; other threads go on
_NAMESPACES: dict[str, dict[str, Any]] = {}  # of files whose helpers are compiled once for several kernels
_IN_ANY_ORDER: set[Any] = set()  # helpers
_LOCK = threading.RLock()


@cache
def has_numba() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@dataclass(frozen=True, eq=False)
class CompiledLoop(Generic[Loop]):
    """A loop that can be compiled, and its reference.

    Attributes
    ----------
    loop : function
        Plain Python in the subset that numba compiles. It may call functions of its own file, which are compiled with
        it, and other kernels, and read numbers that are global there.
    reference : function
        The same in numpy: the same arguments, results and changes of arrays in place. Or the loop, interpreted.
    inline : bool
        Whether functions that the loop calls are put in its place before it is compiled.
    most : int
        So many numbers at most are left to the reference while no compiled loop is kept.
    """

    loop: Loop
    reference: Loop
    inline: bool = True
    most: int = ALL_AT_ONCE
    _made: list[Loop] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """Where it is declared: ``module.function``."""
        return f"{self.loop.__module__}.{self.loop.__name__}"

    def __call__(self, *arguments: Any) -> Any:
        """Run what is `fastest`, or what is there at once; in a loop that is compiled, the compiled one."""
        if self._made or not self._serves_at_once(arguments):
            return self.fastest()(*arguments)
        passed, started = _PASSED[0], time.thread_time()
        try:
            return self.reference(*arguments)
        finally:  # with what other kernels took within
            _PASSED[0] = max(_PASSED[0], passed + time.thread_time() - started)

    def _serves_at_once(self, arguments: tuple[Any, ...]) -> bool:
        """Whether these are not too many numbers, and references have time left, or few enough to load nothing."""
        if not has_numba():
            return False
        parts = (part for own in arguments for part in (own if isinstance(own, tuple) else (own,)))
        numbers = sum(getattr(part, "size", 1) for part in parts)
        if not self._is_kept:
            return _PASSED[0] < PATIENCE and numbers <= self.most
        _COUNTED[0] += A_CALL + numbers * max(1, ALL_AT_ONCE // self.most)
        return _COUNTED[0] <= FEW

    @cached_property
    def _is_kept(self) -> bool:
        """Whether numba kept the loop where it looks first: in a folder that the user names, or beside the code."""
        named, beside = os.environ.get("NUMBA_CACHE_DIR"), Path(inspect.getfile(self.loop)).parent / "__pycache__"
        name = f"*.{_kept_name(self.loop, self.inline)}-*.nbi"
        return any(Path(named).glob(f"*/{name}")) if named else any(beside.glob(name))

    def fastest(self) -> Loop:
        """The compiled loop where numba is installed, otherwise the reference."""
        if self._made:
            return self._made[0]
        return self.compiled() if has_numba() else self.reference

    def compiled(self, instead: str = "use its numpy reference") -> Loop:
        """The compiled loop; from any thread, one and the same.

        Parameters
        ----------
        instead : str
            What the error advises where numba is missing.

        Raises
        ------
        ImportError
            If numba is not installed, or is and cannot be imported.
        """
        with _LOCK:
            load_at_once()
            if not self._made:
                self._made.append(_compile(self.loop, self.inline, _numba(self.name, instead)))
            return self._made[0]

    def __reduce__(self) -> tuple[Callable[[str, str], CompiledLoop], tuple[str, str]]:
        return _declared, (self.loop.__module__, self.loop.__name__)


def compiled(
    reference: Any = None, inline: bool = True, most: int = ALL_AT_ONCE
) -> Callable[[Loop], CompiledLoop[Loop]]:
    """Declare a function as the loop of a kernel whose numpy reference is given.

    Parameters
    ----------
    reference : function, optional
        None where numpy would not be faster than the loop that Python interprets, which then serves.
    inline : bool, optional
        Whether functions that it calls are put in its place before it is compiled: 1.3 to 1.6 times as fast in sums of
        trees and the heat bath as what LLVM inlines by itself. Long loops take three times as long to compile so.
    most : int, optional
        So many numbers at most are left to the reference while no compiled loop is kept: `ONE_BY_ONE` where it loops.

    Returns
    -------
    callable
        What makes a `CompiledLoop` of a loop.

    Examples
    --------
    >>> import numpy as np
    >>> def add_in_numpy(total, terms):
    ...     total += terms.sum(axis=0)
    >>> @compiled(reference=add_in_numpy)
    ... def add(total, terms):
    ...     for row in range(terms.shape[0]):
    ...         for column in range(total.size):
    ...             total[column] += terms[row, column]
    >>> total = np.zeros(2)
    >>> add.reference(total, np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> add.loop(total, np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> total
    array([ 8., 12.])
    """

    def declare(loop: Loop) -> CompiledLoop[Loop]:
        kernel = CompiledLoop(loop, reference or loop, inline, most)
        KERNELS[kernel.name] = kernel
        return kernel

    return declare


def in_any_order(helper: Loop) -> Loop:
    """Declare that sums of a helper may be taken in any order, several at once, where it is compiled by itself."""
    _IN_ANY_ORDER.add(helper)
    return helper


def compile_at_once() -> None:
    """Let references serve no more: for work whose speed is measured, or whose bytes are to be the same every time."""
    _PASSED[0] = PATIENCE
    load_at_once()


def load_for_many() -> None:
    """Let references serve few numbers from now on, even for loops that are kept: in a process that ends after them."""
    _COUNTED[0] = 0


def load_at_once() -> None:
    """Let references serve no more for loops that are kept: for work of several threads."""
    _COUNTED[0] = FEW


def _declared(module: str, name: str) -> CompiledLoop:
    return getattr(importlib.import_module(module), name)


def _numba(kernel: str, instead: str) -> Any:
    if not has_numba():
        raise missing_extra("compiled kernels need numba", "fast", instead)
    try:
        return _imported_whole("numba")
    except ImportError as error:
        raise ImportError(f"numba is installed and cannot be imported to compile {kernel}: {error}") from error


def _imported_whole(name: str) -> Any:
    """Import a library in a thread of its own: an interrupt of the main thread leaves no half of it behind."""
    imported: Future[Any] = Future()

    def load() -> None:
        try:
            imported.set_result(importlib.import_module(name))
        except BaseException as error:
            imported.set_exception(error)

    threading.Thread(target=load, name=f"import {name}", daemon=True).start()
    return imported.result()


def _compile(loop: Any, inline: bool, numba: Any) -> Any:
    """Compile a loop with all functions of its file that it calls."""
    helpers = list(_helpers(loop))
    names = dict(loop.__globals__)
    if not inline:
        names = _NAMESPACES.setdefault(loop.__module__, names)
    names.update({name: kernel.compiled().dispatcher for name, kernel in _kernels([loop, *helpers])})
    for helper in helpers:
        if names[helper.__name__] is helper:
            own = OPTIONS | ({"fastmath": {"reassoc"}} if helper in _IN_ANY_ORDER else {})
            names[helper.__name__] = numba.njit(inline="always" if inline else "never", **own)(_copy(helper, names))
    whole = _copy(loop, names)
    whole.__qualname__ = _kept_name(loop, inline)
    try:
        return _Interruptible(numba.njit(cache=True, **OPTIONS)(whole))
    except RuntimeError:  # numba finds no folder that it may write to
        return _Interruptible(numba.njit(**OPTIONS)(whole))


def _kept_name(loop: Any, inline: bool) -> str:
    """What a compiled loop is called on disk."""
    return f"{loop.__name__}_{_fingerprint([loop, *_helpers(loop)], inline):08x}"


class _Interruptible:
    """A compiled loop that lets an interrupt through as what it is, while numba compiles it too."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self._loop(*arguments)
        except SystemError as error:  # numba's own C code makes this of any exception amid its work
            cause: BaseException | None = error
            while isinstance(cause, SystemError):
                cause = cause.__cause__ or cause.__context__
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            raise

    @property
    def dispatcher(self) -> Any:
        """What another loop calls."""
        return self._loop

    @property
    def stats(self) -> Any:
        """What numba found on disk."""
        return self._loop.stats


def _copy(function: FunctionType, globals_: dict[str, Any]) -> FunctionType:
    copy = FunctionType(function.__code__, globals_, function.__name__, function.__defaults__)
    copy.__module__ = function.__module__
    return copy


def _helpers(loop: Any) -> Iterator[Any]:
    """The functions of the same file that a function calls, and those that these call."""
    waiting, seen = [loop], {loop}
    while waiting:
        function = waiting.pop()
        for name in function.__code__.co_names:
            found = function.__globals__.get(name)
            if inspect.isfunction(found) and found.__module__ == loop.__module__ and found not in seen:
                seen.add(found)
                waiting.append(found)
                yield found


def _kernels(functions: list[Any]) -> list[tuple[str, CompiledLoop]]:
    """The kernels that functions call, by the names that they call them by."""
    found = [(name, function.__globals__.get(name)) for function in functions for name in function.__code__.co_names]
    return [(name, value) for name, value in found if isinstance(value, CompiledLoop)]


def _fingerprint(functions: list[Any], inline: bool) -> int:
    """A checksum of what numba compiles in without looking at it again: global numbers, options, other kernels."""
    found = [(name, function.__globals__.get(name)) for function in functions for name in function.__code__.co_names]
    numbers = [(name, value) for name, value in found if isinstance(value, int | float)]
    kernels = [kernel for _, kernel in _kernels(functions)]
    called = [
        (_fingerprint([k.loop, *_helpers(k.loop)], k.inline), zlib.crc32(Path(inspect.getfile(k.loop)).read_bytes()))
        for k in kernels
    ]
    return zlib.crc32(repr((OPTIONS, inline, numbers, called)).encode())
