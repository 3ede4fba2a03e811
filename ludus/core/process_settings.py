"""What code of the user's, an environment above all, sets for the whole process: kept apart from what Ludus works with.

    before = enter() -> what such code left the last time is set again -> the code runs -> leave(before): Ludus's own is set again

An environment may change the working directory, torch's default dtype or gradients: it finds them changed in its next step, and nobody
else does. What it sets for things that it does not need later (signals, warnings, threads …) is put back, and stays so.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

__all__ = ["EVERYTHING", "enter", "leave", "standard_settings", "users_code"]

Values = Mapping[str, Any]
"""Settings by name."""


class _Setting(NamedTuple):
    """lasting: code that set it finds it so again. fresh: what it is where torch has just been loaded; None: as it was then."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    lasting: bool = False
    fresh: Callable[[], Any] | None = None


class _Absent:
    """What is set in torch where torch is not loaded."""


_ABSENT = _Absent()
_modules = sys.modules


def _of_torch(
    read: Callable[[Any], Any],
    write: Callable[[Any, Any], None],
    *,
    fresh: Callable[[Any], Any] | None = None,
    lasting: bool = False,
) -> _Setting:
    def now() -> Any:
        torch = _modules.get("torch")
        return _ABSENT if torch is None or not hasattr(torch, "get_default_dtype") else read(torch)

    return _Setting(
        now,
        lambda value: write(_modules["torch"], value),
        lasting,
        None if fresh is None else lambda: fresh(_modules["torch"]),
    )


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was deleted
        return None


def _go_to(directory: str | None) -> None:
    if directory is not None and os.path.isdir(directory):
        os.chdir(directory)


def _signals() -> Any:
    """Handlers that Python can put back; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    held = ((number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM))
    return tuple((number, handler) for number, handler in held if handler is not None)


def _handle(handlers: Any) -> None:
    for number, handler in handlers:
        signal.signal(number, handler)


def _filters() -> Any:
    """Those that are for all warnings."""
    return tuple(entry for entry in warnings.filters if entry[1] is None and entry[2] is Warning and entry[3] is None)


def _filter(entries: Any) -> None:
    rest = [entry for entry in warnings.filters if entry not in _filters() or entry in entries]
    warnings.filters[:] = [*(entry for entry in entries if entry not in rest), *rest]  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


_ERRORS: Any = getattr(getattr(getattr(np, "_core", None), "umath", None), "_extobj_contextvar", None)
"""Where NumPy keeps what `np.seterr` sets; reading that with `np.geterr` takes longer than a step may."""


_read_errors: Callable[[], Any] = _ERRORS.get if _ERRORS is not None else np.geterr


def _set_errors(value: Any) -> None:
    np.seterr(**value)


def _determinism(torch: Any) -> Any:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _cudnn(torch: Any) -> Any:
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic


def _set_cudnn(torch: Any, value: Any) -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = value


def _set_device(torch: Any, value: Any) -> None:
    torch.set_default_device(None if value == torch.device("cpu") else value)  # a default costs time with each call


_SETTINGS: Mapping[str, _Setting] = {
    "dtype": _of_torch(
        lambda torch: torch.get_default_dtype(),
        lambda torch, value: torch.set_default_dtype(value),
        fresh=lambda torch: torch.float32,
        lasting=True,
    ),
    "gradients": _of_torch(
        lambda torch: torch.is_grad_enabled(),
        lambda torch, value: torch.set_grad_enabled(value),
        fresh=lambda _: True,
        lasting=True,
    ),
    "errors": _Setting(_read_errors, _ERRORS.set if _ERRORS is not None else _set_errors, lasting=True),
    "directory": _Setting(_directory, _go_to, lasting=True),
    "device": _of_torch(
        lambda torch: torch.get_default_device(), _set_device, fresh=lambda torch: torch.device("cpu"), lasting=True
    ),
    "determinism": _of_torch(
        _determinism,
        lambda torch, value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        fresh=lambda _: (False, False),
    ),
    "cudnn": _of_torch(_cudnn, _set_cudnn),
    "precision": _of_torch(
        lambda torch: torch.get_float32_matmul_precision(),
        lambda torch, value: torch.set_float32_matmul_precision(value),
        fresh=lambda _: "highest",
    ),
    "anomalies": _of_torch(
        lambda torch: torch.is_anomaly_enabled(),
        lambda torch, value: torch.autograd.set_detect_anomaly(value),
        fresh=lambda _: False,
    ),
    "threads": _of_torch(lambda torch: torch.get_num_threads(), lambda torch, value: torch.set_num_threads(value)),
    "timeout": _Setting(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "signals": _Setting(_signals, _handle),
    "warnings": _Setting(_filters, _filter),
}
STEP = ("dtype", "gradients", "errors")
"""What is looked at after each step: that which the next update of a learner would trip over."""
EVERYTHING = tuple(_SETTINGS)

_settings_of_code: dict[str, Any] = {}
"""What such code has set, where that is not what Ludus has."""


Quick: TypeAlias = tuple[Any, Any, Any]
"""Of the settings in `STEP`, where nothing was ever changed."""


def enter(names: tuple[str, ...] = STEP) -> Values | Quick:
    """Begin with code of the user's.

    Args:
        names: Of the settings that are looked at when it is done, besides those that it has changed before. `STEP` takes half a
            microsecond, and is looked at after each step of a vector; in the first one after `users_code`, where environments make what
            they did not make before, and seldom after it, everything is.

    Returns:
        What Ludus has, for `leave`.
    """
    if names is STEP and not _home.steps % _RARELY:
        names = EVERYTHING
    if not _settings_of_code:
        return _quick() if names is STEP else {name: _SETTINGS[name].read() for name in names}
    before = {name: _SETTINGS[name].read() for name in (*names, *_settings_of_code)}
    for name, value in _settings_of_code.items():
        _write(name, value)
    return before


def leave(before: Values | Quick) -> None:
    """The code is done: set again what Ludus had, and keep what the code set, for the next time."""
    if before.__class__ is not tuple or before != _quick():
        for name, former in before.items() if isinstance(before, Mapping) else zip(STEP, before, strict=True):
            now = _SETTINGS[name].read()
            if now is not former or name in _settings_of_code:
                _put_back(name, former, now)
    _home.steps += 1
    if not _home.steps % _SELDOM:
        _home.look()


_SELDOM = 64  # steps, between two looks at the directory
_RARELY = 1024  # and at everything, which takes 70 microseconds


class _Home:
    """The working directory of a run that this process drives, and which nobody but code of the user's leaves. Asking the system for it
    takes longer than a step may, so that it is looked at seldom.

    directory: None while there is no run. steps: that were made since `users_code` ran.
    """

    def __init__(self) -> None:
        self.directory: str | None = None
        self.steps = 0

    def look(self) -> None:
        """Go back to it."""
        if self.directory is not None and (now := _directory()) != self.directory:
            _put_back("directory", self.directory, now)


_home = _Home()


def _quick() -> Quick:
    if not _OF_TORCH:
        torch = _modules.get("torch")
        if torch is None or not hasattr(torch, "get_default_dtype"):
            return _ABSENT, _ABSENT, _read_errors()
        _OF_TORCH.extend((torch.get_default_dtype, torch.is_grad_enabled))
    dtype, gradients = _OF_TORCH
    return dtype(), gradients(), _read_errors()


_OF_TORCH: list[Callable[[], Any]] = []  # once it is loaded: finding them again takes as long as calling them


def _put_back(name: str, former: Any, now: Any) -> None:
    setting = _SETTINGS[name]
    if former is _ABSENT and now is not _ABSENT:
        former = now if setting.fresh is None else setting.fresh()
    if now == former:
        _settings_of_code.pop(name, None)
        return
    if setting.lasting:
        _settings_of_code[name] = now
    _write(name, former)


def _write(name: str, value: Any) -> None:
    if value is not _ABSENT:
        _SETTINGS[name].write(value)


@contextmanager
def users_code() -> Iterator[None]:
    """While this is open, code of the user's runs, and everything is looked at."""
    _home.look()  # what a step has left
    before = enter(EVERYTHING)
    try:
        yield
    finally:
        leave(before)
        _home.look()
        _home.steps = 0


_USUAL = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}  # NumPy's own


@contextmanager
def standard_settings() -> Iterator[None]:
    """While this is open, Ludus has what it computes with: float32, gradients, the CPU where no device is named, and NumPy's own way with
    overflows; and it stays in its working directory. What the caller had set is set for environments, and comes back at the end, whatever
    these have left behind."""
    before = {name: _SETTINGS[name].read() for name in ("dtype", "gradients", "device", "errors")}
    rest = {name: setting.read() for name, setting in _SETTINGS.items() if not setting.lasting}
    usual = {name: _SETTINGS[name].fresh for name in before}
    loaded = {name: fresh for name, fresh in usual.items() if fresh is not None and before[name] is not _ABSENT}
    other = [name for name, fresh in loaded.items() if before[name] != fresh()]
    for name in other:
        _settings_of_code.setdefault(name, before[name])
        _write(name, usual[name]())  # type: ignore[misc]
    if np.geterr() != _USUAL:
        other.append("errors")
        _settings_of_code.setdefault("errors", before["errors"])
    outer, _home.directory = _home.directory, _directory()
    try:
        with np.errstate(**_USUAL):  # type: ignore[arg-type]
            yield
    finally:
        _home.look()
        _home.directory = outer
        for name, former in rest.items():
            if (now := _SETTINGS[name].read()) != former:
                _put_back(name, former, now)
        for name in other:
            _write(name, before[name])
            if _settings_of_code.get(name) == before[name]:
                del _settings_of_code[name]
