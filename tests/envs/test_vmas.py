"""VMAS: the same as its own batch, ends of episodes, spaces that differ, one stream of random numbers."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from installed import require

from ludus.contrib.envs.vmas import VmasVectorEnv
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.device_vector import OffersDevice
from ludus.envs.registry import list_envs, make_env
from ludus.testing.device_env import CopiedEnv
from ludus.testing.env import check_env
from ludus.testing.ledger import Ledger, play, same

require("vmas")

SEEDS = keys(4, "vmas", count=3)
SMALL: dict[str, dict[str, Any]] = {"vmas/sampling": {"grid_spacing": 0.25}, "vmas/road_traffic": {"n_agents": 4}}
"""Options with which what takes long takes less."""


def made(name: str, num_envs: int = 3, **options: Any) -> VmasVectorEnv:
    env = make_env(f"vmas/{name}", num_envs=num_envs, **options)
    assert isinstance(env, VmasVectorEnv)
    return env


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("simple_tag", {"max_steps": 7, "teams": "prefix"}),  # observations of 16 and 14 numbers
        ("simple_speaker_listener", {"max_steps": 5, "continuous_actions": False}),
    ],
)
def test_vmas_satisfies_vector_env_contract(name: str, options: dict[str, Any]) -> None:
    check_env(lambda n: made(name, n, **options), num_envs=2, steps=16, team="split")


@pytest.mark.slow
@pytest.mark.parametrize("id", list_envs("vmas"))
def test_every_scenario_plays(id: str) -> None:
    env = make_env(id, num_envs=2, max_steps=3, **SMALL.get(id, {}))
    ledger = Ledger(env.spec, 2, team="split", early_rewards=False)
    once = play(env, SEEDS[:2], 4, watch=ledger.see)
    same(once, play(env, SEEDS[:2], 4), "a second reset")


def test_equals_vmas_itself() -> None:
    import vmas

    env = made("simple_spread", max_steps=4)
    timestep = env.reset(SEEDS)
    bare = vmas.make_env("simple_spread", num_envs=3, max_steps=4, terminated_truncated=True, clamp_actions=True)
    # The bare batch draws from the stream that all batches of a process share: let it stand where ours stood after its reset.
    seen = bare.reset()
    type(bare).vmas_random_state[:] = env._batch._random
    for agent, body in zip(bare.world.agents, env._batch.vmas.world.agents, strict=True):
        agent.set_pos(body.state.pos.clone(), batch_index=None)
    for mark, body in zip(bare.world.landmarks, env._batch.vmas.world.landmarks, strict=True):
        mark.set_pos(body.state.pos.clone(), batch_index=None)
    seen = bare.get_from_scenario(get_observations=True, get_rewards=False, get_infos=False, get_dones=False)[0]
    rng = np.random.default_rng(0)
    paid = np.zeros((3, 3))
    for t in range(1, 5):
        for p, due in enumerate(timestep.due):
            np.testing.assert_array_equal(due.observation, seen[p].numpy())
        actions = rng.uniform(-1, 1, (3, 3, 2)).astype(np.float32)  # by agent, by environment
        seen, rewards, _, truncated, _ = bare.step([torch.from_numpy(a) for a in actions])
        timestep = env.step(tuple(actions))
        paid += np.stack([reward.numpy() for reward in rewards], axis=1)
        assert truncated.tolist() == [t == 4] * 3
    for p, ended in enumerate(timestep.ended):
        np.testing.assert_array_equal(ended.observation, seen[p].numpy())
        assert ended.reward.tolist() == rewards[p].tolist()
        assert not ended.terminated.any()
    np.testing.assert_allclose(timestep.finished.returns, paid)
    assert timestep.finished.length.tolist() == [4, 4, 4]
    assert timestep.due[0].first.all()
    assert not np.array_equal(timestep.due[0].observation, timestep.ended[0].observation)


# ---------------------------------------------------------------------------------------------- beginning anew


def random_actions(env: VmasVectorEnv, num_envs: int, seed: int) -> list[torch.Tensor]:
    """[E, agents, …] of each player; legal where its agents differ."""
    rng, actions = np.random.default_rng(seed), []
    for p in range(env.spec.num_players):
        agents = env.spec.agents_of(p)
        legal, space = env._seats.masks[p], agents[0].action
        if legal is not None:
            chosen = (rng.random((num_envs, *legal.shape)) * legal).argmax(axis=2)
        elif isinstance(space, spaces.Box):
            chosen = rng.uniform(-1, 1, (num_envs, len(agents), *space.shape)).astype(np.float32)
        else:
            high = space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n
            chosen = rng.integers(0, high, (num_envs, len(agents), *space.shape))
        actions.append(torch.from_numpy(chosen))
    return actions


def check_renewal(id: str) -> None:
    """Of five environments 1 and 3 begin anew; the others go on to the bit as they do in a batch where none does, then begin anew, too."""
    one, other = (make_env(id, num_envs=5, max_steps=100, **SMALL.get(id, {})) for _ in range(2))
    over = torch.tensor([False, True, False, True, False])
    for env in (one, other):
        env.reset(keys(1, "vmas", count=5))
    for t in range(5):
        actions = one._seats.actions(random_actions(one, 5, t))
        here, there = (env._batch.step([action.clone() for action in actions]) for env in (one, other))
        same = all(a[~over].equal(b[~over]) for a, b in zip(here[0] + here[1], there[0] + there[1], strict=True))
        assert same or id.removeprefix("vmas/") in ("football", "road_traffic"), t  # which draw numbers as they go on
        if t == 2:
            before, begun = here[0], one._batch.renew(over, 2)
            assert one._batch.vmas.steps.tolist() == [3, 0, 3, 0, 3]
            assert any(not a[over].equal(b[over]) for a, b in zip(begun, before, strict=True))
    rest = one._batch.renew(~over, 3)
    assert one._batch.vmas.steps.tolist() == [0, 2, 0, 2, 0]
    if id == "vmas/navigation":  # whose bodies lie anywhere: no two begin in the same way
        assert (
            len({tuple(row) for seen, who in ((begun[0], over), (rest[0], ~over)) for row in seen[who].tolist()}) == 5
        )
    one._batch.renew(over, 2)  # nothing waits any more
    assert one._batch.vmas.steps.tolist() == [0] * 5


@pytest.mark.parametrize("id", ["vmas/simple_tag", "vmas/navigation"])
def test_some_begin_anew_and_the_others_go_on(id: str) -> None:
    check_renewal(id)


@pytest.mark.long
@pytest.mark.parametrize("id", list_envs("vmas"))
def test_environments_of_every_scenario_begin_anew_one_by_one(id: str) -> None:
    check_renewal(id)


# ---------------------------------------------------------------------------------------------- on a device


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [None, 2])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("navigation", {"max_steps": 5, "n_agents": 2, "teams": "one"}),
        ("simple_tag", {"max_steps": 3, "teams": "prefix"}),  # observations of 16 and 14 numbers
        ("simple_speaker_listener", {"max_steps": 3, "teams": "one", "continuous_actions": False}),  # masks
        ("balance", {"max_steps": 3, "continuous_actions": False, "multidiscrete_actions": True}),
    ],
)
def test_on_a_device_it_is_the_same(name: str, options: dict[str, Any], episodes: int | None) -> None:
    host = made(name, **options)
    assert isinstance(host, OffersDevice)
    other, env = CopiedEnv(host), host.on_device(torch.device("cpu"), num_envs=3)
    seed = int.from_bytes(hashlib.blake2b(SEEDS.tobytes(), digest_size=4).digest(), "little")
    found, wanted = env.reset(seed, episodes=episodes), other._timestep(host.reset(SEEDS, episodes=episodes))
    if name == "navigation":  # environments end by themselves, too, each at another time
        for batch in (env._batch.vmas, host._batch.vmas):
            batch.scenario.done = lambda batch=batch: batch.steps == torch.tensor([2, 9, 4])
    finished = 0
    for t in range(12):
        assert found.over.equal(wanted.over)
        for field in ("returns", "terminated", "length"):
            torch.testing.assert_close(getattr(found, field)[found.over], getattr(wanted, field)[found.over])
        for ours, theirs in zip(found.slots, wanted.slots, strict=True):
            assert ours.due.equal(theirs.due)
            assert ours.ended.equal(theirs.ended)
            assert ours.observation[ours.due].equal(theirs.observation[ours.due])
            assert (ours.mask is None) == (theirs.mask is None)
            assert ours.mask is None or ours.mask[ours.due].equal(theirs.mask[ours.due])
            closed = ours.ended | (ours.due & (t > 0))
            assert ours.reward[closed].equal(theirs.reward[closed])
            assert ours.terminated[ours.ended].equal(theirs.terminated[ours.ended])
            assert ours.final[ours.ended].equal(theirs.final[ours.ended])
        finished += int(found.over.sum())
        actions = tuple(random_actions(host, 3, t))
        found = env.step(actions)
        wanted = other.step(actions)
    assert finished >= 6
    assert (episodes is None) == bool(found.slots[0].due.any())


@pytest.mark.gpu
def test_a_batch_lives_on_a_gpu(gpu: str) -> None:
    """And its random stream is its own there, too."""
    host = made("navigation", max_steps=5, n_agents=2, teams="one")
    played = []
    for disturbed in (False, True):
        env = host.on_device(torch.device(gpu), num_envs=7)
        steps, finished = [env.reset(11)], 0
        for t in range(12):
            if disturbed:
                torch.rand(5, device=gpu)
            (actions,) = random_actions(host, 7, t)
            steps.append(env.step((actions.to(gpu),)))
            finished += int(steps[-1].over.sum())
        assert finished >= 14
        assert {step.slots[0].observation.device.type for step in steps} == {torch.device(gpu).type}
        played.append(torch.stack([step.slots[0].observation for step in steps]).cpu())
    torch.testing.assert_close(*played)


def test_two_vectors_do_not_share_a_stream() -> None:
    one, other = made("simple_spread", max_steps=2), made("simple_spread", max_steps=2)
    alone = play(one, SEEDS, 6)
    other.reset(SEEDS[::-1])
    timestep = one.reset(SEEDS)
    disturbed = other.reset(SEEDS)
    for _ in range(6):
        idle = tuple(np.zeros((3, 2), np.float32) for _ in timestep.due)
        timestep = one.step(idle)
        disturbed = other.step(idle)
        for a, b in zip(timestep.due, disturbed.due, strict=True):
            np.testing.assert_array_equal(a.observation, b.observation)
    same(alone, play(other, SEEDS, 6), "the other vector")


def test_termination_is_the_scenarios_and_others_go_on() -> None:
    env = made("waterfall", max_steps=100)
    done = torch.tensor([False, True, False])
    env.reset(SEEDS, episodes=np.array([1, 2, 1]))
    env._batch.vmas.scenario.done = lambda: done
    timestep = env.step(tuple(np.zeros((3, 2), np.float32) for _ in range(5)))
    assert timestep.finished.environment.tolist() == [1]
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.due[4].first.tolist() == [False, True, False]
    timestep = env.step(tuple(np.zeros((3, 2), np.float32) for _ in range(5)))
    assert timestep.due[0].slot.tolist() == [0, 2]  # environment 1 has played its two
    assert env.spec.determinism == "vector"


def test_spaces_that_differ() -> None:
    env = made("simple_tag", teams="prefix")
    assert [len(env.spec.agents_of(p)) for p in (0, 1)] == [3, 1]
    assert env.spec.agents_of(0)[0].observation.shape == (16,)
    one = made("simple_tag", teams="one")
    timestep = one.reset(SEEDS)
    assert timestep.due[0].observation.shape == (12, 16)
    assert timestep.due[0].observation[3::4, 14:].tolist() == [[0, 0]] * 3  # the fourth agent sees 14 numbers
    assert timestep.due[0].mask is None
    talk = made("simple_speaker_listener", teams="one", continuous_actions=False)
    mask = talk.reset(SEEDS).due[0].mask
    assert mask is not None
    assert mask.sum(axis=1).tolist() == [27, 9] * 3  # nine moves; the speaker's with three words each
    joint = made("balance", continuous_actions=False, multidiscrete_actions=True)
    assert joint.spec.agents[0].action.shape == (2,)
    joint.reset(SEEDS)
    joint.step(tuple(np.ones((3, 2), np.int64) for _ in range(3)))


def test_faults_are_clear_errors() -> None:
    env = made("simple_spread")
    idle = tuple(np.zeros((3, 2), np.float32) for _ in range(3))
    with pytest.raises(EnvError, match="before reset"):
        env.step(idle)
    env.reset(SEEDS)
    with pytest.raises(EnvError, match=r"actions of shape \(\); its action space"):
        env.step((np.zeros(3, np.float32), *idle[1:]))
    with pytest.raises(EnvError, match="2 actions for 3 due"):
        env.step((idle[0][:2], *idle[1:]))
    env.step(tuple(np.full((3, 2), 9, np.float32) for _ in range(3)))  # brought into their range
    reward = env._batch.vmas.scenario.reward
    env._batch.vmas.scenario.reward = lambda agent: reward(agent) * torch.tensor([1, float("nan"), 1])
    with pytest.raises(EnvError, match=rf"gave agent 'agent_0' the reward nan.*environment 1 of 3, seed {SEEDS[1]}"):
        env.step(idle)
    env.reset(SEEDS)
    env._batch.vmas.scenario.reward = lambda agent: 1 / 0
    with pytest.raises(
        EnvError, match=r"3 environments are one batch.* raised ZeroDivisionError in step: division by zero"
    ):
        env.step(idle)
    assert env.snapshot() is None
    with pytest.raises(EnvError, match="no snapshot"):
        env.restore(b"")
    env.close()


def test_options_and_names_are_checked() -> None:
    assert {"vmas/balance", "vmas/simple_tag"} <= set(list_envs("vmas"))
    with pytest.raises(UnknownName, match="did you mean 'balance'"):
        made("balanse")
    with pytest.raises(ConfigError, match=r"n_agent.* passed but not used"):
        made("balance", n_agent=2)
    with pytest.raises(ConfigError, match="max_steps=-1 was given; expected a number of steps from 1, or null"):
        made("balance", max_steps=-1)
    with pytest.raises(ConfigError, match="option 'device' of vmas/balance is set by Ludus"):
        made("balance", device="cuda")
    with pytest.raises(ConfigError, match="no common state"):
        made("balance", state=True)
    assert len(made("balance", n_agents=2).spec.agents) == 2
