"""Signals while Ray starts are the run's."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import ray

from ludus.contrib.ray import ray_session


def test_a_sigterm_while_ray_starts_is_not_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own handler would end the process with exit code 15 and no word."""
    came: list[int] = []
    taking = ray._private.utils.set_sigterm_handler
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))

    def init(**options: Any) -> None:
        ray._private.utils.set_sigterm_handler(lambda number, frame: None)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ray, "init", init)
    try:
        ray_session._init(True)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM, signal.SIGTERM]
    assert ray._private.utils.set_sigterm_handler is taking
