"""`envpool/<id>`: the contract, together and asynchronously; agreement with the pool itself; wrong ids and options."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete
from installed import require
from last_steps import first_end
from refusals import Refusal, check_refusals

import ludus
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.adapters.gymnasium import quiet
from ludus.envs.adapters.native import AsyncNativeVectorEnv
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env, require_trainable
from ludus.testing.env import check_env
from ludus.testing.ledger import Actor

require("envpool")

SEEDS = keys(1, "envpool", count=3)

KINDS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"threads": 2},
    "Pendulum-v1": {"max_episode_steps": 6},
    "Taxi-v3": {"max_episode_steps": 8},  # one-hot
    "Jumanji/Maze-v0": {},  # masks in the observation, which is nested
    "Play2048-v1": {},  # masks in info
    "LunarLander-v3": {"threads": 2},
}


def vector(name: str, n: int, **options: Any) -> VectorEnv:
    return make_env(f"envpool/{name}", num_envs=n, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_envpool_satisfies_vector_env_contract(name: str) -> None:
    check_env(lambda n: vector(name, n, **KINDS[name]), num_envs=3, steps=30)


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_asynchronous_contract(batch_size: int) -> None:
    options = {"batch_size": batch_size, "threads": 2, "max_episode_steps": 9}
    made = vector("CartPole-v1", 4, **options)
    assert type(made) is AsyncNativeVectorEnv
    assert made.spec.determinism == "none"
    check_env(lambda n: vector("CartPole-v1", n, **{**options, "batch_size": min(batch_size, n)}), num_envs=4, steps=40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Pong-v5", {}),
        pytest.param("Pong-v5", {"batch_size": 2}, marks=pytest.mark.long),
        ("Ant-v5", {"threads": 2}),
        ("MiniGrid-Empty-5x5-v0", {}),
    ],
)
def test_heavy_envpool_games_satisfy_vector_env_contract(name: str, options: dict[str, Any]) -> None:
    check_env(lambda n: vector(name, n, **{k: min(v, n) for k, v in options.items()}), num_envs=3, steps=12)


def test_agrees_with_a_plain_loop() -> None:
    """Rewards, observations and ends of three CartPoles are those of the pool with these seeds, stepped by hand."""
    import envpool

    env = vector("CartPole-v1", 3, max_episode_steps=20)
    timestep = env.reset(SEEDS)
    bare = envpool.make(
        "CartPole-v1", env_type="gymnasium", num_envs=3, seed=[int(s % 2**31) for s in SEEDS], max_episode_steps=20
    )
    with quiet():
        seen, _ = bare.reset()
    rng, resting, kinds = np.random.default_rng(0), np.zeros(3, bool), set()
    for _ in range(200):
        playing = np.flatnonzero(~resting)
        assert timestep.due[0].slot.tolist() == playing.tolist()
        np.testing.assert_array_equal(timestep.due[0].observation, seen[playing])
        acted = rng.integers(0, 2, 3)
        timestep = env.step((acted[playing],))
        seen, reward, terminated, truncated, _ = bare.step(acted.astype(np.int32))
        over = (terminated | truncated) & ~resting
        assert timestep.ended[0].slot.tolist() == np.flatnonzero(over).tolist()
        np.testing.assert_array_equal(timestep.ended[0].observation, seen[over])
        assert timestep.ended[0].terminated.tolist() == terminated[over].tolist()
        np.testing.assert_array_equal(timestep.ended[0].reward, reward[over])
        assert timestep.due[0].reward.sum() == reward[playing].sum() - reward[over].sum()
        kinds |= set(terminated[over].tolist())
        if over[playing].all():
            seen, *_ = bare.step(acted.astype(np.int32))
            over[:] = False
        resting = over
    assert kinds == {True, False}


def test_asynchronous_episodes_are_those_of_their_seeds() -> None:
    """Which environment is ready first may differ; what an environment plays may not: its returns under one action each."""

    def returns(**options: Any) -> dict[int, list[float]]:
        env = vector("CartPole-v1", 3, threads=2, **options)
        timestep, found = env.reset(SEEDS, episodes=4), {0: [], 1: [], 2: []}  # type: ignore[var-annotated]
        while len(timestep.due[0].slot):
            timestep = env.step((timestep.due[0].slot % 2,))
            for e, paid in zip(timestep.finished.environment.tolist(), timestep.finished.returns[:, 0], strict=True):
                found[e].append(float(paid))
        return found

    together = returns()
    assert all(len(found) == 4 for found in together.values())
    assert together == returns(batch_size=2) == returns(batch_size=1)


AT_ONCE = "intersection-multi-agent-v1"


@pytest.mark.parametrize("teams", [None, "one", {"b": ["agent_1"], "a": ["agent_0"]}])
def test_envpool_satisfies_vector_env_contract_with_simultaneous_agents(teams: Any) -> None:
    check_env(lambda n: vector(AT_ONCE, n, threads=2, teams=teams), num_envs=3, steps=30, team="split")


def test_agents_that_act_at_once_agree_with_a_plain_loop() -> None:
    """Two teams, listed the other way round than the pool lists them; the pool lists environments in any order."""
    import envpool

    env = vector(AT_ONCE, 3, threads=1, teams={"b": ["agent_1"], "a": ["agent_0"]})
    assert [agent.name for agent in env.spec.agents] == ["agent_1", "agent_0"]
    timestep = env.reset(SEEDS)
    bare = envpool.make(AT_ONCE, env_type="gymnasium", num_envs=3, num_threads=1, seed=[int(s % 2**31) for s in SEEDS])

    def stepped(acted: Any) -> Any:
        seen, reward, terminated, truncated, info = bare.step(acted.ravel().astype(np.int32))
        order = np.argsort(info["env_id"])
        return seen.reshape(3, 2, 5, 5)[order], reward.reshape(3, 2)[order], (terminated | truncated)[order]

    seen = bare.reset()[0].reshape(3, 2, 5, 5)
    rng, resting, ends = np.random.default_rng(0), np.zeros(3, bool), 0
    earned = np.zeros((3, 2))
    for _ in range(60):
        playing = np.flatnonzero(~resting)
        for p in range(2):
            assert timestep.due[p].slot.tolist() == playing.tolist()
            np.testing.assert_array_equal(timestep.due[p].observation, seen[playing, 1 - p])
        acted = rng.integers(0, 3, (3, 2))
        timestep = env.step((acted[playing, 1], acted[playing, 0]))
        seen, reward, over = stepped(acted)
        earned += reward * ~resting[:, None]
        over &= ~resting
        assert timestep.finished.environment.tolist() == np.flatnonzero(over).tolist()
        np.testing.assert_allclose(timestep.finished.returns, earned[over][:, ::-1], rtol=1e-6)
        np.testing.assert_array_equal(timestep.ended[0].observation, seen[over, 1])
        earned[over] = 0
        ends += over.sum()
        if over.all():  # nobody would be due
            seen, *_ = stepped(acted)
            over[:] = False
        resting = over
    assert ends > 5


def test_a_pool_may_list_its_environments_in_any_order() -> None:
    def played(threads: int) -> list[Any]:
        env = vector(AT_ONCE, 8, threads=threads)
        timestep, out = env.reset(keys(1, "order", count=8)), []
        for k in range(30):
            timestep = env.step(tuple((due.slot + k) % 3 for due in timestep.due))
            out += [due.observation.sum(axis=(1, 2)).tolist() + due.reward.tolist() for due in timestep.due]
        return out

    assert played(1) == played(4)


def test_procgen_wants_qt() -> None:
    """Refused with EnvPool's own line where the system has no Qt 5."""
    import envpool

    try:
        envpool.make_spec("CoinrunHard-v0")
    except ImportError:
        with pytest.raises(EnvError, match=r"CoinrunHard-v0 needs something .* requires the system Qt 5 runtime"):
            vector("CoinrunHard-v0", 1)
    else:
        check_env(lambda n: vector("CoinrunHard-v0", n), num_envs=2, steps=5)


def test_names() -> None:
    names = set(list_envs("envpool"))
    assert {"envpool/CartPole-v1", "envpool/Pong-v5", "envpool/Ant-v5", f"envpool/{AT_ONCE}"} <= names
    assert {"envpool/CoinrunHard-v0", "envpool/Play2048-v1"} <= names
    assert "envpool/Cig-v1" not in names


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("CartPole-v1", {}, 500),
        ("CartPole-v1", {"max_episode_steps": 7}, 7),
        ("Game2048-v1", {}, None),
        ("Catch-v0", {}, None),
    ],
)
def test_longest_episodes(name: str, options: dict[str, Any], most: int | None) -> None:
    """Told only where EnvPool keeps to it."""
    assert vector(name, 1, **options).spec.max_decisions == most


def test_render() -> None:
    env = vector("CartPole-v1", 2, render=True)
    env.reset(SEEDS[:2])
    shown = env.render(1)  # type: ignore[attr-defined]
    assert shown.dtype == np.uint8
    assert shown.shape[2] == 3
    other = vector("CartPole-v1", 2)
    other.reset(SEEDS[:2])
    with pytest.raises(EnvError, match="make it with render=True"):
        other.render(1)  # type: ignore[attr-defined]


WRONG: dict[str, Refusal] = {
    "typo": ("CartPol-v1", {}, UnknownName, "'CartPol-v1'; did you mean 'CartPole-v1'"),
    "option": ("CartPole-v1", {"max_episode_step": 3}, ConfigError, "did you mean 'max_episode_steps'"),
    "value": (
        "CartPole-v1",
        {"max_episode_steps": "x"},
        ConfigError,
        "max_episode_steps='x' .* expected int, such as 500",
    ),
    "flag": ("Pong-v5", {"reward_clip": 1}, ConfigError, "reward_clip=1 .* expected bool, such as False"),
    "none": ("Pong-v5", {"stack_num": -1}, ConfigError, "stack_num=-1 .* at least 1"),  # ends the process in EnvPool
    "no-ops": ("Pong-v5", {"noop_max": 0}, ConfigError, "noop_max=0 .* at least 1"),  # so does this
    "history": ("Go9x9-v1", {"max_terminal_steps": -1}, ConfigError, "max_terminal_steps=-1 .* at least 0"),  # and this
    "large": ("CartPole-v1", {"max_episode_steps": 10**12}, ConfigError, "cannot be made with the options"),
    "instance": ("CartPole-v1", {"one_instance": True}, ConfigError, "one_instance=True was given .* CVRP-v1, .* only"),
    "instances": ("CVRP-v1", {"one_instance": 2}, ConfigError, "one_instance=2 was given .* it is true or false"),
    "no limit": ("Jumanji/Maze-v0", {"max_episode_steps": 9}, ConfigError, "Jumanji/Maze-v0; EnvPool ignores it there"),
    "endless": ("CliffWalking-v1", {"max_episode_steps": 9}, ConfigError, "EnvPool ignores it there"),
    "crash": ("Cig-v1", {}, EnvError, "several players over a network"),  # ends the process in EnvPool
    "custom": ("VizdoomCustom-v1", {}, ConfigError, "cannot be made with the options"),
    "half a thread": ("CartPole-v1", {"threads": 1.5}, ConfigError, "threads=1.5 .* expected a whole number"),
    "batch": ("CartPole-v1", {"batch_size": 3}, ConfigError, "batch_size=3 .* expected 1 to num_envs=2"),
    "threads": ("CartPole-v1", {"threads": 0}, ConfigError, "threads=0 .* at least 1"),
    "state": (AT_ONCE, {"state": True}, ConfigError, "has no state"),
    "teams": ("ConnectFour-v1", {"teams": "one"}, ConfigError, "unknown option 'teams'"),
    "agents": (AT_ONCE, {"batch_size": 1}, ConfigError, "games of several players are stepped together"),
    "workers": ("CartPole-v1", {"workers": 1}, ConfigError, "threads of its own"),
    "restarts": ("CartPole-v1", {"restarts": 2}, ConfigError, r"cannot be restarted one by one. Leave it out\.$"),
}


def test_wrong_ids_and_options() -> None:
    check_refusals(lambda name, **options: vector(name, 2, **options), WRONG.values())


def test_the_time_limit_of_jumanjis_games_is_truncation() -> None:
    """EnvPool calls it the end of the game. Whoever stands still never leaves a maze."""
    env = vector("Jumanji/Maze-v0", 2)
    timestep = env.reset(np.arange(2, dtype=np.uint64))
    for _ in range(200):
        timestep = env.step((timestep.due[0].mask.argmax(1),))
        if len(timestep.finished.environment):
            break
    assert timestep.finished.length.tolist() == [100, 100]
    assert timestep.finished.terminated.tolist() == [False, False]
    env.close()


BY_NUMBER = ("Cleaner-v0", "MMST-v0", "RobotWarehouse-v0")
"""Whose illegal moves end the episode, and whose masks have a row for each agent, a number of the action."""


ONE_INSTANCE = (
    "BinPack-v2 CVRP-v1 Connector-v2 FlatPack-v0 JobShop-v0 LevelBasedForaging-v0 MMST-v0 MultiCVRP-v0 RobotWarehouse-v0 "
    "SearchAndRescue-v0 Sokoban-v0 Tetris-v0"
)


ASKS = (
    r"same instance .* Train on jumanji/\S+, or give env.options.one_inst",
    "heart. Give env.options.one_instance=true",
)


def bare_pool(name: str, **options: Any) -> Any:
    import envpool

    with quiet():
        return envpool.make(name, env_type="gymnasium", **options)


def leaves(observation: Any) -> list[Any]:
    if isinstance(observation, dict):
        return [leaf for part in observation.values() for leaf in leaves(part)]
    return [observation]


@pytest.mark.parametrize("name", BY_NUMBER)
def test_masks_of_several_numbers(name: str) -> None:
    env, seeds, lengths = vector(name, 4), keys(2, "envpool", count=4), list[int]()
    actor, timestep = Actor(env.spec, seeds), env.reset(seeds, episodes=3)
    mask, action = timestep.due[0].mask, env.spec.agents[0].action
    assert mask is not None
    assert isinstance(action, MultiDiscrete)
    assert mask.shape == (4, action.nvec.sum())
    assert not mask.all()
    while any(len(due.slot) for due in timestep.due):
        timestep = env.step(actor.actions(timestep))
        lengths += timestep.finished.length.tolist()
    assert len(lengths) == 12
    assert np.median(lengths) >= 4
    env.close()


@pytest.mark.parametrize("name", BY_NUMBER)
def test_envpool_ends_an_episode_with_an_illegal_move(name: str) -> None:
    """Why masks matter there. If this fails, EnvPool has changed, and its page says something that is no longer true."""
    pool = bare_pool(name, num_envs=3, seed=[1, 2, 3])
    observation, _ = pool.reset()
    action = (
        observation["action_mask"].argmin(axis=2).astype(np.int32)
    )  # an illegal one of each agent, where there is any
    _, _, terminated, *_ = pool.step(action)
    assert terminated.all()
    pool.close()


def test_mazes_without_a_way_out() -> None:
    """EnvPool shuts some agents in, and then shows a mask without a legal move: any move is taken."""
    pool = bare_pool("Maze-v0", num_envs=100, seed=list(range(100)))
    observation, _ = pool.reset()
    shut = np.flatnonzero(~observation["action_mask"].any(axis=1))
    assert 0 < len(shut) < 50
    pool.close()
    from ludus.contrib.envs.envpool import _masks_by_number

    masks = _masks_by_number(observation["action_mask"][:, None])
    assert masks[shut].all()
    assert (masks == (observation["action_mask"] != 0))[[e for e in range(100) if e not in shut]].all()


@pytest.mark.parametrize("name", [*ONE_INSTANCE.split(), "Cleaner-v0", "Knapsack-v1", "Snake-v1", "TSP-v1"])
def test_ports_of_jumanji_with_one_instance(name: str) -> None:
    """If a case fails, EnvPool has changed: the list of those that runs refuse, and its page, are to be set right."""
    pool = bare_pool(name, num_envs=8, seed=list(range(8)))
    rows = [leaf.reshape(8, -1) for leaf in leaves(pool.reset()[0])]
    alike = all((row == row[0]).all() for row in rows)
    assert alike == (name in ONE_INSTANCE)
    pool.close()
    if alike:
        with pytest.raises(ConfigError, match=ASKS[name in ("SearchAndRescue-v0", "Tetris-v0")]):
            require_trainable(f"envpool/Jumanji/{name}", {})
    require_trainable(f"envpool/{name}", {"one_instance": True})


@pytest.mark.slow
def test_runs_refuse_to_train_on_one_instance(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="same instance in every episode"):
        ludus.run("envpool/CVRP-v1", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    vector("CVRP-v1", 1, one_instance=True).close()


def test_envpool_ignores_the_seed_of_a_reset() -> None:
    """Why Ludus makes a new pool instead. Its default seed is the same number in every process."""
    one, other = (bare_pool("CartPole-v1", num_envs=2) for _ in range(2))
    with quiet():
        np.testing.assert_array_equal(one.reset()[0], other.reset()[0])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(one.reset(seed=7)[0], other.reset(seed=8)[0])
    assert sum("seeds are fixed" in str(warning.message) for warning in said) == 2
    env = vector("CartPole-v1", 2)
    starts = [env.reset(keys(seed, "envpool", count=2)).due[0].observation.tolist() for seed in (7, 8)]
    assert starts[0] != starts[1]
    env.close()


def test_envpool_calls_a_real_end_in_the_last_permitted_step_a_truncation() -> None:
    """Which the adapter passes on, as its page says: the two cannot be told apart. If this fails, EnvPool has changed."""
    length, terminated = first_end("envpool/CartPole-v1", max_episode_steps=200)
    assert terminated
    assert first_end("envpool/CartPole-v1", max_episode_steps=length + 1) == (length, True)
    assert first_end("envpool/CartPole-v1", max_episode_steps=length) == (length, False)
