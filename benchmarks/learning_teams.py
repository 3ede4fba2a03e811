"""The tasks of `benchmarks.learning` in which agents cooperate: MPE2's, whose agents are one player. Returns are sums over the agents, as
EPyMARL reports them. Budgets count what all agents do: a step of the environment is a decision of each.
"""

from __future__ import annotations

from typing import Any

from benchmarks.learning_task import LearningTask

EPYMARL = "Papoudakis et al. 2021 (EPyMARL), table 3, after 20M steps"

_SPEAKER_LISTENER: dict[str, Any] = {
    "id": "mpe2/simple_speaker_listener_v4",
    "num_envs": 64,
    "options": {"teams": "one", "state": True},
    "wrappers": ["agent_ids"],
}
_SPREAD = {**_SPEAKER_LISTENER, "id": "mpe2/simple_spread_v3", "num_envs": 8}
_STEPS = 1_000_000


def _spread(kind: str, **options: Any) -> LearningTask:
    """1M steps of three agents, in episodes of 25 steps. The same network, replay and exploration for all three algorithms. With a gamma of
    0.99, QMIX's values grow without end here."""
    common: dict[str, Any] = {
        "rollout": 8, "hidden": [64, 64], "gamma": 0.95, "learning_rate": 5e-4, "capacity": 100_000, "target_period": 200,
        "epsilon": {"start": 1.0, "end": 0.05, "over": 0.3},
    }  # fmt: skip
    keys = {"env": _SPREAD, "oracle": {"kind": kind, **common, **options}}
    return LearningTask(f"spread-{_NAMES[kind]}", keys, _STEPS // 25, unit="episodes", length="L")


_NAMES = {"qmix": "qmix", "vdn": "vdn", "dqn": "iql"}

TEAM_TASKS = (
    LearningTask(
        "speaker-listener-mappo",
        {
            "env": _SPEAKER_LISTENER,
            "oracle": {
                "kind": "mappo", "batch": 3200, "minibatches": 8, "gamma": 0.95, "normalise_observations": True,
                "learning_rate": {"start": 1e-3, "end": 1e-4},
            },
        },
        10 * _STEPS,  # 5M of two agents
        published=-10.68,
        source=EPYMARL,
        length="L",
        points=(2 * _STEPS, 4 * _STEPS),
    ),
    _spread("qmix", normalise_rewards="standardise"),
    _spread("vdn", normalise_rewards="standardise"),
    _spread("dqn"),
)  # fmt: skip
