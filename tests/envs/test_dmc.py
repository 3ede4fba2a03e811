"""`dmc/…`: the contract, agreement with the suite's own loop, ends, all tasks, and what is refused."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from installed import require
from refusals import Refusal, check_refusals
from zoo_replay import play

from ludus.contrib.envs.dmc import ControlTask
from ludus.core.errors import ConfigError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env
from ludus.testing.ledger import Actor

require("dm_control")

SHORT = {"time_limit": 0.1}  # 5 decisions of 0.02 s


@pytest.mark.slow
def test_dmc_satisfies_vector_env_contract() -> None:
    check_env(lambda n: make_env("dmc/point_mass-easy", num_envs=n, **SHORT), num_envs=2, steps=10)


@pytest.mark.slow
def test_the_suites_own_loop_gives_the_same() -> None:
    """Observations, rewards and ends of three episodes, for the same seeds and actions."""
    from dm_control import suite

    env = make_env("dmc/reacher-easy", num_envs=1, **SHORT)
    assert env.spec.max_decisions == 5
    assert env.spec.agents[0].observation.shape == (6,)  # position, to_target, velocity, two numbers each
    assert env.spec.agents[0].action.low.tolist() == [-1, -1]  # type: ignore[attr-defined]
    for seed, played in play(env, episodes=3):
        bare = suite.load("reacher", "easy", task_kwargs={"random": seed, **SHORT})
        step, total = bare.reset(), 0.0
        for ((_, seen, action),) in played.steps:
            np.testing.assert_array_equal(seen, np.concatenate(list(step.observation.values())).astype(np.float32))
            step = bare.step(action)
            total += step.reward
        assert step.last()
        np.testing.assert_allclose(played.returns, [total], rtol=1e-6)
        np.testing.assert_array_equal(
            played.final["agent"], np.concatenate(list(step.observation.values())).astype(np.float32)
        )


def test_time_that_is_up_is_no_end() -> None:
    env = make_env("dmc/pendulum-swingup", num_envs=1, time_limit=0.04)  # 2 decisions
    timestep = env.reset(np.array([1], np.uint64))
    for _ in range(2):
        timestep = env.step((np.zeros((1, 1), np.float32),))
    assert timestep.ended[0].terminated.tolist() == [False]


class Told:
    """An environment that answers with the steps that it was given."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.discount: float | None = None
        self.task = SimpleNamespace(random=SimpleNamespace(seed=self.seeded), get_termination=lambda _: self.discount)
        self.physics = None

    def seeded(self, seed: int) -> None:
        self.seed = seed

    def reset(self) -> Any:
        return SimpleNamespace(observation=OrderedDict(a=np.array([[1.0, 2.0]]), b=3.0))

    def step(self, action: Any) -> Any:
        return self.steps.pop(0)


def test_ends_by_their_discount() -> None:
    shown = OrderedDict(a=np.array([[4.0, 5.0]]), b=6.0)
    told = Told((1, 0.5, 1.0, shown), (2, 0.25, 1.0, shown), (2, 0.25, 0.0, shown), (0, None, None, shown))
    task = ControlTask(told, "dmc/told")
    happened = task.reset(2**31 + 7)
    assert told.seed == 7
    assert happened.due[0][1].tolist() == [1, 2, 3]
    assert [(task.advance(None)[1:3]) for _ in range(3)] == [(0.5, GOES_ON), (0.25, TRUNCATED), (0.25, TERMINATED)]
    with pytest.raises(ContractViolation, match="began a new episode"):
        task.advance(None)
    told.steps = [(2, 0.25, 0.0, shown)]
    ended = task.step([None])
    assert (ended.over, ended.reward, ended.gone[0][1].tolist()) == (TERMINATED, [(0, 0.25)], [4, 5, 6])
    for told.discount, how in ((0.0, TERMINATED), (1.0, TRUNCATED)):  # what the task says in the last permitted step
        told.steps = [(2, 0.25, 1.0, shown)]
        assert task.advance(None)[2] == how


def test_the_suite_does_not_ask_the_task_in_the_last_permitted_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why Ludus asks it. If this fails, dm_control has changed, and `ControlTask` may be simpler."""
    from ludus.contrib.envs.dmc import _suite  # with what dm_control lacks of the present MuJoCo

    env = _suite().load("pendulum", "swingup", task_kwargs={"time_limit": 0.02, "random": 1})
    monkeypatch.setattr(env.task, "get_termination", lambda _: 0.0)
    env.reset()
    last = env.step(np.zeros(1))
    assert (last.last(), last.discount) == (True, 1.0)


REFUSED: list[Refusal] = [
    ("dmc/cheetah-runn", {}, UnknownName, "did you mean 'cheetah-run'"),
    ("dmc/cheetah-run", {"time_limitt": 3}, ConfigError, "no option 'time_limitt'; did you mean 'time_limit'"),
    ("dmc/cheetah-run", {"time_limit": 0}, ConfigError, "time_limit=0 was given; expected a number of seconds above 0"),
    ("dmc/cheetah-run", {"random": 3}, ConfigError, "no option 'random'"),
]


def test_dmc_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)


def test_motors_without_limits_and_longer_decisions() -> None:
    endless = make_env("dmc/lqr-lqr_2_1", num_envs=1).spec
    assert endless.agents[0].action.high.tolist() == [np.inf]  # type: ignore[attr-defined]
    assert endless.max_decisions is None
    assert make_env("dmc/pendulum-swingup", num_envs=1, control_timestep=0.1).spec.max_decisions == 200


def test_a_task_that_draws_its_springs_is_the_same_everywhere() -> None:
    def springs(seed: int) -> list[list[float]]:
        env = make_env("dmc/lqr-lqr_2_1", num_envs=2)
        env.reset(keys(seed, "dmc", count=2))
        return [env.game(e).physics.model.jnt_stiffness.tolist() for e in range(2)]  # type: ignore[attr-defined]

    (first, second), others = springs(1), springs(2)
    assert len(first) == 2
    assert others == [first, second] == [first, first]


@pytest.mark.long
def test_every_task_plays_the_same_under_the_same_seed() -> None:
    ids = list_envs("dmc")
    assert len(ids) == 51
    for id in ids:
        if id != "dmc/quadruped-escape":  # draws its ground
            seeds = keys(1, "dmc", count=1)
            first, again = (_rewards(make_env(id, num_envs=1), seeds) for _ in range(2))
            assert first == again, id


def _rewards(env: Any, seeds: Any) -> list[list[float]]:
    actor, timestep, out = Actor(env.spec, seeds), env.reset(seeds), []
    for _ in range(5):
        timestep = env.step(actor.actions(timestep))
        out.append(timestep.due[0].reward.tolist() + timestep.due[0].observation[0].tolist())
    return out
