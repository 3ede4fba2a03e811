"""Actor-critic algorithms learn: small networks, short runs, fixed seeds, through whole runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ludus.driver.runner import run
from ludus.driver.scenario_files import load_scenario

SMALL = {"hidden": [64, 64], "batch": 128, "rollout": 16, "learning_rate": 2e-3, "start_decisions": 500}

MPO = {"target_period": 25, "epsilon_std": 1e-3, "alpha_std": 10.0, "epsilon_policy": 0.02, "temperature": 3.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "decisions", "algorithm", "least"),
    [
        ("pendulum", 6000, {"kind": "ddpg"}, -400.0),
        ("pendulum", 7500, {"kind": "td3", "updates_per_decision": 2.0, "noise": 0.2}, -400.0),
        ("pendulum", 7500, {"kind": "sac"}, -400.0),
        ("cartpole", 10000, {"kind": "sac_discrete", "learning_rate": 1e-3, "updates_per_decision": 0.5}, 150.0),
        ("pendulum", 4500, {"kind": "mpo", **MPO, "samples": 8, "target_samples": 2, "batch": 64}, -400.0),
        ("cartpole", 9000, {"kind": "mpo", **MPO, "updates_per_decision": 0.5}, 150.0),
        ("pendulum-apex", 5000, {"kind": "apex_ddpg", "rollout": 80}, -400.0),
        (
            "cartpole-apex",
            30000,
            {
                "kind": "apex",
                "start_decisions": None,
                "updates_per_decision": 0.25,
                "target_period": 100,
                "rollout": 64,
            },
            150.0,
        ),
    ],
    ids=["ddpg", "td3", "sac", "sac-discrete", "mpo", "mpo-discrete", "apex-ddpg", "apex"],
)
def test_it_learns(preset: str, decisions: int, algorithm: dict[str, object], least: float, tmp_path: Path) -> None:
    """Greedy, over 20 episodes. Uniform play earns about -1200 on Pendulum and about 20 on CartPole. With these budgets six seeds of six of
    DDPG, TD3, SAC, MPO on CartPole and Ape-X pass, and three of three of the others."""
    given = {name: value for name, value in {**SMALL, **algorithm}.items() if value is not None}
    scenario = load_scenario(
        preset, [f"algorithm={given}", f"response.decisions={decisions}", "evaluation.episodes=20"]
    )
    result = run(scenario, run_dir=tmp_path, report=False)
    random, learned = result.payoffs.mean[0]
    assert not np.isnan(random)
    assert learned >= least > random + 100.0
