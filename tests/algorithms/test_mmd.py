"""Magnetic mirror descent and R-NaD: terms against closed forms and autograd, rewards, the contract, and what each option changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.algorithms.common import losses
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.mmd.config import MMD, RNaD
from ludus.algorithms.mmd.kernels import log_policy, log_uniform, policy_losses
from ludus.algorithms.mmd.magnet import regularized
from ludus.algorithms.mmd.tabular_learner import mirror_step
from ludus.algorithms.on_policy.kernels import compress
from ludus.core.errors import ConfigError, ScenarioError
from ludus.policies.registry import build_policy
from ludus.replay.kinds import build_table
from ludus.replay.trajectories import Trajectories
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

T = torch.tensor
SMALL = {"batch": 40, "hidden": (8,), "epochs": 3}


def one_state(q, before):
    """Compressed rows of one state whose surrogate is -Σ π(a) q(a): 1,000 × before(a) rows of each action, with advantage q(a)."""
    count = np.rint(1000 * before).astype(int)
    action = np.repeat(np.arange(len(q), dtype=np.int32), count)
    state, zero = np.zeros(len(action), np.int32), np.zeros(len(action))
    return compress(state, action, np.log(before)[action], q[action], zero, states=1, actions=len(q))


def descend(compressed, mask, *, magnet, before, alpha, beta, steps=4000, rate=0.5):
    """The policy that minimises the terms, by gradient descent on one state's logits."""
    logits, gradient = np.zeros((1, mask.shape[1])), np.zeros((1, mask.shape[1]))
    weights = {"alpha": alpha, "beta": beta, "clip": None, "gradient": gradient}
    for _ in range(steps):
        policy_losses(logits, mask, compressed, magnet=np.log(magnet)[None], before=np.log(before)[None], **weights)
        logits -= rate * gradient
    return np.exp(log_policy(logits, mask))[0]


def test_terms_literal():
    """π = (3/4, 1/4) against uniform: KL = log 2 - H(π); against before = (1/2, 1/2) the ratios are 3/2 and 1/2."""
    mask, before = np.ones((1, 2), bool), np.array([0.5, 0.5])
    out, gradient = np.log([[3.0, 1.0]]), np.zeros((1, 2))
    compressed = one_state(np.array([1.0, -1.0]), before)
    names = {"magnet": log_uniform(mask), "before": np.log(before)[None], "gradient": gradient}
    found = policy_losses(out, mask, compressed, alpha=2.0, beta=0.0, clip=None, **names)
    h = -0.75 * np.log(0.75) - 0.25 * np.log(0.25)
    assert found.surrogate == pytest.approx(-0.5)  # -(3/4 - 1/4)
    assert (found.entropy, found.magnet, found.moved) == pytest.approx((h, np.log(2) - h, np.log(2) - h))
    # d(-Σ π q) / d logit_0 = -π0 (q0 - Σ π q) = -3/4 × 1/2; d KL = π0 (log(π0 / ½) - KL)
    pull = 0.75 * (np.log(1.5) - (np.log(2) - h))
    np.testing.assert_allclose(gradient, [[-0.375 + 2 * pull, 0.375 - 2 * pull]], atol=1e-12)
    clipped = policy_losses(out, mask, compressed, alpha=0.0, beta=0.0, clip=0.2, **names)
    assert clipped.surrogate == pytest.approx(-0.5 * 1.2 + 0.5 * 0.8)
    assert clipped.clipped == 1.0
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize(("alpha", "eta"), [(0.3, 0.5), (1.0, 5.0), (0.0, 1.0), (0.5, None)])
def test_one_step_is_the_closed_form_of_mirror_descent(alpha, eta):
    """Sokota et al. 2023: π' ∝ [π^(1/η) magnet^α exp(q)]^(1 / (α + 1/η))."""
    q, before, magnet = np.array([0.3, -0.2, 0.1]), np.array([0.5, 0.2, 0.3]), np.array([0.2, 0.2, 0.6])
    beta = 0.0 if eta is None else 1.0 / eta
    mask = np.ones((1, 3), bool)
    found = descend(one_state(q, before), mask, magnet=magnet, before=before, alpha=alpha, beta=beta)
    expected = (before**beta * magnet**alpha * np.exp(q)) ** (1.0 / (alpha + beta))
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)
    if eta is not None:
        step = mirror_step(np.log(before)[None], np.log(magnet)[None], q[None], mask, alpha=alpha, eta=eta)
        np.testing.assert_allclose(np.exp(step[0]), expected / expected.sum(), atol=1e-12)


def test_self_play_converges_to_the_quantal_response_equilibrium_of_biased_rock_paper_scissors():
    """Whose condition is π = softmax(A π / α); without the magnet the same steps only circle."""
    payoff = np.array([[0.0, -1.0, 3.0], [1.0, 0.0, -1.0], [-3.0, 1.0, 0.0]])
    mask, ends = np.ones((1, 3), bool), {}
    for alpha in (0.5, 0.0):
        policy = np.array([0.6, 0.2, 0.2])
        for _ in range(600):
            q = payoff @ policy
            state, action = np.zeros(3, np.int32), np.arange(3, dtype=np.int32)
            compressed = compress(state, action, np.log(np.full(3, 1 / 3)), q, q, states=1, actions=3)  # -Σ π(a) q(a)
            policy = descend_from(policy, compressed, mask, alpha=alpha, eta=0.1)
        ends[alpha] = policy
    fixed = np.exp(payoff @ ends[0.5] / 0.5)
    np.testing.assert_allclose(ends[0.5], fixed / fixed.sum(), atol=1e-4)
    nash = np.array([1.0, 3.0, 1.0]) / 5.0
    np.testing.assert_allclose(payoff @ nash, 0.0, atol=1e-12)
    assert np.abs(ends[0.0] - nash).max() > 0.2


def descend_from(policy, compressed, mask, *, alpha, eta):
    """One step of size eta, in closed form on the gradient of the terms at the policy: logits move by -eta × gradient / π."""
    gradient = np.zeros((1, 3))
    logits = np.log(policy)[None]
    weights = {"alpha": alpha, "beta": 0.0, "clip": None, "gradient": gradient}
    policy_losses(logits, mask, compressed, magnet=log_uniform(mask), before=logits, **weights)
    return np.exp(log_policy(logits - eta * gradient / policy, mask))[0]


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, states, actions = draw(st.integers(1, 60)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    mask = rng.random((states, actions)) < 0.7
    mask[np.arange(states), rng.integers(0, actions, states)] = True
    state = rng.integers(0, states, n).astype(np.int32)
    action = np.array([rng.choice(np.flatnonzero(mask[s])) for s in state], np.int32)
    before, magnet = (log_policy(rng.standard_normal((states, actions)), mask) for _ in range(2))
    options = {"alpha": draw(st.sampled_from([0.0, 0.3])), "beta": draw(st.sampled_from([0.0, 0.7]))}
    options["clip"] = draw(st.sampled_from([None, 0.1]))
    out = rng.standard_normal((states, actions + 1)) * draw(st.sampled_from([0.1, 3.0]))
    return mask, state, action, rng.standard_normal(n), before, magnet, out, options


@given(problems())
def test_terms_and_gradients_are_those_of_the_rows(problem):
    mask, state, action, advantage, before, magnet, given_out, options = problem
    actions = mask.shape[1]
    out, index, legal = T(given_out, requires_grad=True), T(state).long(), T(mask)
    logp = losses.masked_log_softmax(out[:, :actions], legal)
    finite = logp.masked_fill(~legal, 0.0)
    to = [((logp.exp() * (finite - T(other))).sum(1))[index].mean() for other in (magnet, before)]
    taken, old = logp[index, T(action).long()], T(before[state, action])
    clip = options["clip"] or 1e9
    surrogate = losses.ppo_surrogate(taken, old, T(advantage), clip=clip).mean()
    (surrogate + options["alpha"] * to[0] + options["beta"] * to[1]).backward()
    compressed = compress(state, action, before[state, action], advantage, advantage, states=len(mask), actions=actions)
    gradient = np.zeros_like(given_out)
    found = policy_losses(given_out, mask, compressed, magnet=magnet, before=before, gradient=gradient, **options)
    expected = [x.item() for x in (surrogate, *to)]
    np.testing.assert_allclose([found.surrogate, found.magnet, found.moved], expected, atol=1e-10)
    np.testing.assert_allclose(gradient[:, :actions], out.grad.numpy()[:, :actions], atol=1e-10)
    assert (gradient[:, :actions][~mask] == 0.0).all()


# ------------------------------------------------------------------ rewards


def played(episodes):
    """Trajectories of episodes, each a list of (t, seat) of its decisions."""
    start, t, seat, episode = [0], [], [], []
    for e, moves in enumerate(episodes):
        for s in sorted({s for _, s in moves}):
            t += [when for when, who in moves if who == s]
            start.append(len(t))
            seat.append(s)
            episode.append(e)
    n, segments = len(t), len(seat)
    zero, none = np.zeros(n, np.float32), np.zeros(segments, np.int32)
    return Trajectories(
        start=np.array(start),
        observation=np.zeros(n, np.int32),
        action=np.zeros(n, np.int32),
        logp=zero,
        reward=zero,
        mask=None,
        t=np.array(t, np.int32),
        tail=none.astype(np.int8),
        bootstrap_observation=none - 1,
        bootstrap_mask=None,
        agent=np.array(seat, np.int16),
        seat=np.array(seat, np.int8),
        episode=np.array(episode, np.int64),
        version_lo=none,
        version_hi=none,
        policy="p",
    )


def test_reward_transformation_literal():
    """Seat 0 acts at 0 and 2, seat 1 at 1 and 3; in the second episode both act at once, at 5."""
    rows = played([[(0, 0), (1, 1), (2, 0), (3, 1)], [(5, 0), (5, 1)]])
    cost = np.array([1.0, 2.0, 10.0, 20.0, 3.0, 30.0])  # seat 0: 1, 2; seat 1: 10, 20; then one each
    own = regularized(rows, np.zeros(6), cost, opponents=False)
    assert own.tolist() == [-1, -2, -10, -20, -3, -30]
    both = regularized(rows, np.zeros(6), cost, opponents=True)
    # seat 0's first action precedes all of seat 1's decisions: it is paid to nobody
    assert both.tolist() == [-1 + 10, -2 + 20, -10 + 2, -20, -3 + 30, -30 + 3]


def test_fragments_of_one_episode_are_each_paid_what_is_theirs():
    """As asynchronous workers bring them together: seat 0 at 0, 2 and 4, 6; seat 1 at 1, 3 and 5, each of which costs 1."""
    rows = played([[(0, 0), (1, 1), (2, 0), (3, 1)], [(4, 0), (5, 1), (6, 0)]])
    rows = replace(rows, episode=np.zeros(4, np.int64))
    cost = np.repeat(rows.seat, np.diff(rows.start)).astype(np.float64)
    found = regularized(rows, np.zeros(rows.num_rows), cost, opponents=True)
    assert found.tolist() == [1, 1, -1, -1, 1, 0, -1]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=1, unique=True), min_size=1, max_size=5)
)
def test_transformed_rewards_still_sum_to_zero(episodes):
    """But for what is paid before a player's first decision, which no decision of its own can change."""
    rows = played([sorted(moves) for moves in episodes])
    rng = np.random.default_rng(len(rows.t))
    cost, where = rng.standard_normal(rows.num_rows), np.repeat(np.arange(rows.num_segments), np.diff(rows.start))
    found = regularized(rows, np.zeros(rows.num_rows), cost, opponents=True)
    for e in range(len(episodes)):
        mine = rows.episode[where] == e
        first = [rows.t[mine & (rows.seat[where] == s)].min(initial=99) for s in (0, 1)]
        lost = sum(cost[mine & (rows.seat[where] == s) & (rows.t < first[1 - s])].sum() for s in (0, 1))
        assert found[mine].sum() == pytest.approx(-lost, abs=1e-9)


# ------------------------------------------------------------------ the learner


VARIANTS = {
    "mmd": ("tensors", MMD(**SMALL)),
    "mmd-moving-separate-clipped": (
        "enumerated",
        MMD(magnet="moving", value_network="separate", clip=0.2, **SMALL),
    ),
    "mmd-minibatches-decisions": ("tensors", MMD(minibatches=3, batch_unit="decisions", max_lag=1, **SMALL)),
    "mmd-announces-magnet": ("tensors", MMD(magnet="moving", announce="magnet", **SMALL)),
    "rnad": ("enumerated", RNaD(magnet_period=2, **SMALL)),
    "rnad-announces-average": ("enumerated", RNaD(announce="average", magnet_period=2, **SMALL)),
    "rnad-loss": ("tensors", RNaD(magnet_period=1, regularise="loss", activation="tanh", **SMALL)),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_mmd_satisfies_algorithm_contract(name, request):
    kind, algorithm = VARIANTS[name]
    check_algorithm(algorithm, request.getfixturevalue(kind), seats=(0, 1), rounds=2)


TABLES = {
    "mmd": MMD(network="table", batch=40),
    "mmd-announces-magnet": MMD(network="table", magnet="moving", announce="magnet", batch=40),
    "rnad": RNaD(network="table", eta=0.3, magnet_period=2, batch_unit="decisions", batch=40),
    "rnad-announces-average": RNaD(network="table", eta=0.3, announce="average", batch=40),
}


@pytest.mark.parametrize("name", TABLES)
def test_mmd_satisfies_algorithm_contract_with_tables(name, enumerated, tensors):
    check_algorithm(TABLES[name], enumerated, seats=(0, 1), rounds=2)
    with pytest.raises(ScenarioError, match="compiled to a tree"):
        TABLES[name].check(tensors)


@pytest.mark.parametrize("network", ["mlp", "table"])
def test_the_magnet_is_announced_and_the_newest_policy_plays(network, enumerated):
    learned = {**SMALL, "learning_rate": 0.05} if network == "mlp" else {"batch": SMALL["batch"]}
    options = {**learned, "network": network, "magnet": "moving", "magnet_rate": 1e-4}
    algorithm = MMD(announce="magnet", **options)
    assert algorithm.collect().modes == (("newest", 1.0),)
    assert MMD(**options).collect().modes == ()
    learner = algorithm.learner(LearnerContext(enumerated, (1,), 3, total=160))
    table = build_table(algorithm.tables()[0])
    for k in range(4):
        policy = build_policy(learner.spec, learner.weights())
        rows = synthetic_rollout(enumerated, policy, seats=(1,), segments=40, rng=np.random.default_rng(k))
        table.try_insert(learner.items(rows)[0][1])
        learner.update(table.try_sample(0, np.random.default_rng(0)))
    policy = build_policy(learner.spec, learner.weights())
    newest, announced = (policy.tabulate(enumerated.enumeration, 1, mode=mode) for mode in ("newest", "explore"))
    uniform = enumerated.enumeration.mask[8:14] / enumerated.enumeration.mask[8:14].sum(1, keepdims=True)
    assert np.abs(announced - uniform).max() < 0.02 < np.abs(newest - uniform).max()
    warm = algorithm.learner(LearnerContext(enumerated, (1,), 4), learner.weights())
    again = build_policy(warm.spec, warm.weights()).tabulate(enumerated.enumeration, 1, mode="newest")
    np.testing.assert_allclose(again, announced, atol=1e-6)


def test_only_the_acting_policy_is_mixed_with_uniform(enumerated):
    options = {"network": "table", "magnet": "moving", "announce": "magnet"}
    context = LearnerContext(enumerated, (1,), 0)
    mask = enumerated.enumeration.mask[8:14]
    start = {f"{part}/probs": (mask & (mask.cumsum(1) == 1)).astype(float) for part in ("newest", "average")}
    plain, mixed = (MMD(explore=share, **options).learner(context, start).weights() for share in (0.0, 0.3))
    np.testing.assert_array_equal(plain["average/probs"], mixed["average/probs"])
    expected = 0.7 * plain["newest/probs"] + 0.3 * mask / mask.sum(1, keepdims=True)
    np.testing.assert_allclose(mixed["newest/probs"], expected, atol=1e-12)
    with pytest.raises(ConfigError, match="explore is for network=table"):
        MMD(explore=0.1)


def test_advantages_of_a_table_literal(enumerated):
    """One state, three rows: action 0 twice with A = 1/2, 1 and π = 1/2, another once with A = -1 and π = 1/4, within ±1."""
    learner = MMD(network="table", bound=1.0).learner(LearnerContext(enumerated, (1,), 0))
    columns = {
        "advantage": np.array([0.5, 1.0, -1.0]),
        "logp": np.log([0.5, 0.5, 0.25]),
        "action": np.array([0, 0, 2]),
    }
    found = learner._advantages(columns, np.array([4, 4, 4]), np.array([0, 0, 0, 0, 3.0, 0]))
    np.testing.assert_allclose(found[4], [1.0, 0.0, -1.0])  # (1 + 2) / 3 and -4 / 3
    assert not found[:4].any()


def learned(algorithm, env, *, updates=4, seats=(1,)):
    learner = algorithm.learner(LearnerContext(env, seats, 3, total=updates * 40))
    table, metrics = build_table(algorithm.tables()[0]), {}
    for k in range(updates):
        policy = build_policy(learner.spec, learner.weights())
        rollout = synthetic_rollout(env, policy, seats=seats, segments=40, rng=np.random.default_rng(k), version=k)
        ((_, items),) = learner.items(rollout)
        table.try_insert(items)
        metrics = learner.update(table.try_sample(0, np.random.default_rng(0)))
    return np.concatenate([array.ravel() for array in learner.weights().values()]), metrics


@pytest.mark.parametrize(
    "changed",
    [
        {"alpha": 0.5},
        {"eta": 0.01},
        {"magnet": "moving"},
        {"magnet": "policy", "magnet_period": 2},
        {"magnet": "policy", "regularise": "reward"},
        {"clip": 0.01},
        {"minibatches": 2},
        {"gae_lambda": 0.0},
        {"scale_rewards": False},
        {"max_gradient_norm": 0.01},
    ],
    ids=str,
)
def test_each_option_changes_what_is_learned(changed, enumerated):
    plain, _ = learned(MMD(**SMALL), enumerated)
    other, _ = learned(MMD(**{**SMALL, **changed}), enumerated)
    assert np.abs(plain - other).max() > 1e-7


def test_a_small_step_size_holds_the_policy_and_a_strong_magnet_makes_it_uniform(enumerated):
    free, held = (learned(MMD(eta=eta, alpha=0.0, **SMALL), enumerated)[1]["kl"] for eta in (0.0, 0.001))
    assert held < 0.2 * free
    weak, strong = (learned(MMD(alpha=alpha, **SMALL), enumerated)[1]["kl_magnet"] for alpha in (0.0, 100.0))
    assert strong < 0.2 * weak


def test_mmd_rejects_unsupported_settings():
    with pytest.raises(ConfigError, match="regularises nothing"):
        RNaD(alpha=0.0)
    with pytest.raises(ConfigError, match="would announce the uniform policy"):
        MMD(announce="magnet")
    with pytest.raises(ConfigError, match="above 0"):
        MMD(network="table", eta=0.0)
