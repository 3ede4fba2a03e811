"""What code of the user's sets for the whole process stays with that code."""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.core import process_settings
from ludus.core.process_settings import enter, leave, standard_settings, users_code


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that other tests have left, and nothing that is left to them."""
    monkeypatch.setattr(process_settings, "_settings_of_code", {})
    before = enter(process_settings.EVERYTHING)
    yield
    process_settings._settings_of_code.clear()
    leave(before)


def filters() -> Any:
    return [entry[0] for entry in warnings.filters if entry[2] is Warning and entry[1] is None and entry[3] is None]


# what changes it, what it is now; whether the code that set it finds it so again
LASTING: dict[str, tuple[Callable[[Path], Any], Callable[[], Any]]] = {
    "dtype": (lambda _: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "gradients": (lambda _: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "errors": (lambda _: np.seterr(all="raise"), np.geterr),
    "directory": (os.chdir, os.getcwd),
    "device": (lambda _: torch.set_default_device("meta"), torch.get_default_device),
}
PUT_BACK: dict[str, tuple[Callable[[Path], Any], Callable[[], Any]]] = {
    "determinism": (
        lambda _: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.are_deterministic_algorithms_enabled,
    ),
    "precision": (lambda _: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "anomalies": (lambda _: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled),
    "threads": (lambda _: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "timeout": (lambda _: socket.setdefaulttimeout(7), socket.getdefaulttimeout),
    "signals": (
        lambda _: signal.signal(signal.SIGTERM, lambda *_: None),
        lambda: signal.getsignal(signal.SIGTERM),
    ),
    "warnings": (lambda _: warnings.simplefilter("ignore"), filters),
}


@pytest.mark.parametrize("name", [*LASTING, *PUT_BACK])
def test_each_setting_is_put_back(name: str, tmp_path: Path) -> None:
    change, now = {**LASTING, **PUT_BACK}[name]
    former = now()
    with users_code():
        change(tmp_path)
        latter = now()
        assert latter != former
    assert now() == former
    before = enter()  # a step
    assert now() == (latter if name in LASTING else former)
    leave(before)
    assert now() == former


@pytest.mark.parametrize("name", process_settings.STEP)
def test_settings_changed_by_a_step_are_restored_after_it(name: str, tmp_path: Path) -> None:
    change, now = LASTING[name]
    former = now()
    before = enter()
    change(tmp_path)
    leave(before)
    assert now() == former


@pytest.mark.parametrize("name", [*LASTING, *PUT_BACK])
def test_settings_changed_by_the_first_step_are_restored_after_it(name: str, tmp_path: Path) -> None:
    """Simulators and windows are often made there, and not in a reset."""
    change, now = {**LASTING, **PUT_BACK}[name]
    former = now()
    with users_code():
        pass
    before = enter()
    change(tmp_path)
    leave(before)
    assert now() == former


@pytest.mark.parametrize("name", PUT_BACK)
def test_settings_changed_by_a_later_step_end_with_the_run(name: str, tmp_path: Path) -> None:
    change, now = PUT_BACK[name]
    former = now()
    with standard_settings():
        for step in range(3):
            before = enter()
            if step == 2:
                change(tmp_path)
            leave(before)
    assert now() == former


def test_who_sets_it_back_is_done_with_it(tmp_path: Path) -> None:
    with users_code():
        torch.set_default_dtype(torch.float64)
    before = enter()
    torch.set_default_dtype(torch.float32)
    leave(before)
    assert not process_settings._settings_of_code


def test_it_is_put_back_after_an_error() -> None:
    def raise_it() -> None:
        with users_code():
            torch.set_grad_enabled(False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        raise_it()
    assert torch.is_grad_enabled()


def test_a_setting_of_the_program_stays_its_own() -> None:
    """It is the user's to set between two calls."""
    with users_code():
        torch.set_grad_enabled(False)
    with torch.no_grad():
        before = enter()
        leave(before)
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_other_threads_leave_signals_alone() -> None:
    """Only the main thread may set them."""
    raised: list[BaseException] = []

    def play() -> None:
        try:
            with users_code():
                torch.set_default_dtype(torch.float64)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert not raised
    assert torch.get_default_dtype() is torch.float32


def test_a_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ludus's own was deleted there is nothing to go back to."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with users_code():
        os.chdir(tmp_path)
    assert Path.cwd() == tmp_path


def test_ludus_computes_with_its_own_settings() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    errors = np.geterr()
    np.seterr(all="raise")
    try:
        with standard_settings():
            assert torch.get_default_dtype() is torch.float32
            assert torch.is_grad_enabled()
            assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
            before = enter()  # an environment was written for what the program has set
            assert torch.get_default_dtype() is torch.float64
            assert not torch.is_grad_enabled()
            assert set(np.geterr().values()) == {"raise"}
            leave(before)
            assert torch.get_default_dtype() is torch.float32
        assert torch.get_default_dtype() is torch.float64
        assert not torch.is_grad_enabled()
        assert set(np.geterr().values()) == {"raise"}
        assert not process_settings._settings_of_code
    finally:
        np.seterr(**errors)
