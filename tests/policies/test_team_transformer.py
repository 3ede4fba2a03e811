"""A transformer over a team: what is decoded step by step, in one pass, and by a plain loop over the agents that are there."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ludus.algorithms.common.losses import distribution_of
from ludus.backend.device import DeviceChoice, UpdateCost, resolve_placement
from ludus.contrib.algorithms.mat.team_transformer import Sequences, make_team_transformer, starts_of
from ludus.core.errors import PolicyError
from ludus.policies.actor_critic import arrays_of
from ludus.policies.base import JointPolicy, Teams
from ludus.policies.file import load_policy, save_policy
from ludus.policies.heads import head_of
from ludus.policies.registry import build_policy
from ludus.policies.specs import team_transformer_spec
from ludus.testing.policy import check_policy

ACTIONS = {
    "one": {"kind": "categorical", "actions": 4},
    "several": {"kind": "multi_categorical", "choices": [3, 2]},
    "box": {"kind": "gaussian", "shape": [2], "low": [-1.0, None], "high": [3.0, None]},
    "squashed": {"kind": "tanh", "shape": [2], "low": [-1.0, 0.0], "high": [3.0, 1.0]},
}
TEAM = 4


def made(action="one", *, seed=0, **options):
    """(policy, network) whose layers matter: far from the small weights that networks begin with."""
    options = {"width": 8, "layers": 2, "heads": 2, **options}
    spec = team_transformer_spec(team=TEAM, shape=[3], action=ACTIONS[action], **options)
    network = make_team_transformer(spec, seed=seed, initial_std=0.5)
    rng = np.random.default_rng(seed)
    arrays = {
        name: array + (0 if "normaliser" in name else 0.4) * rng.standard_normal(array.shape).astype(np.float32)
        for name, array in arrays_of(network).items()
    }
    policy = build_policy(spec, arrays)
    return policy, policy.network


def rows(policy, *, groups=9, seed=0, masked=True):
    """Observations, legal actions, noise and teams of which about a third of the agents is missing."""
    rng = np.random.default_rng(seed)
    slot = np.flatnonzero(rng.random(groups * TEAM) < 0.65).astype(np.int32)
    n, head = len(slot), policy.network.head_of
    mask = None
    if masked and "categorical" in policy.spec.config["action"]["kind"]:
        counts = policy.network.code.choices if policy.network.autoregressive else [head.outputs]
        mask = rng.random((n, head.outputs)) < 0.6
        for end, count in zip(np.cumsum(counts), counts, strict=True):
            mask[np.arange(n), rng.integers(end - count, end, n)] = True
    noise = rng.random((n, policy.noise_width), dtype=np.float32)
    return rng.standard_normal((n, 3)).astype(np.float32), mask, noise, Teams.of(slot, TEAM)


def sequences(teams):
    return Sequences.of(starts_of(teams, team=TEAM), teams.place, torch.device("cpu"))


def parallel(policy, x, mask, action, teams):
    """(log-probabilities, values) of one pass over the actions that were taken."""
    with torch.no_grad():
        out, value = policy.network(torch.from_numpy(x), torch.from_numpy(action), sequences(teams))
    legal = None if mask is None else torch.from_numpy(mask)
    logp = distribution_of(policy.spec.config["action"]).log_prob(out, torch.from_numpy(action), legal)
    return logp.numpy(), value.numpy()


# ------------------------------------------------------------------ the two ways to evaluate it


@pytest.mark.parametrize("decoder", ["autoregressive", "decentralised"])
@pytest.mark.parametrize("action", ACTIONS)
def test_one_pass_says_what_was_decoded_step_by_step(action, decoder):
    """Of groups of different agents, some of whose actions are illegal."""
    policy, _ = made(action, decoder=decoder)
    x, mask, noise, teams = rows(policy, masked=decoder == "autoregressive")
    act = policy.act(x, mask, None, noise, teams=teams)
    logp, _ = parallel(policy, x, mask, act.action, teams)
    assert_allclose(logp, act.logp, rtol=2e-4, atol=2e-4)
    assert act.logp.std() > 0.05
    alone = [policy.act(*(None if c is None else c[at] for c in (x, mask)), None, noise[at], teams=teams.take(at))
             for at in (np.flatnonzero(teams.group == g) for g in np.unique(teams.group))]  # fmt: skip
    assert_allclose(np.concatenate([one.action for one in alone]), act.action, rtol=1e-3, atol=1e-3)


def _softmax(scores):
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


class Loop:
    """The network by its equations, in double precision, for the agents of one group: one query at a time, over what it may see."""

    def __init__(self, weights, heads):
        self.w, self.heads = {name: array.astype(np.float64) for name, array in weights.items()}, heads

    def linear(self, name, x):
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0.0)

    def norm(self, name, x):
        out = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return out * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def gelu(self, x):
        return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))

    def mlp(self, name, x, *, norm):
        x = self.gelu(self.linear(f"{name}.0", x))
        return self.linear(f"{name}.3", self.norm(f"{name}.2", x)) if norm else self.linear(f"{name}.2", x)

    def attend(self, name, query, seen):
        q, k, v = (self.linear(f"{name}.{part}", x) for part, x in (("query", query), ("key", seen), ("value", seen)))
        parts = []
        for mine in np.split(np.arange(len(q)), self.heads):
            chance = _softmax(k[:, mine] @ q[mine] / math.sqrt(len(mine)))
            parts.append(chance @ v[:, mine])
        return self.linear(f"{name}.out", np.concatenate(parts))

    def agents(self, x, place):
        r = self.norm("seen_norm", self.see("seen", x, place))
        for b in range(2):
            name = f"encoder.{b}"
            r = np.stack([self.norm(f"{name}.first", one + self.attend(f"{name}.attention", one, r)) for one in r])
            r = self.norm(f"{name}.second", r + self.mlp(f"{name}.mlp", r, norm=False))
        return r

    def see(self, name, x, place):
        return self.gelu(
            self.linear(f"{name}.linear", self.norm(f"{name}.norm", x)) + self.w[f"{name}.place.weight"][place]
        )

    def outputs(self, x, place, action):
        """(outputs, values) of a group."""
        r = self.agents(x, place)
        value = self.mlp("value", r, norm=True)[:, 0]
        out = []
        for k in range(len(x)):
            codes = np.eye(1 + 4)[[0, *(1 + action[:k])]]
            code = self.norm("code_norm", self.gelu(self.linear("code.linear", codes)))
            for b in range(2):
                name = f"decoder.{b}"
                code = np.stack([self.norm(f"{name}.first", code[i] + self.attend(f"{name}.actions", code[i], code[: i + 1]))
                                 for i in range(k + 1)])  # fmt: skip
                code = np.stack([self.norm(f"{name}.second", r[i] + self.attend(f"{name}.agents", r[i], code[: i + 1]))
                                 for i in range(k + 1)])  # fmt: skip
                code = self.norm(f"{name}.third", code + self.mlp(f"{name}.mlp", code, norm=False))
            out.append(self.mlp("head", code[-1], norm=True))
        return np.stack(out), value


def test_a_plain_loop_over_the_agents_that_are_there_says_the_same():
    policy, network = made()
    x, _, _, teams = rows(policy, groups=4)
    action = np.random.default_rng(1).integers(4, size=len(x)).astype(np.int32)
    with torch.no_grad():
        out, value = network(torch.from_numpy(x), torch.from_numpy(action), sequences(teams))
    loop, heads = Loop(policy.weights(), 2), {}
    for g in np.unique(teams.group):
        at = np.flatnonzero(teams.group == g)
        heads[g] = loop.outputs(x[at].astype(np.float64), teams.place[at], action[at])
    assert_allclose(out.numpy(), np.concatenate([o for o, _ in heads.values()]), rtol=1e-3, atol=1e-4)
    assert_allclose(value.numpy(), np.concatenate([v for _, v in heads.values()]), rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------ who depends on whom


@pytest.mark.parametrize("action", ACTIONS)
def test_outputs_depend_on_earlier_actions_alone_and_values_on_none(action):
    policy, network = made(action)
    x, _, noise, _ = rows(policy, groups=2, seed=3)
    teams = Teams.whole(TEAM, TEAM)
    x, there = torch.from_numpy(x[:TEAM]), sequences(teams)
    played = policy.act(x.numpy(), None, None, noise[:TEAM], teams=teams).action
    with torch.no_grad():
        out, value = network(x, torch.from_numpy(played), there)
        for k in range(TEAM):
            other = played.copy()
            other[k] = (other[k] + 1) % 2 if other.dtype.kind == "i" else other[k] - 0.5
            changed, same = network(x, torch.from_numpy(other), there)
            assert_array_equal(same, value)
            assert_array_equal(changed[: k + 1], out[: k + 1])
            if k + 1 < TEAM:
                assert (changed[k + 1 :, 0] != out[k + 1 :, 0]).all()


def test_everybody_sees_what_everybody_sees_unless_actors_are_alone():
    for decoder, outputs in (("autoregressive", True), ("decentralised", False)):
        _, network = made(decoder=decoder)
        x, there = torch.randn(TEAM, 3, generator=torch.Generator().manual_seed(0)), sequences(Teams.whole(TEAM, TEAM))
        action = torch.zeros(TEAM, dtype=torch.int64)
        with torch.no_grad():
            out, value = network(x, action, there)
            changed, values = network(torch.cat([x[:-1], x[-1:].flip(1)]), action, there)
        assert (changed[0] != out[0]).any() == outputs
        assert (values != value).all()


def test_agents_are_told_apart_though_they_see_the_same():
    _, network = made()
    out, value = network(
        torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), sequences(Teams.of(np.array([0, 7]), TEAM))
    )
    assert (out[0] != out[1]).all()
    assert value[0] != value[1]


def test_chances():
    """The probabilities by which it drew, given what was drawn before; not of decisions before which one is not made."""
    policy, _ = made()
    x, mask, noise, teams = rows(policy)
    act = policy.act(x, mask, None, noise, teams=teams)
    chances = policy.chances(x, mask, act.action, teams)
    assert_allclose(np.log(chances[np.arange(len(x)), act.action]), act.logp, rtol=2e-4, atol=2e-4)
    assert not chances[~mask].any()
    best = policy.act(x, mask, None, noise, mode="greedy", teams=teams).action
    greedy = policy.chances(x, mask, best, teams, mode="greedy")
    assert_array_equal(greedy.argmax(1), best)
    assert policy.chances(x, mask, np.full(len(x), -1), teams) is None
    assert policy.chances(x[:1], mask[:1], np.array([-1]), teams.take(np.array([0]))) is not None
    assert made("box")[0].chances(x, None, np.zeros((len(x), 2)), teams) is None


# ------------------------------------------------------------------ the policy


@pytest.mark.parametrize("decoder", ["autoregressive", "decentralised"])
@pytest.mark.parametrize("action", ["one", "box"])
def test_team_transformer_satisfies_policy_contract(action, decoder, tmp_path):
    policy, _ = made(action, decoder=decoder, normalise=["observations", "returns"])
    assert isinstance(policy, JointPolicy)
    x, mask, noise, teams = rows(policy, masked=decoder == "autoregressive")
    check_policy(policy, observation=x, mask=mask)
    save_policy(tmp_path / "it.safetensors", policy.spec, policy.weights())
    twin = load_policy(tmp_path / "it.safetensors")
    for one, other in zip(
        policy.act(x, mask, None, noise, teams=teams)[:2], twin.act(x, mask, None, noise, teams=teams)[:2], strict=True
    ):
        assert_array_equal(one, other)
    assert_array_equal(policy.values(x, mask, None, None, teams=teams).state, parallel_values(policy, x, teams))


def parallel_values(policy, x, teams):
    with torch.no_grad():
        return policy.network.values(torch.from_numpy(x), sequences(teams)).numpy()


def test_where_torch_computes_on_a_device_several_answer_as_each_does():
    policies = [made(seed=seed)[0] for seed in range(3)]
    place = resolve_placement(
        DeviceChoice("cpu", written=False), UpdateCost(policies[0].multiplications, 64, has_cpu_kernel=False)
    )
    stack = type(policies[0]).stack_on(policies, place)
    x, mask, noise, teams = rows(policies[0])
    index = np.array([2, 0, 2, 0, 0, 2, 0, 2, 2], np.int32)[teams.group]  # nobody plays the second
    act = stack.act(x, mask, None, noise, index, "explore", teams)
    for k in (0, 2):
        at = np.flatnonzero(index == k)
        one = policies[k].act(x[at], mask[at], None, noise[at], teams=teams.take(at))
        assert_array_equal(act.action[at], one.action)
        assert_allclose(act.logp[at], one.logp, atol=1e-5)


@pytest.mark.parametrize(
    ("teams", "message"),
    [
        (None, "say whose rows these"),
        (Teams(np.array([0, 0]), np.array([1, 0])), "in the order of its agents"),
        (Teams(np.array([1, 0]), np.array([0, 1])), "in the order of its agents"),
        (Teams(np.array([0, 0]), np.array([0, 4])), "teams of 4 agents was given rows of the agents"),
    ],
)
def test_rows_of_nobody_are_refused(teams, message):
    policy, _ = made()
    with pytest.raises(PolicyError, match=message):
        policy.act(np.zeros((2, 3), np.float32), None, None, np.zeros((2, 1), np.float32), teams=teams)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "does not fall into 3 heads"),
        ({"decoder": "none"}, "expected one of"),
        ({"layers": 0}, "layers is 0"),
    ],
)
def test_specs_that_are_wrong(options, message):
    with pytest.raises(PolicyError, match=message):
        made(**options)


def test_observations_of_another_shape_are_refused():
    policy, _ = made()
    with pytest.raises(PolicyError, match="its spec says"):
        policy.act(np.zeros((4, 2), np.float32), None, None, np.zeros((4, 1), np.float32), teams=Teams.whole(4, TEAM))
    assert head_of(ACTIONS["one"]) == policy.network.head_of
