"""Vectors of Python environments: the contract, rewards between decisions, agents that leave and come back, faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from python_games import Team, Turns, spec

from ludus.core.errors import EnvError
from ludus.core.seeding import keys
from ludus.envs.base import SupportsRender, VectorEnv
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.testing.env import check_env

SEEDS = keys(1, "python_loop", count=2)


def teams(num_envs: int) -> PythonVectorEnv:
    return PythonVectorEnv(Team, num_envs, spec=spec([0, 0, 1]), masked=(False, False))


def turns(num_envs: int) -> PythonVectorEnv:
    return PythonVectorEnv(Turns, num_envs, spec=spec([0, 1]), masked=(True, True))


@pytest.mark.parametrize("make", [teams, turns])
def test_python_games_satisfy_vector_env_contract(make: Callable[[int], VectorEnv]) -> None:
    check_env(make, num_envs=3, steps=60, team="split", early_rewards=True)


def test_rewards_between_own_decisions_are_summed_and_open_decisions_closed() -> None:
    env = turns(2)
    timestep = env.reset(SEEDS)
    assert timestep.due[0].slot.tolist() == [0, 1]
    assert timestep.due[1].slot.tolist() == []
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[True, True, True]] * 2
    actions = np.zeros(2, np.int32), np.empty(0, np.int32)
    for move in range(5):
        timestep = env.step(actions if move % 2 == 0 else actions[::-1])
    # Player 0 moves 1st, 3rd and 5th: +1 -1, +1 -1, +1. Player 1 was paid -1 before its first decision: +1 -1, +1 -1.
    assert timestep.ended[0].reward.tolist() == [1, 1]
    assert timestep.ended[1].reward.tolist() == [0, 0]
    assert timestep.finished.returns.tolist() == [[1, -1], [1, -1]]
    assert timestep.finished.length.tolist() == [5, 5]
    assert timestep.finished.terminated.all()
    assert timestep.due[0].first.all()
    assert not timestep.due[0].reward.any()
    assert timestep.ended[0].observation.tolist() == [[9, 9], [9, 9]]


def test_an_agent_that_leaves_is_closed_and_begins_anew_when_it_comes_back() -> None:
    env = teams(1)
    timestep = env.reset(SEEDS[:1])
    first, ended = [timestep.due[0].first.tolist()], [timestep.ended[0].slot.tolist()]
    for _ in range(4):
        timestep = env.step((np.zeros(len(timestep.due[0].slot), np.int32), np.ones(1, np.int32)))
        first.append(timestep.due[0].first.tolist())
        ended.append(timestep.ended[0].slot.tolist())
    assert first == [[True, True], [False, False], [False], [False], [True, False]]
    assert ended == [[], [], [0], [], []]


def test_render_and_restore() -> None:
    env = turns(2)
    assert isinstance(env, SupportsRender)
    with pytest.raises(EnvError, match="has not been reset"):
        env.render(0)
    env.reset(SEEDS)
    assert env.render(1) == "move 0"
    assert env.snapshot() is None
    with pytest.raises(EnvError, match="cannot be resumed"):
        env.restore(b"")


# ------------------------------------------------------------------------------------------ faults


class Bad(Turns):
    """As `Turns`, but its third step does `fault`."""

    def __init__(self, fault: Callable[[EnvStepResult], EnvStepResult]) -> None:
        super().__init__()
        self.fault = fault

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        happened = super().step(actions)
        return self.fault(happened) if self.t == 3 else happened


def raises(happened: EnvStepResult) -> EnvStepResult:
    raise RuntimeError("out of fuel")


def nan_reward(happened: EnvStepResult) -> EnvStepResult:
    return EnvStepResult(due=happened.due, reward=[(1, float("nan"))])


def seen(value: Any, mask: Any = None) -> Callable[[EnvStepResult], EnvStepResult]:
    return lambda happened: EnvStepResult(due=[(happened.due[0][0], value, mask)])


FAULTS: dict[str, tuple[Callable[[EnvStepResult], EnvStepResult], str]] = {
    "raises": (raises, "raised RuntimeError: out of fuel"),
    "reward": (nan_reward, "gave agent 'agent_1' the reward nan; expected a finite number"),
    "nan": (seen(np.array([np.nan, 0], np.float32)), "gave agent 'agent_1' an observation that is not finite"),
    "shape": (
        seen(np.zeros(3, np.float32)),
        r"gave agent 'agent_1' an observation of shape \(3,\); its space has \(2,\)",
    ),
    "mask": (seen(np.zeros(2, np.float32), np.zeros(3, bool)), "gave agent 'agent_1' a mask without a legal action"),
    "mask shape": (seen(np.zeros(2, np.float32), np.ones(2, bool)), r"a mask of shape \(2,\); it has 3 actions"),
    "nobody": (lambda happened: EnvStepResult(), "listed no agent as due"),
}


def bad(fault: str, allowed: int = 0) -> PythonVectorEnv:
    made = iter([Bad(FAULTS[fault][0]), *(Turns() for _ in range(9))])
    return PythonVectorEnv(lambda: next(made), 2, spec=spec([0, 1]), masked=(True, True), restarts_allowed=allowed)


def play(env: PythonVectorEnv, steps: int) -> list[Any]:
    timestep = env.reset(SEEDS[: env.num_envs])
    out = []
    for _ in range(steps):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int32) for due in timestep.due))
        out.append(timestep)
    return out


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_error(fault: str) -> None:
    with pytest.raises(EnvError, match=FAULTS[fault][1]) as caught:
        play(bad(fault), 5)
    assert f"environment 0 of 2, seed {SEEDS[0]}, episode 0, step 3" in str(caught.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_may_be_repaired_and_its_episode_is_truncated(fault: str) -> None:
    env = bad(fault, allowed=1)
    timestep = play(env, 3)[-1]
    assert env.restarts == 1
    assert timestep.finished.environment.tolist() == [0]
    assert timestep.finished.terminated.tolist() == [False]
    # What came in the faulty step is dropped: player 0 was paid 1 - 1, player 1 -1 (before its first decision) + 1.
    assert timestep.finished.returns.tolist() == [[0, 0]]
    assert timestep.ended[0].observation.tolist() == [[2, 0]]  # its own last decision's
    assert timestep.ended[1].observation.tolist() == [[1, 0]]
    assert timestep.ended[0].mask is not None
    assert timestep.ended[1].mask is not None
    assert timestep.ended[0].mask.tolist() == [[True, True, True]]
    assert timestep.ended[1].mask.tolist() == [[True, True, False]]  # as legal as it was then
    assert not timestep.ended[0].terminated.any()
    assert timestep.due[0].slot.tolist() == [0]  # the new one's first decision; environment 1 goes on
    assert timestep.due[0].first.all()
    assert timestep.due[1].slot.tolist() == [1]


@pytest.mark.parametrize("fault", [2, 3])
def test_who_was_shown_more_before_a_fault_ends_on_its_own_decision(fault: int) -> None:
    """Player 0 decided at the start; the step with the fault shows it 7, and player 1 what is no number."""

    class Both(Turns):
        def step(self, actions: Sequence[Any]) -> EnvStepResult:
            self.t += 1
            if self.t < fault:
                return EnvStepResult(due=[(1, np.full(2, self.t, np.float32), None)])
            return EnvStepResult(
                due=[(0, np.full(2, 7, np.float32), np.zeros(3, bool) | True), (1, np.full(2, np.nan), None)]
            )

    env = PythonVectorEnv(Both, 1, spec=spec([0, 1]), masked=(True, True), restarts_allowed=1)
    timestep = env.reset(SEEDS[:1])
    start = timestep.due[0].observation.tolist()
    for _ in range(fault):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int32) for due in timestep.due))
    assert env.restarts == 1
    assert timestep.ended[0].observation.tolist() == start
    assert timestep.ended[1].observation.tolist() == [[fault - 1, fault - 1]]


def test_the_state_at_a_repaired_end_is_that_before_the_fault() -> None:
    def told(t: int, happened: EnvStepResult) -> EnvStepResult:
        happened.state = np.full(1, t, np.float32)
        return happened

    class Watched(Bad):
        def reset(self, seed: int) -> EnvStepResult:
            return told(0, super().reset(seed))

        def step(self, actions: Sequence[Any]) -> EnvStepResult:
            return told(self.t + 1, super().step(actions))

    watched = replace(spec([0, 1]), state=Box(0, 9, (1,), np.float32))
    env = PythonVectorEnv(lambda: Watched(raises), 2, spec=watched, masked=(True, True), restarts_allowed=9)
    timestep = play(env, 3)[-1]
    assert timestep.final_state is not None
    assert timestep.final_state.tolist() == [[2], [2]]


def test_faults_are_repaired_so_many_times_only() -> None:
    made = iter([Bad(raises), Bad(raises), Bad(raises), Turns()])
    env = PythonVectorEnv(lambda: next(made), 1, spec=spec([0, 1]), masked=(True, True), restarts_allowed=2)
    with pytest.raises(EnvError, match=r"out of fuel \(after 2 restarts\)"):
        play(env, 12)
    assert env.restarts == 2


def test_illegal_and_missing_actions_are_refused() -> None:
    env = turns(2)
    timestep = env.reset(SEEDS)
    with pytest.raises(EnvError, match="illegal action 3 in row 1; legal: \\[0, 1, 2\\]"):
        env.step((np.array([0, 3]), np.empty(0, np.int32)))
    with pytest.raises(EnvError, match="given 1 actions for 2 due decisions"):
        env.step((np.array([0]), np.empty(0, np.int32)))
    assert len(timestep.due[0].slot) == 2
