"""Learned rewards where learners turn rollouts into rows: with any network that says some, and with the registered ones."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete
from reward_tools import Told, alone, context_of, rows_of
from team_games import rollouts, team_env, team_rollout
from torch import nn

from ludus.algorithms.common.losses import log_prob
from ludus.algorithms.common.registry import check_fits
from ludus.algorithms.common.returns import bootstrap_values, gae
from ludus.algorithms.ddpg.config import TD3
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.on_policy.config import A2C, IMPALA
from ludus.algorithms.ppo.config import MAPPO, PPO
from ludus.algorithms.r2d2.config import R2D2
from ludus.algorithms.sac.config import SAC
from ludus.backend.device import UpdateCost, resolve_placement
from ludus.contrib.algorithms.learned_rewards.fitting import TrainableModule
from ludus.contrib.algorithms.learned_rewards.inputs import Actions, Observations, Steps, masks_of
from ludus.contrib.algorithms.maddpg.config import MADDPG
from ludus.contrib.algorithms.qmix.config import QMIX
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import CPU, SegmentEnd
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

SMALL = {"batch": 40, "hidden": (8,)}
LITTLE = {"hidden": (8,), "features": 4, "batch": 32}


def experience(learner, env, *, segments=12):
    policy = build_policy(learner.spec, learner.weights())
    return synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=np.random.default_rng(3))


def test_dropout_of_what_learns_rewards_draws_from_its_seed():
    """And from nobody's stream; what says rewards has none of it."""

    def learned(state):
        torch.manual_seed(state)
        module = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 1))
        nn.init.ones_(module[1].weight)
        nn.init.zeros_(module[1].bias)
        fitted = TrainableModule(
            module, resolve_placement(CPU, UpdateCost(8, 10, has_cpu_kernel=False)), seed=5, name="made up"
        )
        before = torch.random.get_rng_state()

        def loss(part, rng):
            return [fitted.module(torch.ones(len(part), 8)).square().mean()]

        fitted.learn(loss, 20, epochs=2, batch=10, rate=0.1, max_norm=1.0)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert torch.equal(*fitted.module(torch.ones(2, 8)))
        return fitted.state_dict()["weights"]["1.weight"]

    np.testing.assert_array_equal(learned(1), learned(2))


# ------------------------------------------------------------------ what learners make of them


def test_one_stream_takes_the_place_of_rewards():
    """0.5 × the game's + 2 × (1, 2, 3 …): the critic's targets are those of these rewards."""
    env = alone()
    plain, told = (
        PPO(gamma=0.9, gae_lambda=0.8, learned_reward=kind, **SMALL).learner(context_of(env))
        for kind in (None, Told(extrinsic=0.5, coefficient=2.0))
    )
    rows = experience(plain, env)
    ((_, before),), ((_, columns),) = plain.items(rows), told.items(rows)
    reward = 0.5 * rows.reward + 2.0 * np.arange(1, rows.num_rows + 1)
    after = told.model.values(told._items.inputs(rows.bootstrap_observation), None, None, None)[0].numpy()
    advantage, target = gae(rows.start, reward, before["value"], bootstrap_values(rows.tail, after), 0.9, 0.8)
    np.testing.assert_allclose(columns["advantage"], advantage, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(columns["target"], target, rtol=1e-4, atol=1e-5)


def test_two_streams_add_their_advantages():
    """And the critic's targets stay those of the game's rewards."""
    env = alone()
    plain, told = (
        A2C(learned_reward=kind, **SMALL).learner(context_of(env)) for kind in (None, Told(second=True, extrinsic=0.5))
    )
    rows = experience(plain, env)
    ((_, one),), ((_, both),) = plain.items(rows), told.items(rows)
    other = 10.0 * np.arange(1, rows.num_rows + 1)
    np.testing.assert_allclose(both["advantage"], 0.5 * one["advantage"] + other, rtol=1e-6)
    np.testing.assert_array_equal(both["target"], one["target"])


def test_vtrace_weights_the_second_stream_with_the_rows():
    """Rows that the weights of now made have weight 1, and then the sum is that of the two streams."""
    env = alone()
    options = {"gae_lambda": 0.9, **SMALL}
    learners = [
        IMPALA(learned_reward=kind, **options).learner(context_of(env))
        for kind in (None, Told(second=True, extrinsic=0.5))
    ]
    rows = experience(learners[0], env)
    rows = replace(rows, logp=np.log(np.full(rows.num_rows, 1.0), dtype=np.float32))  # likelier then than now
    batches = []
    for learner in learners:
        ((_, columns),) = learner.items(rows)
        batches.append(learner._batch(columns))
    one, both = (batch.advantage.numpy() for batch in batches)
    ratio = np.exp(batches[0].logp.numpy())  # of each row, below 1
    other = 10.0 * np.arange(1, rows.num_rows + 1)
    np.testing.assert_allclose(both, 0.5 * one + ratio * other, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(batches[0].target, batches[1].target, rtol=1e-6)


@pytest.mark.parametrize("kind", ["states", "tensors", "autograd", "central"])
def test_they_are_told_the_policys_log_probabilities(kind, request):
    """Of rows that the policy has just made: those that were recorded."""
    env = team_env() if kind == "central" else request.getfixturevalue("enumerated" if kind == "states" else "tensors")
    options = {"central": {"value_network": "central"}, "autograd": {"normalise_observations": True}}.get(kind, {})
    learner = PPO(learned_reward=Told(), **options, **SMALL).learner(context_of(env))
    if kind == "central":
        rows = team_rollout(env, learner, pieces=4, rng=np.random.default_rng(0))
        out = learner.model.outputs(learner._items.inputs(rows.observation)).detach()
        recorded = log_prob(out, torch.from_numpy(rows.action), torch.from_numpy(rows.mask)).numpy()
    else:
        rows = experience(learner, env)
        recorded = rows.logp
    learner.items(rows)
    np.testing.assert_allclose(learner._items.learned_reward.logp, recorded, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "algorithm",
    [
        DQN(rollout=40, min_size=10, hidden=(8,), batch=8, n_step=2, gamma=0.5),
        R2D2(
            rollout=40, min_size=10, hidden=(8,), batch=8, memory=4, length=4, period=4, burn_in=1, n_step=2, gamma=0.5
        ),
    ],
)
def test_replayed_rows_have_the_rewards_of_when_they_were_inserted(algorithm, tensors):
    """In the learner's units: here the game's over its largest utility, 2. Sums over two steps are of learned rewards, too."""
    told = type(algorithm)(**{**algorithm.model_dump(), "learned_reward": Told(extrinsic=2.0)})
    learner = told.learner(context_of(tensors))
    observation = np.zeros((3, 4), np.float32)
    mask = np.ones((3, 3), np.bool_)
    rows = rows_of(observation, np.zeros(3, np.int32), lengths=[3], tail=[0], reward=[4.0, 8.0, 0.0], mask=mask)
    memory = build_policy(learner.spec, learner.weights()).memory_shape
    rows = rows if memory is None else replace(rows, memory0=np.zeros((1, *memory), np.float32))
    ((_, columns),) = learner.items(rows)
    each = np.array([2 * 4 / 2 + 1, 2 * 8 / 2 + 2, 0 + 3])
    expected = [each[0] + 0.5 * each[1], each[1] + 0.5 * each[2], each[2]]
    np.testing.assert_allclose(columns["reward"].ravel()[:3], expected, rtol=1e-6)
    assert rows.reward.tolist() == [4.0, 8.0, 0.0]
    assert learner._learned_reward.replayed
    size = len(columns["reward"])
    assert learner.update(Sample(columns, np.arange(size), np.ones(size)))["times"] == 1.0


# ------------------------------------------------------------------ one contract of them all


RND, ICM = {"kind": "rnd", **LITTLE}, {"kind": "icm", **LITTLE}
BOX = Box(-1.0, 3.0, (2, 1), np.float32)
CASES = {
    "ppo, rnd": (PPO(epochs=2, learned_reward=RND, **SMALL), "enumerated"),
    "ppo, rnd in one stream": (PPO(epochs=2, learned_reward={**RND, "streams": "one", "share": 0.5}, **SMALL), "tensors"),
    "ppo with memory, icm": (PPO(epochs=1, memory="gru", memory_size=4, learned_reward=ICM, **SMALL), "enumerated"),
    "impala, icm": (IMPALA(learned_reward=ICM, **SMALL), MultiDiscrete([2, 3])),
    "a2c, icm": (A2C(learned_reward=ICM, **SMALL), BOX),
    "mappo, rnd": (MAPPO(epochs=1, learned_reward=RND, **SMALL), "teams"),
    "dqn, icm": (DQN(rollout=40, min_size=50, hidden=(8,), batch=32, learned_reward=ICM), "enumerated"),
    "sac, rnd": (SAC(rollout=40, start_decisions=40, hidden=(8,), batch=16, updates_per_decision=0.1, learned_reward=RND), BOX),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_learned_rewards_satisfy_algorithm_contract(name, request):
    """Resume to the bit, NaN and the rest, with networks, normalisers and optimizers of the reward in the state."""
    algorithm, kind = CASES[name]
    if kind == "teams":
        env = team_env()
    else:
        env = alone(action=kind) if not isinstance(kind, str) else request.getfixturevalue(kind)
    check_algorithm(algorithm, env, rollouts=rollouts(env) if kind == "teams" else None, rounds=2)


@pytest.mark.parametrize("kind", [RND, ICM])
def test_all_that_a_reward_keeps_is_in_the_state(kind, tensors):
    """One that has learned otherwise before goes on, to the bit, from what another has saved."""
    first, second = (PPO(learned_reward=kind, **SMALL).learner(context_of(tensors)) for _ in range(2))
    pieces = [experience(first, tensors, segments=8 + k) for k in range(4)]
    for rows in pieces[:2]:
        first.items(rows)
    second.items(pieces[3])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for learner in (first, second):
        for rows in pieces[2:]:
            learner.items(rows)
    one, other = (_leaves(learner._items.learned_reward.state_dict()) for learner in (first, second))
    assert len(one) > 20
    for path, leaf in one.items():
        np.testing.assert_array_equal(leaf, other[path], err_msg=path)


def _leaves(state, path=""):
    out = {}
    for key, value in state.items():
        out |= _leaves(value, f"{path}/{key}") if isinstance(value, dict) else {f"{path}/{key}": np.asarray(value)}
    return out


# ------------------------------------------------------------------ what networks are shown


def test_observations_are_normalised_and_clipped():
    """Of 0, 2 and 4 the mean is 2, the variance 8/3."""
    seen = Observations(alone(), (0,), what="test", normalise=True, device=torch.device("cpu"))
    seen.update_statistics(np.array([[0, 1], [2, 1], [4, 1]], np.float32))
    shown = seen.normalize(seen.to_tensor(np.array([[2, 1], [4, 1], [100, -100]], np.float32)))
    np.testing.assert_allclose(shown[:, 0], [0.0, 2 / np.sqrt(8 / 3), 5.0], rtol=1e-5)
    np.testing.assert_allclose(shown[:, 1], [0.0, 0.0, -5.0], atol=1e-5)


def test_bytes_are_seen_as_0_to_1_and_stay_bytes_until_then():
    env = alone(observation=Box(0, 255, (1, 2, 2), np.uint8))
    seen = Observations(env, (0,), what="test", normalise=False, device=torch.device("cpu"))
    placed = seen.to_tensor(np.full((1, 1, 2, 2), 51, np.uint8))
    assert placed.dtype == torch.uint8
    np.testing.assert_allclose(seen.normalize(placed), np.full((1, 1, 2, 2), 0.2), rtol=1e-6)


def test_steps_know_what_came_after_them(enumerated):
    """The next row of the segment, or the bootstrap observation; -1 is nothing; only the last of a terminated segment ends."""
    rows = rows_of(np.array([3, 4, 5], np.int32), np.zeros(3, np.int32), lengths=[2, 1], tail=[0, 1], bootstrap=[-1, 6])
    steps = Steps.of(rows, enumerated=True)
    assert steps.after.tolist() == [4, -1, 6]
    assert steps.known.tolist() == [True, False, True]
    assert steps.ended.tolist() == [False, True, False]
    assert rows.tail[1] == SegmentEnd.TRUNCATED
    np.testing.assert_array_equal(masks_of(enumerated, steps), enumerated.enumeration.mask[[3, 4, 5]])


def test_actions_as_numbers():
    cpu = torch.device("cpu")
    several = Actions(alone(action=MultiDiscrete([2, 3])), (0,), what="test", device=cpu)
    assert several.numbers(np.array([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    box = Actions(alone(action=Box(np.float32([-1.0, -np.inf]), np.float32([3.0, np.inf]))), (0,), what="test", device=cpu)  # fmt: skip
    assert box.numbers(np.array([[3.0, 7.0], [0.0, -7.0]], np.float32)).tolist() == [[1.0, 7.0], [-0.5, -7.0]]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TabularQ(learned_reward="rnd"), "learns from the game's rewards only"),
        (lambda: MMD(learned_reward="rnd"), "learns from the game's rewards only"),
        (lambda: PPO(learned_reward="rdn"), "did you mean 'rnd'"),
        (lambda: PPO(learned_reward={"kind": "rnd", "featurs": 3}), "did you mean 'features'"),
        (
            lambda: PPO(learned_reward={"kind": "ludus.replay.processing:RewardScale", "factor": 2}),
            "is no learned reward",
        ),
        (lambda: TD3(learned_reward={"kind": "gail", "demonstrations": "x"}), "learns from older rows too"),
        (
            lambda: PPO(memory="gru", learned_reward={"kind": "airl", "demonstrations": "x"}),
            "log-probabilities of single",
        ),
    ],
)
def test_learned_rewards_reject_unsupported_settings(make, says):
    with pytest.raises(ConfigError, match=says):
        make()


def test_images_are_asked_for_before_anything_starts(tensors):
    with pytest.raises(ScenarioError, match=r"learned_reward\.network=nature sees images"):
        check_fits(PPO(learned_reward={"kind": "rnd", "network": "nature"}), tensors, (0,))


def test_learning_in_place_is_left(tensors):
    options = {"learned_reward": Told(), "normalise_observations": True, **SMALL}
    assert PPO(**options).learner(context_of(tensors)).on_device_unsupported_reason() == "its rewards are learned"


@pytest.mark.parametrize(
    "algorithm",
    [
        MADDPG(rollout=40, start_decisions=10, hidden=(8,), batch=8, learned_reward=Told(extrinsic=0.0)),
        QMIX(rollout=40, min_size=10, hidden=(8,), batch=8, learned_reward=Told(extrinsic=0.0)),
    ],
)
def test_a_team_learns_from_the_sum_of_its_agents_rewards(algorithm):
    """Joint steps are made of what each agent is paid for its own decisions."""
    env = team_env()
    learner = algorithm.learner(context_of(env))
    rows = team_rollout(env, learner, pieces=3, rng=np.random.default_rng(0))
    total = sum(float(columns["reward"].sum()) for _, columns in learner.items(rows))
    assert total == pytest.approx(np.arange(1, rows.num_rows + 1).sum())
