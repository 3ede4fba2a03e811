"""Learning from rows of older weights: the slope of the weights that acted, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import gradients_lag


class Halving:
    """Weights w of the loss w² / 4, whose slope is w / 2: a step of rate 1 takes it off. It counts its steps."""

    def __init__(self, w: float) -> None:
        self._w, self._steps = np.array([w]), 0

    def state_dict(self) -> dict[str, Any]:
        return {"weights": {"w": self._w}, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._w, self._steps = state["weights"]["w"], state["steps"]

    def update(self, batch: None) -> None:
        self._w, self._steps = self._w - 0.5 * self._w, self._steps + 1


def test_the_slope_of_the_weights_that_acted_moves_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 10, by the slope at 4, which is 2; and once more, by that at 8 itself, which is 4."""
    monkeypatch.setattr(gradients_lag, "sample", lambda learner, trajectories: None)
    learner: Any = Halving(10.0)
    gradients_lag.stale_update(learner, {"w": np.array([4.0])}, None)  # type: ignore[arg-type]
    assert learner.state_dict() == {"weights": {"w": [8.0]}, "steps": 1}
    gradients_lag.stale_update(learner, {"w": np.array([8.0])}, None)  # type: ignore[arg-type]
    assert learner.state_dict() == {"weights": {"w": [4.0]}, "steps": 2}
