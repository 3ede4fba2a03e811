"""`module:Class`: each interface is used as it is; what has none, or misbehaves, is refused in a sentence."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from own_games import Duck
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, EnvError
from ludus.core.seeding import keys
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.adapters.pettingzoo_vector import zoo_vector
from ludus.envs.adapters.tuple_env import tuple_vector
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.testing.env import check_env

SEEDS = keys(1, "own", count=2)


def own(name: str, num_envs: int = 2, **options: Any) -> VectorEnv:
    return make_env(f"own_games:{name}", num_envs=num_envs, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Corridor", {}),
        ("corridor", {"length": 4}),
        ("Corridors", {}),
        ("Couple", {}),
        ("Couple", {"teams": "one"}),
        ("Turns", {"masks": "info"}),
        ("Together", {"teams": "one"}),
        ("Duck", {}),
    ],
)
def test_custom_envs_satisfy_vector_env_contract(name: str, options: dict[str, Any]) -> None:
    check_env(lambda n: own(name, n, **options), num_envs=2, steps=30, team="split", early_rewards=True)


def test_gymnasiums_interface_without_its_class() -> None:
    for name in ("Plain", "Specified"):
        check_env(lambda n, name=name: own(name, n), num_envs=2, steps=20)  # type: ignore[misc]
        env = own(name, 1)
        assert env.spec.max_decisions is None
        env.reset(SEEDS[:1])
        with pytest.raises(EnvError, match="has nothing to show"):
            env.render(0)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_one_object_for_several_environments_is_refused() -> None:
    for name, workers in (("one_corridor", 0), ("one_corridor", 1), ("wrapped_corridor", 0), ("one_duck", 0)):
        env = own(name, 2, workers=workers)
        with pytest.raises(EnvError, match="gave the same object twice: environment 1 of 2 is also environment 0, and"):
            env.reset(SEEDS)
        env.close()
    with pytest.raises(EnvError, match="holds the same object twice among its 2 environments"):
        own("Shared")


def test_an_object_is_in_one_vector_at_a_time() -> None:
    first, second = own("one_corridor", 1), own("one_corridor", 1)
    first.reset(SEEDS[:1])
    with pytest.raises(EnvError, match="environment 0 of 1 is also environment 0 of another vector"):
        second.reset(SEEDS[:1])
    first.close()
    second = own("one_corridor", 1)
    assert second.reset(SEEDS[:1]).due[0].observation.tolist() == [[0, 0]]
    second.close()


def test_a_vector_of_ludus_is_used_as_it_is() -> None:
    env = own("Mine", 3, speed=7)
    assert isinstance(env, importlib.import_module("own_games").Mine)
    assert (env.num_envs, env.speed) == (3, 7)  # type: ignore[attr-defined]


def test_the_seat_of_each_agent() -> None:
    assert own("Couple").spec.num_players == 2
    assert own("Couple", teams="one").spec.num_players == 1
    team = own("Together", teams={"a": ["worker_2"], "b": ["worker_0", "worker_1"]}, zero_sum=True).spec
    assert [(agent.name, agent.player) for agent in team.agents] == [("worker_2", 0), ("worker_0", 1), ("worker_1", 1)]
    assert team.zero_sum
    assert own("Turns").spec.determinism == "environment"
    assert own("Turns", determinism="none").spec.determinism == "none"


def test_rewards_of_a_couple() -> None:
    env = own("Couple", 1)
    timestep = env.reset(SEEDS[:1])
    for _ in range(3):
        timestep = env.step((np.array([1]), np.array([0])))
    assert timestep.finished.returns.tolist() == [[0, 3]]  # each is paid what the other chose
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.ended[0].observation.tolist() == [[3, 3]]


REFUSED: list[Refusal] = [
    ("NoEnv", {}, ConfigError, r"'own_games:NoEnv' is not an environment: it lacks reset\(\), step\(\)"),
    (
        "make_no_env",
        {},
        EnvError,
        r"none of the interfaces.*Ludus's VectorEnv \(lacks num_envs, reset, step, close, snap",
    ),
    ("make_no_env", {}, EnvError, r"Gymnasium \(lacks observation_space, action_space, reset, step, close\)\."),
    ("make_no_env", {}, EnvError, r"PettingZoo AEC \(lacks possible_agents"),
    ("Nameless", {}, EnvError, "has no possible_agents"),
    ("Corridors4", {}, EnvError, "made a VecEnv of Stable-Baselines3.*Give what makes one of its environments"),
    ("Restless", {}, EnvError, r"does not say when it restarts ended episodes; set metadata\["),
    ("Restless", {"says": "often"}, EnvError, r"restarts ended episodes \(it says 'often'\); set metadata\["),
    (
        "OldSpaces",
        {"which": "observation"},
        EnvError,
        "observations of .* the package gym, which Gymnasium has replaced",
    ),
    ("OldSpaces", {"which": "action"}, EnvError, "actions of .* wrap it in shimmy.GymV26CompatibilityV0"),
    ("OldSpaces", {"which": "neither"}, EnvError, "actions of .* are in 3, which is no Gymnasium space"),
    ("Unsized", {}, EnvError, "takes num_envs and made a single environment"),
    ("Broken", {}, EnvError, "raised RuntimeError: no fuel"),
    ("BOX", {}, ConfigError, "is no function of 'own_games' but a Box"),
    ("Corridor", {"lenght": 4}, ConfigError, "cannot be made with the options {'lenght': 4}"),
    ("Corridor", {"teams": "one"}, ConfigError, "does not take teams"),
    ("Corridors", {"restarts": 1}, ConfigError, "looks after itself"),
    ("Together", {"teams": "prefix", "utility_range": "wide"}, ConfigError, "expected \\[least, largest\\]"),
    ("Together", {"teams": "prefix", "utility_range": [1]}, ConfigError, "expected \\[least, largest\\]"),
    ("Couple", {"state": True}, ConfigError, "has no state"),
    ("Couple", {"symmetry": True}, ConfigError, r"symmetry=True was given; expected groups of .* such as \[\[0, 1\]\]"),
    ("Couple", {"symmetry": [0, 1]}, ConfigError, r"symmetry=\[0, 1\] was given; expected groups of players that"),
    ("Couple", {"symmetry": [[0], [0]]}, ConfigError, "which hold each of the players 0 to 1 once"),
    (
        "rllib",
        {},
        EnvError,
        "made a MultiAgentEnv of RLlib; Ludus plays PettingZoo's parallel interface: possible_agents",
    ),
]


def test_custom_envs_reject_invalid_ids_and_options() -> None:
    check_refusals(own, REFUSED)


FAULTS = {
    "vanished": "removed the agent 'worker_1', which was neither terminated nor truncated; agents that sit out some steps need",
    "unseen": "gave no observation for the agent 'worker_1', .* agents that sit out some steps need PettingZoo's AEC interface",
    "stranger": "named the agent 'worker_9', which is not among its possible_agents \\(worker_0, worker_1, worker_2\\)",
    "mask": "gave agent 'worker_1' an action mask, and none after its first reset",
    "nan": "gave agent 'worker_2' the reward nan",
    "hidden": "gave agent 'worker_2' an observation that is not finite",
    "shape": r"gave agent 'worker_2' an observation of shape \(5,\); its space has \(2,\)",
}


def play(env: VectorEnv, steps: int) -> Any:
    timestep = env.reset(SEEDS[: env.num_envs])
    for _ in range(steps):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timestep.due))
    return timestep


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_error_or_is_repaired(fault: str) -> None:
    with pytest.raises(EnvError, match=FAULTS[fault]) as caught:
        play(own("Forgetful", fault=fault), 4)
    assert f"environment 0 of 2, seed {SEEDS[0]}, episode 0, step 3" in str(caught.value)
    timestep = play(own("Forgetful", fault=fault, restarts=2), 3)
    assert timestep.finished.environment.tolist() == [0, 1]
    assert not timestep.finished.terminated.any()


def test_one_space_for_all_agents_is_no_interface() -> None:
    """As environments for RLlib were written."""
    with pytest.raises(
        EnvError, match=r"a mapping of 'a', 'b', and its space has the shape \(2,\); environments of several"
    ):
        own("OneSpace").reset(SEEDS)


def test_the_dead_must_leave() -> None:
    with pytest.raises(EnvError, match="did not remove the dead agent 'scout_0' when it stepped with None"):
        play(own("Undead"), 6)


_MASKED = spaces.Dict(
    {"observation": spaces.Box(-1, 9, (1,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
)


class MaskedPair(gymnasium.Env[Any, Any]):
    """Two agents who may do one thing alone; time runs out after two steps."""

    observation_space = spaces.Tuple([_MASKED] * 2)
    action_space = spaces.Tuple([spaces.Discrete(3)] * 2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.seen(), [0.0, 0.0], False, self.t == 2, {}

    def seen(self) -> Any:
        return ({"observation": np.array([self.t], np.float32), "action_mask": np.array([1, 0, 0], np.int8)},) * 2


def test_a_final_observation_keeps_its_mask() -> None:
    env = tuple_vector(MaskedPair, 1, id="pair", sides=Sides())
    timestep = env.reset(np.zeros(1, np.uint64))
    for _ in range(2):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timestep.due))
    assert [ended.mask.tolist() for ended in timestep.ended] == [[[True, False, False]]] * 2


class Vanishing(Duck):
    """Says nothing (None) to who is out of time."""

    def step(self, actions: Any) -> Any:
        seen, paid, terminated, truncated, infos = super().step(actions)
        done = {agent: terminated[agent] or truncated[agent] for agent in paid}
        return {a: None if done[a] else seen[a] for a in paid}, paid, dict.fromkeys(paid, False), done, infos


def test_who_is_told_nothing_at_the_end_is_closed_with_what_it_saw_last() -> None:
    env = zoo_vector(Vanishing, 1, id="vanishing", sides=Sides())
    timestep, last = env.reset(np.zeros(1, np.uint64)), None
    for _ in range(50):
        last = [due.observation.copy() for due in timestep.due]
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timestep.due))
        if len(timestep.ended[0].slot):
            break
    for ended, seen in zip(timestep.ended, last, strict=True):
        np.testing.assert_array_equal(ended.observation, seen)
