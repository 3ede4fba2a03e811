"""What is said of trainings that go wrong, and that nothing is said of healthy ones. Curves are made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ludus.core.recorders import points
from ludus.core.types import Curve
from ludus.training.diagnosis import TrainingRecord, diagnose, largest_entropy

N = 40  # iterations
TIME = np.linspace(0, 1, N)


def curve(returns: Any = 10.0, **metrics: Any) -> Curve:
    """An episode and an update in each iteration. returns, metrics: numbers or [N]."""
    earned = np.broadcast_to(returns, N)
    columns = {name: np.broadcast_to(values, N) for name, values in metrics.items()}
    return points(
        [
            (
                dict.fromkeys(("iterations", "env_steps", "decisions", "episodes", "samples", "updates"), k + 1),
                float(k),
                earned[k : k + 1].astype(float),
                np.ones(1, np.int32),
                {name: float(values[k]) for name, values in columns.items()},
                {},
                (),
            )
            for k in range(N)
        ]
    )


COUNTERS = {"env_steps": 4000, "decisions": 4000, "episodes": 40, "samples": 4000, "updates": 40}
PPO = {"value_loss": 20 * np.exp(-3 * TIME), "entropy": 0.69 - 0.5 * TIME, "kl": 0.01, "policy_loss": -0.01}
HEALTHY = TrainingRecord("response-0-1", "0-1", COUNTERS, curve(10 + 400 * TIME, **PPO), entropy=float(np.log(7)))
DIVERGED = {**PPO, "value_loss": 0.26 * 10.0 ** (7 * TIME)}  # MPE2's simple_adversary with a discount of 1, as seen
FROZEN = {**PPO, "value_loss": 30.0, "kl": 1e-9, "entropy": 1.2}


def kinds(record: TrainingRecord) -> list[str]:
    return [diagnosis.kind for diagnosis in diagnose(record)]


def counted(**counters: int) -> TrainingRecord:
    return replace(HEALTHY, counters={**COUNTERS, **counters})


def measured(returns: Any = 10.0, **metrics: Any) -> TrainingRecord:
    return replace(HEALTHY, curve=curve(returns, **metrics))


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (counted(episodes=0), ["no_episode"]),
        (replace(counted(episodes=0), over=False, truncated=16), ["no_episode"]),
        (counted(updates=0), ["no_update"]),
        (counted(updates=4), ["few_updates"]),
        (measured(15 - 20 * TIME, **DIVERGED), ["value_loss"]),
        (measured(-1000.0, critic_loss=10.0 ** (10 * TIME)), ["value_loss"]),
        (measured(**FROZEN), ["frozen_policy"]),
        (replace(measured(**{**FROZEN, "entropy": -3.0}), entropy=None), ["frozen_policy"]),
        (replace(measured(**{**PPO, "entropy": 1e-5}), warm="0-0"), ["low_entropy"]),
        (replace(measured(**{**PPO, "entropy": 0.0113}), warm="0-3"), ["low_entropy"]),  # a sealed-bid auction, as seen
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_thing_that_is_wrong_is_named(record: TrainingRecord, found: list[str]) -> None:
    assert kinds(record) == found


@pytest.mark.parametrize(
    "record",
    [
        HEALTHY,
        TrainingRecord("response-0-1", "0-1", {}, curve()),  # computed
        replace(counted(episodes=0), over=False),  # the first episode may be long
        replace(counted(updates=0), over=False),
        replace(counted(updates=4), over=False),
        replace(counted(updates=4), limited=True),
        replace(counted(updates=4), goes_on=True),
        counted(updates=5),
        measured(10 + 400 * TIME, value_loss=1 + 3000 * TIME),  # CartPole: the loss grows with what is earned
        measured(np.sign(np.sin(30 * TIME)), value_loss=1e-4 + 0.9 * TIME),  # a prize that was long in coming
        measured(-1500 + 1300 * TIME, critic_loss=1e-3 + 50 * TIME, entropy=-2.0 * TIME),  # Pendulum, by SAC
        measured(loss=-2.0 - TIME),  # with a part that rewards entropy
        measured(**{**FROZEN, "value_loss": 30 * np.exp(-3 * TIME)}),  # values are still learned
        measured(**{**FROZEN, "entropy": 0.001}),  # it is certain of what it does
        measured(**{**PPO, "kl": 1e-2 * (1 - TIME) ** 2}),  # a learning rate that falls to 0
        replace(HEALTHY, warm="0-0"),
        replace(measured(**{**PPO, "entropy": 0.06}), warm="0-0"),
        measured(**{**PPO, "entropy": 1e-5}),  # from fresh weights: what it is to do is plain
        replace(measured(**{**PPO, "entropy": -4.0}), warm="0-0", entropy=None),
    ],
)
def test_nothing_is_said_of_what_may_be_right(record: TrainingRecord) -> None:
    assert kinds(record) == []


def test_a_diagnosis_says_what_was_seen_and_what_to_do() -> None:
    (found,) = diagnose(replace(counted(episodes=0, decisions=15_750, env_steps=15_750), num_envs=1, truncated=315))
    assert found.text.startswith(
        "task response-0-1: no episode of policy 0-1 has ended in 15,750 decisions; barriers cut 315 that were open. "
    )
    assert "env.wrappers=[{kind: time_limit, steps: 200}]" in found.text
    (found,) = diagnose(replace(counted(episodes=0, decisions=5120, env_steps=5120), num_envs=1024))
    assert "in 5,120 decisions, 5 steps in each of 1,024 environments. " in found.text
    (found,) = diagnose(measured(15 - 20 * TIME, **DIVERGED))
    assert "of policy 0-1 grew from 0.49 to 1.4e+06, far above what episodes return" in found.text


@pytest.mark.parametrize(
    ("space", "entropy"),
    [
        (spaces.Discrete(7), 1.9459),
        (spaces.MultiDiscrete([2, 3]), 1.7918),
        (spaces.MultiBinary(3), 2.0794),
        (spaces.Box(0, 1, (2,)), None),
    ],
)
def test_the_entropy_of_uniform_play(space: Any, entropy: float | None) -> None:
    """The logarithms of 7, 6 and 8."""
    assert largest_entropy(space) == (None if entropy is None else pytest.approx(entropy, abs=1e-4))
