"""Files of Stable-Baselines3 as agents: they play what their own `predict` plays, legally, and say where they do not fit."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces

from ludus.contrib.agents.agent_models.common import Refused, choose, restricted
from ludus.contrib.agents.agent_models.sb3_model import algorithm_of
from ludus.core.errors import PolicyError
from ludus.policies.agents import AgentGame, count_faults
from tests.agents.agent_games import begun, game, requests

BOX = spaces.Box(-1, 1, (4,), np.float32)


@pytest.mark.parametrize(
    ("data", "algorithm"),
    [
        ({"policy_class": {"__module__": "stable_baselines3.common.policies"}, "clip_range": 0.2}, "PPO"),
        ({"policy_class": {"__module__": "stable_baselines3.common.policies"}, "gae_lambda": 1.0}, "A2C"),
        ({"policy_class": {"__module__": "stable_baselines3.dqn.policies"}}, "DQN"),
        ({"policy_class": {"__module__": "stable_baselines3.td3.policies"}, "policy_delay": 2}, "TD3"),
        ({"policy_class": {"__module__": "stable_baselines3.td3.policies"}, "policy_delay": 1}, "DDPG"),
        ({"policy_class": {"__module__": "sb3_contrib.common.maskable.policies"}, "clip_range": 0.2}, "MaskablePPO"),
        ({"policy_class": {"__module__": "sb3_contrib.common.recurrent.policies"}, "clip_range": 0.2}, "RecurrentPPO"),
    ],
)
def test_a_file_tells_its_algorithm(data: dict[str, Any], algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(data))
    assert algorithm_of(str(path)) == algorithm


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with pytest.raises(Refused, match="there is no file"):
        algorithm_of(str(path))
    path.write_text("nothing")
    with pytest.raises(Refused, match=r"model\.save"):
        algorithm_of(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", "{}")
    with pytest.raises(Refused, match="algorithm=NAME"):
        algorithm_of(str(path))


def test_probabilities_are_restricted_and_drawn() -> None:
    probs = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    mask = np.array([[False, True, True], [False, True, True]])
    legal = restricted(probs, mask)
    np.testing.assert_allclose(legal, [[0, 0.5, 0.5], [0, 0.5, 0.5]])
    assert choose(legal, np.array([0.1, 0.9])).tolist() == [1, 2]
    assert choose(probs, None).tolist() == [0, 0]
    assert choose(np.array([[0.3, 0.7, 0.0]]), np.array([1.0])).tolist() == [1]


class Still(Env[Any, Any]):
    """An environment of these spaces in which nothing happens."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, True, False, {}


def saved(name: str, folder: Path, observation: spaces.Space[Any], action: spaces.Space[Any], **options: Any) -> Any:
    """Save a new model in `folder`, and return it as Stable-Baselines3 has it."""
    import stable_baselines3

    kind = "MultiInputPolicy" if isinstance(observation, spaces.Dict) else "MlpPolicy"
    small = {"net_arch": [8]}
    model = getattr(stable_baselines3, name)(
        kind, Still(observation, action), policy_kwargs=small, seed=1, device="cpu", **options
    )
    model.save(folder / f"{name}.zip")
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("PPO", spaces.Discrete(3)),
        ("A2C", spaces.MultiDiscrete([2, 3])),
        ("PPO", spaces.MultiBinary(3)),
        ("A2C", spaces.Box(-2, 2, (2,), np.float32)),
        ("DQN", spaces.Discrete(3)),
        ("SAC", spaces.Box(-2, 2, (2,), np.float32)),
        ("TD3", spaces.Box(-2, 2, (2,), np.float32)),
        ("DDPG", spaces.Box(-2, 2, (2,), np.float32)),
    ],
)
def test_deterministic_play_is_that_of_predict(name: str, action: spaces.Space[Any], tmp_path: Path) -> None:
    model, of = saved(name, tmp_path, BOX, action), game(BOX, action)
    rows = np.random.default_rng(0).uniform(-1, 1, (6, 4)).astype(np.float32)
    wanted, _ = model.predict(rows, deterministic=True)
    asked = requests(list(range(6)), mask=None, of=of)._replace(observation=rows)
    with begun(f"sb3:{tmp_path}/{name}.zip,deterministic=true", tmp_path, of) as agent:
        np.testing.assert_allclose(np.array(agent.act(asked)), wanted, rtol=1e-5, atol=1e-6)
    drawn = []
    for text in (f"sb3:{tmp_path}/{name}.zip", f"sb3:{tmp_path}/{name}.zip,illegal=error"):
        with begun(text, tmp_path, of) as agent:
            drawn.append(np.array(agent.act(asked)))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert all(action.contains(np.asarray(one, action.dtype)) for one in drawn[0])


@pytest.mark.slow
def test_draws_have_the_policys_probabilities_and_masks_are_kept(tmp_path: Path) -> None:
    import torch

    model = saved("PPO", tmp_path, BOX, spaces.Discrete(3))
    n = 4000
    probs = model.policy.get_distribution(torch.zeros(1, 4)).distribution.probs.detach().numpy()[0]
    with begun(f"sb3:{tmp_path}/PPO.zip", tmp_path) as agent:
        free = np.array(agent.act(requests(list(range(n)), mask=None)))
        masked = np.array(agent.act(requests(list(range(n)))))
    np.testing.assert_allclose(np.bincount(free, minlength=3) / n, probs, atol=0.04)
    legal = probs * [1, 0, 1] / probs[[0, 2]].sum()
    np.testing.assert_allclose(np.bincount(masked, minlength=3) / n, legal, atol=0.04)
    with begun(f"sb3:{tmp_path}/PPO.zip,masks=false", tmp_path / "agents") as agent:
        assert set(map(int, agent.act(requests(list(range(n)))))) == {0, 2}
    (counts,) = count_faults(tmp_path).values()
    assert abs(counts["illegal"] / n - probs[1]) < 0.04


@pytest.mark.slow
def test_an_own_python_plays_the_same(tmp_path: Path) -> None:
    import sys

    saved("PPO", tmp_path, BOX, spaces.Discrete(3))
    path, played = f"sb3:{tmp_path}/PPO.zip", []
    for text in (path, f"{path},python={sys.executable}"):
        with begun(text, tmp_path) as agent:
            rows = [requests([3, 4, 5], value=0.3), requests([-1, 6, -1], value=-0.5), requests([-1, -1, -1])]
            played.append([[int(action) for action in agent.act(row)] for row in rows])
    assert played[0] == played[1]


@pytest.mark.slow
def test_other_observation_spaces_are_unflattened(tmp_path: Path) -> None:
    for name, space in (("PPO", spaces.Discrete(4)), ("A2C", spaces.Dict({"a": spaces.Discrete(2), "b": BOX}))):
        model = saved(name, tmp_path, space, spaces.Discrete(3))
        value = space.sample()
        flat = spaces.flatten_space(space)
        of = game(spaces.Box(0, 1, flat.shape, np.float32))
        row = requests([1], mask=None, of=of)._replace(
            observation=spaces.flatten(space, value)[None].astype(np.float32)
        )
        with begun(f"sb3:{tmp_path}/{name}.zip,deterministic=true", tmp_path, of) as agent:
            assert int(agent.act(row)[0]) == int(model.predict(value, deterministic=True)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "message"),
    [
        (game(spaces.Box(-1, 1, (5,), np.float32)), r"observations of shape \(4,\), and player 0 .* shape \(5,\)"),
        (game(spaces.Box(0, 255, (4,), np.uint8)), "observations of float32, and those of test/game are uint8"),
        (game(BOX, spaces.Discrete(4)), "discrete 3, and player 0 of test/game has discrete 4"),
        (game(BOX, spaces.MultiDiscrete([3, 3])), "discrete 3, and player 0 of test/game has multi_discrete"),
    ],
)
def test_spaces_that_differ(of: AgentGame, message: str, tmp_path: Path) -> None:
    saved("PPO", tmp_path, BOX, spaces.Discrete(3))
    with pytest.raises(PolicyError, match=message), begun(f"sb3:{tmp_path}/PPO.zip", tmp_path, of):
        pass


@pytest.mark.slow
def test_observations_are_normalized_as_the_training_had_them(tmp_path: Path) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    model = saved("PPO", tmp_path, BOX, spaces.Discrete(3))
    norm = VecNormalize(DummyVecEnv([lambda: Still(BOX, spaces.Discrete(3))]))
    for _ in range(20):
        norm.reset()
    norm.save(str(tmp_path / "norm.pkl"))
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)
    wanted, _ = model.predict(norm.normalize_obs(rows), deterministic=True)
    asked = requests(list(range(50)), mask=None)._replace(observation=rows)
    text = f"sb3:{tmp_path}/PPO.zip,deterministic=true,normalize={tmp_path}/norm.pkl"
    with begun(text, tmp_path) as agent:
        assert [int(action) for action in agent.act(asked)] == wanted.tolist()
