"""Files of sb3-contrib as agents: deterministic answers are those of `predict`, masks reach MaskablePPO, memory lasts an episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sb3_contrib
from gymnasium import spaces

from tests.agents.agent_games import begun, game, requests
from tests.agents.test_sb3_agents import BOX, Still

CHOICE, SEVERAL, NUMBERS = spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-2, 2, (2,), np.float32)
ROWS = np.random.default_rng(0).uniform(-1, 1, (6, 4)).astype(np.float32)


class Masked(Still):
    """Forbids the second action."""

    def action_masks(self) -> Any:
        """Return which actions are legal."""
        return np.array([True, False, True])


def saved(name: str, action: spaces.Space[Any], folder: Path) -> Any:
    """Save a new model in `folder`, and return it."""
    kind = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    env = (Masked if name == "MaskablePPO" else Still)(BOX, action)
    options = {} if name in ("QRDQN", "TQC", "CrossQ") else {"n_steps": 128 if name == "TRPO" else 16}
    model = getattr(sb3_contrib, name)(kind, env, device="cpu", seed=1, **options)
    model.save(folder / f"{name}.zip")
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "action"),
    [("QRDQN", CHOICE), ("TRPO", CHOICE), ("TQC", NUMBERS), ("CrossQ", NUMBERS), ("MaskablePPO", CHOICE), ("MaskablePPO", SEVERAL)],
)  # fmt: skip
def test_deterministic_play_is_that_of_predict(name: str, action: spaces.Space[Any], tmp_path: Path) -> None:
    model, of, mask = saved(name, action, tmp_path), game(BOX, action), None
    options: dict[str, Any] = {}
    if name == "MaskablePPO":
        mask = np.array([[1, 0, 1] if action == CHOICE else [1, 0, 1, 0, 1]] * 6, np.bool_)
        options = {"action_masks": mask}
    asked = requests(list(range(6)), mask=mask, of=of)._replace(observation=ROWS)
    expected, _ = model.predict(ROWS, deterministic=True, **options)
    with begun(f"sb3:{tmp_path}/{name}.zip,deterministic=true", tmp_path, of) as agent:
        np.testing.assert_allclose(np.array(agent.act(asked)), expected, rtol=1e-5, atol=1e-6)
    drawn = []
    for _ in range(2):
        with begun(f"sb3:{tmp_path}/{name}.zip", tmp_path, of) as agent:
            drawn.append(np.array(agent.act(asked)))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    if mask is not None and action == CHOICE:
        assert set(drawn[0].tolist()) <= {0, 2}


@pytest.mark.slow
@pytest.mark.parametrize("action", [CHOICE, NUMBERS], ids=["choice", "numbers"])
def test_memory_lasts_for_an_episode(action: spaces.Space[Any], tmp_path: Path) -> None:
    model, of = saved("RecurrentPPO", action, tmp_path), game(BOX, action)
    asked = requests(list(range(6)), mask=None, of=of)
    state: Any = None
    with begun(f"sb3:{tmp_path}/RecurrentPPO.zip,deterministic=true", tmp_path, of) as agent:
        for k in range(6):
            rows, begins = ROWS * np.float32((k + 1) / 3), np.full(6, k == 0)
            expected, state = model.predict(rows, state=state, episode_start=begins, deterministic=True)
            now = asked._replace(observation=rows, seed=asked.seed if k == 0 else np.full(6, -1))
            np.testing.assert_allclose(np.array(agent.act(now)), expected, rtol=1e-4, atol=1e-5)
