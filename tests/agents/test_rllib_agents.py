"""Checkpoints of RLlib as agents."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ludus.contrib.agents.agent_models.common import Refused
from ludus.contrib.agents.agent_models.rllib_model import _folder
from ludus.core.errors import PolicyError
from tests.agents.agent_games import begun, game, requests

BOX = spaces.Box(-1, 1, (4,), np.float32)


def test_modules_of_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="holds no module of RLlib"):
        _folder(str(tmp_path), "")
    for name in ("main", "rival"):
        (tmp_path / "learner_group" / "learner" / "rl_module" / name).mkdir(parents=True)
        (tmp_path / "learner_group" / "learner" / "rl_module" / name / "module_state.pkl").touch()
        if name == "main":
            assert _folder(str(tmp_path), "").name == "main"
    with pytest.raises(Refused, match="holds the modules main, rival"):
        _folder(str(tmp_path), "")
    assert _folder(str(tmp_path), "rival").name == "rival"
    assert _folder(str(_folder(str(tmp_path), "main")), "").name == "main"


@pytest.mark.slow
@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)])
def test_a_module_plays_its_inference(action: spaces.Space[Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RLlib warns of itself
        from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
        from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
        from ray.rllib.core.rl_module.rl_module import RLModuleSpec

        module = RLModuleSpec(
            module_class=DefaultPPOTorchRLModule,
            observation_space=BOX,
            action_space=action,
            model_config=DefaultModelConfig(fcnet_hiddens=[8]),
        ).build()
        folder = tmp_path / "learner_group" / "learner" / "rl_module" / "default_policy"
        module.save_to_path(folder)
        rows = np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)
        wanted = module.forward_inference({"obs": torch.from_numpy(rows)})["action_dist_inputs"].detach().numpy()
        of = game(BOX, action)
        asked = requests(list(range(50)), mask=None, of=of)._replace(observation=rows)
        with begun(f"rllib:{tmp_path},deterministic=true", tmp_path, of) as agent:
            played = np.array(agent.act(asked))
        drawn = []
        for _ in range(2):
            with begun(f"rllib:{tmp_path}", tmp_path, of) as agent:
                drawn.append(np.array(agent.act(asked)))
        other = game(spaces.Box(-1, 1, (5,), np.float32), action)
        with pytest.raises(PolicyError, match=r"shape \(4,\)"), begun(f"rllib:{tmp_path}", tmp_path, other):
            pass
    np.testing.assert_array_equal(drawn[0], drawn[1])
    if isinstance(action, spaces.Discrete):
        assert played.tolist() == wanted.argmax(axis=1).tolist()
        assert set(drawn[0].tolist()) == {0, 1, 2}
    else:
        np.testing.assert_allclose(played, 2 * np.clip(wanted[:, :2], -1, 1), rtol=1e-5, atol=1e-6)
