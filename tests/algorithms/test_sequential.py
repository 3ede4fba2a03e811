"""HAPPO, HATRPO, A2PO and CoPPO: the contract, whole updates beside plain loops, and in which order agents have their turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from team_games import learner_of, rollouts, team_env, team_rollout, train
from together import assert_ranks_learn_alike

from ludus.algorithms.common.base import LearnerContext
from ludus.contrib.algorithms.sequential.config import A2PO, HAPPO, HATRPO, CoPPO
from ludus.contrib.algorithms.sequential.learner import SequentialUpdateLearner
from ludus.core.errors import ConfigError, ScenarioError
from ludus.policies.actor_critic import make_network, member_spec
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm

SMALL = {"batch": 40, "batch_unit": "episodes", "epochs": 2, "hidden": (8,), "memory_size": 4, "sequence": 3}
BOX = Box(-1.0, 3.0, (2, 1), np.float32)


def make(kind, **options):
    return kind(**{**SMALL, **options})


CASES = {
    "happo, minibatches": (make(HAPPO, minibatches=2, normalise_observations=True), Discrete(3)),
    "happo, shared": (make(HAPPO, share_weights=True, order="fixed", target_kl=0.01), MultiDiscrete([2, 3])),
    "happo, rewards of its own": (make(HAPPO, learned_reward={"kind": "rnd", "hidden": (4,)}), Discrete(3)),
    "hatrpo": (make(HATRPO, entropy=0.01, minibatches=2, normalise_observations=True), Discrete(3)),
    "hatrpo, shared lstm": (make(HATRPO, memory="lstm", share_weights=True), BOX),
    "a2po": (make(A2PO, clip_value=0.2), Discrete(3)),
    "a2po, shared gru": (make(A2PO, memory="gru", share_weights=True, minibatches=2), BOX),
    "coppo": (make(CoPPO, minibatches=3), Discrete(3)),
    "coppo, separate gru": (make(CoPPO, memory="gru", share_weights=False, minibatches=2), BOX),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n.split()[-1] in ("gru", "lstm", "own"))) for n in CASES]
)
def test_sequential_updates_satisfy_algorithm_contract(name):
    algorithm, action = CASES[name]
    env = team_env(action=action)
    made = rollouts(env)
    check_algorithm(
        algorithm,
        env,
        rollouts=(lambda *given: several(made(*given))) if isinstance(action, MultiDiscrete) else made,
        rounds=2,
    )


def several(rows):
    """Of two choices and three."""
    rng = np.random.default_rng(rows.num_rows)
    action = np.stack([rng.integers(2, size=rows.num_rows), rng.integers(3, size=rows.num_rows)], axis=1)
    return replace(rows, action=action.astype(np.int64), mask=None, bootstrap_mask=None)


# ------------------------------------------------------------------ whole updates beside plain loops

TWIN = {
    "batch": 10, "epochs": 6, "hidden": (6,), "max_gradient_norm": 0.0, "learning_rate": 0.03, "normalise_returns": False,
    "gamma": 0.9, "gae_lambda": 0.8, "entropy": 0.05, "order": "fixed",
}  # fmt: skip


def sampled(algorithm, env, *, number=1):
    """(learner, its items of a rollout with the log-probabilities of its own policy, the rollout)."""
    learner = learner_of(algorithm, env)
    rows = team_rollout(env, learner, pieces=12, rng=np.random.default_rng([number, 5]))
    ends = np.zeros(rows.num_rows, np.bool_)
    ends[rows.start[1:] - 1] = True
    rows = replace(rows, dt=np.where(ends, 1, np.append(rows.t[1:], 0) - rows.t).astype(np.int32))
    ((_, columns),) = learner.items(rows)
    logp = learner.model.log_prob(learner._items.batch(columns)[0]).detach().numpy()
    there = slice(None)
    if "length" in columns:
        there = np.arange(columns["logp"].shape[1]) < columns["length"][:, None]
    recorded = columns["logp"].copy()
    recorded[there] = logp
    items = len(columns["version_lo"])
    return learner, Sample({**columns, "logp": recorded}, np.arange(items), np.ones(items)), rows


class PlainAdam:
    """Kingma and Ba 2015, algorithm 1."""

    def __init__(self, network):
        self.parameters, self.steps = list(network.parameters()), 0
        self.m, self.v = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))

    def step(self, loss):
        self.steps += 1
        for p, g, m, v in zip(self.parameters, torch.autograd.grad(loss, self.parameters), self.m, self.v, strict=True):
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g * g)
            first, second = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            p.data -= 0.03 * first / (second.sqrt() + 1e-5)


def plain_update(algorithm, learner, columns, rows):
    """Weights after one update, row by row where rows have to do with each other."""
    config, spec, agents = algorithm, learner.spec, 3
    length = np.diff(rows.start)
    agent, episode = np.repeat(rows.agent, length) % agents, np.repeat(rows.episode, length)
    weights = learner.weights()
    shared = "agents" not in spec.config
    networks, adams = [], []
    for k in range(1 if shared else agents):
        network = make_network(member_spec(spec))
        prefix = "" if shared else f"members.{k}."
        network.load_state_dict(
            {n.removeprefix(prefix): torch.tensor(a) for n, a in weights.items() if n.startswith(prefix)}
        )
        networks.append(network)
        adams.append(PlainAdam(network))
    x, state, mask = (torch.from_numpy(c) for c in (rows.observation, rows.state, rows.mask))
    old, action = torch.from_numpy(columns["logp"]), torch.from_numpy(rows.action.astype(np.int64))

    def looked(which, network):
        out, value, _ = network(x[which], None, None, state[which])
        logs = torch.log_softmax(out.masked_fill(~mask[which], -torch.inf), dim=1)
        chance = logs.exp()
        entropy = -(chance * logs.masked_fill(~mask[which], 0.0)).sum(dim=1)
        return logs.gather(1, action[which][:, None])[:, 0], value, entropy

    ratio = np.ones(rows.num_rows)
    order = [k for k in range(agents) if (agent == k).any()]
    for place, k in enumerate(order):
        network, adam = (networks[0], adams[0]) if shared else (networks[k], adams[k])
        which = np.flatnonzero(agent == k)
        others, joint = [], []
        for row in which:
            same = [j for j in range(rows.num_rows) if (episode[j], rows.t[j]) == (episode[row], rows.t[row])]
            others.append(np.prod([ratio[j] for j in same if j != row]))
            joint.append({int(rows.t[j]): ratio[j] for j in same})
        advantage, target = columns["advantage"][which].astype(float), columns["target"][which].astype(float)
        if config.corrects:
            advantage = corrected(config, rows, columns, ratio, agent, episode, k)
            target = advantage + columns["value"][which]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clip = config.clip * (0.5 + 0.5 * (place + 1) / len(order)) if isinstance(config, A2PO) else config.clip
        held, gain = torch.tensor(others), torch.tensor(advantage)
        for _ in range(config.epochs):
            logp, value, entropy = looked(which, network)
            r = (logp - old[which]).exp()
            if isinstance(config, A2PO):
                r = r * held.clamp(1 - clip / 2, 1 + clip / 2)
                surrogate = torch.minimum(r * gain, r.clamp(1 - clip, 1 + clip) * gain)
            else:
                surrogate = held * torch.minimum(r * gain, r.clamp(1 - clip, 1 + clip) * gain)
            loss = (-surrogate - 0.05 * entropy + 0.5 * (value - torch.tensor(target)).square()).mean()
            adam.step(loss)
        with torch.no_grad():
            moved = range(agents) if shared else [k]
            for j in moved:
                theirs = np.flatnonzero(agent == j)
                ratio[theirs] = (looked(theirs, network)[0] - old[theirs]).exp().numpy()
    named = [("" if shared else f"members.{k}.", network) for k, network in enumerate(networks)]
    return {prefix + n: p.detach().numpy() for prefix, network in named for n, p in network.named_parameters()}


def corrected(config, rows, columns, ratio, agent, episode, k):
    """Advantages of agent k's rows, segment by segment; where its teammates act while it does not, that counts, too."""
    out = []
    length = np.diff(rows.start)
    owner = np.repeat(np.arange(rows.num_segments), length)
    for s in range(rows.num_segments):
        mine = np.flatnonzero(owner == s)
        if agent[mine[0]] != k:
            continue
        advantage = columns["advantage"][mine].astype(float)
        apart = np.diff(rows.t[mine]) if config.discount == "step" else np.ones(len(mine) - 1)
        decay = np.append(config.gae_lambda * config.gamma**apart, 0.0)  # to the next row
        delta = advantage - decay * np.append(advantage[1:], 0.0)
        held = [1.0]
        for before, now in pairwise(mine):
            weight = 1.0
            for t in range(rows.t[before] + 1, rows.t[now] + 1):
                there = [ratio[j] for j in range(rows.num_rows) if (episode[j], rows.t[j]) == (episode[now], t)]
                weight *= min(1.0, float(np.prod(there)))
            held.append(weight)
        for t in range(len(mine)):
            weights = np.cumprod([1.0, *(decay[k - 1] * held[k] for k in range(t + 1, len(mine)))])
            out.append(float(weights @ delta[t:]))
    return np.array(out)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (HAPPO, {"share_weights": False}),
        (HAPPO, {"share_weights": True}),
        (A2PO, {"share_weights": False, "discount": "step"}),
        (A2PO, {"share_weights": True}),
    ],
    ids=str,
)
def test_an_update_is_that_of_plain_loops(kind, options):
    algorithm, env = kind(**TWIN, **options), team_env(players=1)
    learner, sample, rows = sampled(algorithm, env)
    expected = plain_update(algorithm, learner, sample.columns, rows)
    learner.update(sample)
    found = learner.weights()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=2e-5, err_msg=name)


# ------------------------------------------------------------------ turns


def turns_of(learner, sample, monkeypatch):
    taken = []
    plainly = SequentialUpdateLearner._turn

    def told(self, agent, *rest):
        before = self.weights()
        out = plainly(self, agent, *rest)
        moved = {n.split(".")[1] for n, a in self.weights().items() if not np.array_equal(a, before[n])}
        taken.append((agent, moved))
        return out

    monkeypatch.setattr(SequentialUpdateLearner, "_turn", told)
    learner.update(sample)
    return taken


@pytest.mark.parametrize("kind", [HAPPO, HATRPO, A2PO])
def test_a_turn_moves_one_agent_alone(kind, monkeypatch):
    """Momentum of the update before included."""
    learner, sample, _ = sampled(make(kind, order="fixed"), team_env(players=1))
    learner.update(sample)
    assert turns_of(learner, sample, monkeypatch) == [(0, {"0"}), (1, {"1"}), (2, {"2"})]


def test_agents_without_rows_have_no_turn(monkeypatch):
    learner, sample, rows = sampled(make(HAPPO), team_env(players=1))
    mine = np.repeat(rows.agent, np.diff(rows.start)) != 1
    kept = replace(sample, columns={name: column[mine] for name, column in sample.columns.items()})
    assert {agent for agent, _ in turns_of(learner, kept, monkeypatch)} == {0, 2}


def orders(order, *, seeds, scale):
    """Which agent has the first turn, and which the second, over many updates; advantages of agent k are multiplied by scale[k]."""
    algorithm, env = make(HAPPO, order=order, epochs=1, learning_rate=0.0), team_env(players=1)
    learner, sample, rows = sampled(algorithm, env)
    agent = np.repeat(rows.agent, np.diff(rows.start))
    advantage = (np.sign(sample.columns["advantage"]) * np.array(scale)[agent]).astype(np.float32)
    given = replace(sample, columns={**sample.columns, "advantage": advantage})
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SequentialUpdateLearner, "_turn", lambda self, agent, *_: found.append(agent) or {})
        for _ in range(seeds):
            learner.update(given)
    return np.array(found).reshape(-1, 3)


def test_the_order_of_turns():
    assert orders("fixed", seeds=2, scale=[1, 3, 2]).tolist() == [[0, 1, 2]] * 2
    assert orders("greedy", seeds=2, scale=[1, 3, 2]).tolist() == [[1, 2, 0]] * 2
    semi = orders("semi_greedy", seeds=40, scale=[1, 3, 2])
    assert set(semi[:, 0]) == {1}
    assert set(semi[:, 1]) == {0, 2}
    random = orders("random", seeds=120, scale=[1, 3, 2])
    assert np.bincount(random[:, 0]).min() >= 20  # of 40; six standard deviations are 31
    assert len(np.unique(random, axis=0)) == 6


def test_hatrpo_goes_no_further_than_its_limit():
    learner, sample, rows = sampled(make(HATRPO, max_kl=0.002, damping=0.01), team_env(players=1))
    told = learner.update(sample)
    assert 0.0 < told["kl"] <= 0.002
    assert 0.0 < told["step"] <= 1.0
    batch = learner._items.batch(sample.columns)[0]
    change = learner.model.log_prob(batch).detach().numpy() - sample.columns["logp"]
    assert 0.0 < np.abs(change).max() < 0.5
    assert len(change) == rows.num_rows


# ------------------------------------------------------------------ all at once


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_all_are_told_what_their_teammates_ratios_are_by_now(memory, monkeypatch):
    """Before each of 2 × 3 steps, beside a plain loop over the rows of a minibatch, which are told apart by what they see; what a team did
    at one time is in one minibatch."""
    algorithm = make(CoPPO, minibatches=3, memory=memory, learning_rate=0.05)
    learner, sample, rows = sampled(algorithm, team_env(players=1))
    when = np.stack([np.repeat(rows.episode, np.diff(rows.start)), rows.t], axis=1).tolist()
    step_of = dict(zip(map(tuple, rows.observation.tolist()), map(tuple, when), strict=True))
    seen, plainly = [], learner.model.prepare

    def prepare(part, which):
        ratio = (learner.model.log_prob(part).detach() - part.logp).exp().tolist()
        seen.append(([step_of[tuple(x)] for x in part.x.tolist()], ratio, part.others.numpy()))
        return plainly(part, which)

    monkeypatch.setattr(learner.model, "prepare", prepare)
    learner.update(sample)
    assert len(seen) == 6
    for epoch in (seen[:3], seen[3:]):
        steps = [set(part[0]) for part in epoch]
        assert sum(map(len, steps)) == len(set().union(*steps)) == len(set(step_of.values()))
    for steps, ratio, others in seen:
        expected = [
            np.prod([r for j, r in enumerate(ratio) if steps[j] == step and j != i]) for i, step in enumerate(steps)
        ]
        np.testing.assert_allclose(others, expected, rtol=1e-4)
    assert np.ptp(seen[0][2]) < 1e-4 < np.ptp(seen[-1][2])


@pytest.mark.parametrize("kind", [HAPPO, HATRPO, A2PO, CoPPO])
def test_ranks_learn_what_one_learner_does(kind):
    algorithm = make(kind, minibatches=2)
    env = team_env(players=1)
    batches = [sampled(algorithm, env, number=k)[1] for k in range(2)]
    assert_ranks_learn_alike(2, lambda ranks: algorithm.learner(LearnerContext(env, (0,), 0, ranks=ranks)), batches)


def test_sequential_updates_reject_unsupported_settings():
    with pytest.raises(ScenarioError, match="sees the environment's state"):
        HAPPO().check(team_env(state=0))
    with pytest.raises(ScenarioError, match="Put the wrapper agent_ids"):
        A2PO().check(team_env(ids=False))
    CoPPO().check(team_env(ids=False))
    with pytest.raises(ConfigError, match="learned_reward"):
        A2PO(learned_reward={"kind": "rnd"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [HAPPO, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (HATRPO, A2PO, CoPPO))]
)
def test_a_team_learns_to_carry_together(kind):
    """Eight loads from 0 to 4, which what both do from 0 to 2 must add up to: guessing meets 8/5 of them, and agents that cannot tell who
    they are meet loads of 1 and 3 half the time, 6.4 in all."""
    algorithm = make(
        kind, hidden=(16,), epochs=4, minibatches=2, batch=640, batch_unit="decisions", gamma=0.9,
        learning_rate={"start": 0.01, "end": 0.0}, entropy={"start": 0.05, "end": 0.0},
    )  # fmt: skip
    options = {"teams": "one", "discrete": True, "wrappers": ["joint_state", "agent_ids"]}
    score, _ = train(algorithm, "team_games:Carry", num_envs=20, total=8000, **options)
    assert score >= 7.0
