"""Shared inference within one process: the same answers as local copies; what a server holds; what its clients keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ludus.core.errors import PartDied, PolicyError, RunError
from ludus.core.types import ActionRequests, AgentSpec, EnvSpec, Mixture, PolicyOutput, PolicyRef, PolicySpec
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies import action_values, actor_critic
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_values_spec, body_config, gru_spec, mlp_spec, tabular_spec
from ludus.rollout.base import RolloutRequest
from ludus.rollout.host import PolicyMessage
from ludus.rollout.inference import policy_cache, remote
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.inference.remote import RemoteBank
from ludus.rollout.inference.server import InferenceServer, ServerSpec
from ludus.rollout.worker import RolloutWorker
from ludus.runtime.inprocess import InProcess
from ludus.testing.fakes import CountingPolicy, FixedPolicy, StackedFixed

MLP = mlp_spec(inputs=3, actions=4, hidden=[8])
WIDE = mlp_spec(inputs=3, actions=4, hidden=[16, 8], value="none")
GRU = gru_spec(inputs=3, actions=4, hidden=5)
LARGER_GRU = gru_spec(inputs=3, actions=4, hidden=7)
Q = action_values_spec(shape=(3,), actions=4, body=body_config(hidden=[8]))
MAKERS = {
    "mlp": lambda rng: build_policy(MLP, actor_critic.initial_weights(MLP, rng)),
    "wide": lambda rng: build_policy(WIDE, actor_critic.initial_weights(WIDE, rng)),
    "gru": lambda rng: build_policy(GRU, actor_critic.initial_weights(GRU, rng)),
    "larger gru": lambda rng: build_policy(LARGER_GRU, actor_critic.initial_weights(LARGER_GRU, rng)),
    "q": lambda rng: build_policy(Q, action_values.initial_weights(Q, rng, epsilon=0.5)),
    "random": lambda rng: build_policy(PolicySpec("random", {"actions": 4}), {}),
}


class Served:
    """A server, and banks of it."""

    def __init__(self, **options) -> None:
        self.runtime = InProcess()
        spec = ServerSpec(self.runtime.fetch, **{"callers": 1, "max_wait": 0.0, **options})
        self.part = self.runtime.spawn(InferenceServer, spec, restarts=3)
        self._sent: dict[int, tuple[Policy, object]] = {}

    def sent(self, policies: Sequence[tuple[PolicyRef, Policy]]):
        for _, policy in policies:
            self._sent.setdefault(id(policy), (policy, self.runtime.put(PolicyMessage(policy))))
        return [(ref, self._sent[id(policy)][1]) for ref, policy in policies]

    def bank(self, spec: EnvSpec, num_envs: int, client: str = "a") -> RemoteBank:
        bank = RemoteBank(spec, num_envs, client=client)
        bank.server = self.runtime.peer(self.part)
        return bank

    def counters(self):
        return self.runtime.get(self.runtime.call(self.part, "counters"))


def spec_of(agents: Sequence[int]) -> EnvSpec:
    """A game in which player p has so many agents."""
    space = Box(-1, 1, (3,), np.float32)
    return EnvSpec(
        id="game",
        agents=tuple(AgentSpec(f"{p}-{a}", p, space, Discrete(4)) for p, n in enumerate(agents) for a in range(n)),
        utility_range=((-1.0, 1.0),) * len(agents),
        symmetry=tuple((p,) for p in range(len(agents))),
    )


def random_due(rng: np.random.Generator, slots: int, *, masked: bool) -> ActionRequests:
    slot = np.flatnonzero(rng.random(slots) < 0.7).astype(np.int32)
    if not len(slot):
        slot = np.zeros(1, np.int32)
    n = len(slot)
    mask = None
    if masked:
        mask = rng.random((n, 4)) < 0.6
        mask[np.arange(n), rng.integers(4, size=n)] = True
    observation = rng.standard_normal((n, 3)).astype(np.float32)
    return ActionRequests(slot, observation, mask, np.zeros(n, np.float32), rng.random(n) < 0.2)


def assert_same(one: PolicyOutput, other: PolicyOutput, *, extras: Sequence[str] = ()) -> None:
    assert_array_equal(one.action, other.action)
    assert_allclose(one.logp, other.logp, rtol=1e-4, atol=1e-5)
    assert one.memory is None
    for name in extras:
        assert_allclose(one.extras[name], other.extras[name], rtol=1e-4, atol=1e-5)
    assert one.action.flags.writeable


def test_failed_loads_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU was full for a moment: C plays then, and not B, who had its place."""
    served, spec = Served(), spec_of([1])
    bank = served.bank(spec, 2)
    policies = [(PolicyRef(0, name), FixedPolicy.of(k)) for k, name in enumerate("abc", start=1)]
    bank.load(served.sent(policies[:2]))
    bank.load(served.sent(policies[:1]))
    with monkeypatch.context() as full:
        full.setattr(policy_cache, "Group", raising(MemoryError("the GPU is full")))
        with pytest.raises(MemoryError, match="the GPU is full"):
            bank.load(served.sent(policies[::2]))
    again = served.bank(spec, 2, client="b")
    again.load(served.sent(policies[::2]))
    again.bind(0, np.arange(2, dtype=np.int32), np.array([0, 1], np.int32))
    due = ActionRequests(
        np.arange(2, dtype=np.int32), np.zeros((2, 3), np.float32), None, np.zeros(2, np.float32), np.ones(2, bool)
    )
    assert again.act(0, due, np.zeros((2, 1), np.float32)).action.tolist() == [1, 3]


def raising(error: Exception) -> Callable[..., NoReturn]:
    def call(*_: object) -> NoReturn:
        raise error

    return call


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), masked=st.booleans(), together=st.booleans())
def test_the_same_as_local_copies(seed: int, masked: bool, together: bool) -> None:
    """Whatever is loaded and bound, over several loads, for players with several agents."""
    rng = np.random.default_rng(seed)
    num_envs, agents = 5, (1, 3)
    spec = spec_of(agents)
    served = Served()
    local, shared = LocalBank(spec, num_envs), served.bank(spec, num_envs)
    kinds = list(MAKERS)
    for load in range(3):
        picked = rng.choice(kinds, size=6)
        policies = [
            (PolicyRef(0, f"{load}-{k}", int(k % 2), ("explore", "greedy")[k % 2]), MAKERS[kind](rng))
            for k, kind in enumerate(picked)
        ]
        local.load(policies, extras=("value",))
        shared.load(served.sent(policies), extras=("value",))
        assert (shared.noise_width, shared.recurrent) == (local.noise_width, local.recurrent)
        for p, count in enumerate(agents):  # the first time all slots; later some keep what is no longer loaded
            slots = np.flatnonzero(rng.random(num_envs * count) < (1.0 if load == 0 else 0.5)).astype(np.int32)
            chosen = rng.integers(len(policies), size=len(slots)).astype(np.int32)
            keep = bool(rng.random() < 0.5)
            for bank in (local, shared):
                bank.bind(p, slots, chosen, keep_memory=keep)
        for _ in range(4):
            dues = [random_due(rng, num_envs * count, masked=masked) for count in agents]
            noises = [rng.random((len(due.slot), local.noise_width), dtype=np.float32) for due in dues]
            asked = list(zip(range(len(agents)), dues, noises, strict=True))
            acts = shared.act_all(asked) if together else [shared.act(*one) for one in asked]
            for one, act in zip(asked, acts, strict=True):
                assert_same(act, local.act(*one))
            for p, count in enumerate(agents):
                everyone = np.arange(num_envs * count, dtype=np.int32)
                for k in range(len(policies)):
                    mine, other = shared.memory(p, everyone, k), local.memory(p, everyone, k)
                    assert (mine is None) == (other is None)
                    if mine is not None:
                        assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_extras_are_those_that_were_asked_for() -> None:
    spec = spec_of((1,))
    rng = np.random.default_rng(0)
    policies = [(PolicyRef(0, "a"), MAKERS["mlp"](rng)), (PolicyRef(0, "b"), MAKERS["wide"](rng))]
    served = Served()
    local, shared = LocalBank(spec, 4), served.bank(spec, 4)
    slots, due = np.arange(4, dtype=np.int32), random_due(rng, 4, masked=True)
    noise = rng.random((len(due.slot), 1), dtype=np.float32)
    for extras in (("value",), ()):
        local.load(policies, extras=extras)
        shared.load(served.sent(policies), extras=extras)
        for bank in (local, shared):
            bank.bind(0, slots, np.array([0, 1, 0, 1], np.int32))
        act = shared.act(0, due, noise)
        assert tuple(act.extras) == extras
        assert_same(act, local.act(0, due, noise), extras=extras)


def requests(spec: EnvSpec) -> list[RolloutRequest]:
    """For learner and members of the first player's population: whole episodes, then fragments that carry on."""
    me = PolicyRef(0, "me", 1)
    others = {p: ([PolicyRef(p, f"{p}-{k}") for k in range(3)], [0.5, 0.25, 0.25]) for p in range(1, spec.num_players)}
    mixture = Mixture.product(others)
    rest = {"opponents": mixture, "seed": 3, "extras": ("value",)}
    return [
        RolloutRequest(me, (0,), unit="episodes", amount=20, **rest),
        RolloutRequest(me, (0,), unit="decisions", amount=60, **rest),
        RolloutRequest(me._replace(version=2), (0,), unit="decisions", amount=60, carry_on=True, **rest),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    ["openspiel/kuhn_poker", "mpe2/simple_tag_v3", "gymnasium/FrozenLake-v1"],
)
def test_the_same_rollouts_as_local_copies(environment: str) -> None:
    """Enumerated states, legal moves, teams of several agents, Discrete observations."""
    env, again = (make_env(environment, num_envs=6) for _ in range(2))
    spec = env.spec
    rng = np.random.default_rng(1)

    def policy(player: int, k: int) -> Policy:
        agent = spec.agents_of(player)[0]
        inputs, actions = int(np.prod(agent.observation.shape)), int(agent.action.n)
        if k == 2:
            made = gru_spec(inputs=inputs, actions=actions, hidden=4)
            return build_policy(made, actor_critic.initial_weights(made, rng))
        made = mlp_spec(inputs=inputs, actions=actions, hidden=[8])
        weights = {name: 3 * array for name, array in actor_critic.initial_weights(made, rng).items()}
        return build_policy(made, weights)

    members = [(PolicyRef(p, f"{p}-{k}"), policy(p, k)) for p in range(1, spec.num_players) for k in range(3)]
    served = Served()
    remote_worker = RolloutWorker(again, served.bank(spec, 6))
    local_worker = RolloutWorker(env, LocalBank(spec, 6, tabulate=False))
    for request in requests(spec):
        policies = [(request.learner, policy(0, 0)), *members]
        one = local_worker.play(request, policies)
        other = remote_worker.play(request, served.sent(policies))
        assert_array_equal(one.episodes.returns, other.episodes.returns)
        assert_array_equal(one.trajectories.observation, other.trajectories.observation)
        assert_array_equal(one.trajectories.action, other.trajectories.action)
        assert_allclose(one.trajectories.logp, other.trajectories.logp, atol=1e-5)
        assert_allclose(one.trajectories.extras["value"], other.trajectories.extras["value"], rtol=1e-3, atol=1e-5)
        assert one.counters == other.counters
    for worker in (local_worker, remote_worker):
        worker.close()


def test_policies_that_take_ids_beside_those_that_do_not() -> None:
    tree = compile_tree("kuhn_poker")
    spec, enumeration = tree.spec, tree.spec.enumeration
    table = tabular_spec(enumeration, (0,))
    made = mlp_spec(inputs=int(np.prod(enumeration.observation.shape[1:])), actions=2, hidden=[4])
    ids = enumeration.ids(0)
    rng = np.random.default_rng(0)
    probs = rng.dirichlet((1, 1), size=ids.stop - ids.start)
    from ludus.policies.categorical import TabularPolicy

    policies = [
        (PolicyRef(0, "table"), TabularPolicy(table, {"probs": probs})),
        (PolicyRef(0, "network"), build_policy(made, actor_critic.initial_weights(made, rng))),
    ]
    served = Served()
    local, shared = LocalBank(spec, 6), served.bank(spec, 6)
    local.load(policies)
    shared.load(served.sent(policies))
    slots = np.arange(6, dtype=np.int32)
    for bank in (local, shared):
        bank.bind(0, slots, np.array([0, 1, 0, 1, 0, 1], np.int32))
    due = ActionRequests(slots, np.arange(6, dtype=np.int32) % 6, None, np.zeros(6, np.float32), np.ones(6, np.bool_))
    noise = rng.random((6, 1), dtype=np.float32)
    assert_same(shared.act(0, due, noise), local.act(0, due, noise))


class TestWhatAServerHolds:
    spec = spec_of((1,))

    def load(self, bank: RemoteBank, served: Served, policies: Sequence[tuple[PolicyRef, Policy]]) -> None:
        bank.load(served.sent(policies))

    def test_each_version_is_fetched_once_for_all_clients(self) -> None:
        served = Served()
        banks = [served.bank(self.spec, 2, client=name) for name in "abc"]
        member = PolicyRef(0, "m"), FixedPolicy.of(0)
        for version in (1, 2):
            learner = PolicyRef(0, "me", version), FixedPolicy.of(1)
            for bank in banks:
                self.load(bank, served, [learner, member])
                self.load(bank, served, [member, learner])
        assert served.counters()["fetched"] == 3

    def test_unused_policies_are_evicted_beyond_the_bound(self) -> None:
        served = Served(cache_bytes=0)
        one, two = served.bank(self.spec, 1, client="1"), served.bank(self.spec, 1, client="2")
        policies = [(PolicyRef(0, f"p{k}"), FixedPolicy.of(k % 2)) for k in range(4)]
        for policy in policies:
            self.load(one, served, [policy])
        self.load(two, served, policies[3:])
        assert served.counters()["fetched"] == 4
        self.load(one, served, policies[:1])
        assert served.counters()["fetched"] == 5
        cache = served.part.value._cache
        assert sum(entry is not None for entry in cache._entries) == 2

    def test_bound_policies_outlive_their_eviction(self) -> None:
        served = Served(cache_bytes=0)
        bank, other = served.bank(self.spec, 2), served.bank(self.spec, 2, client="other")
        slots = np.arange(2, dtype=np.int32)
        self.load(bank, served, [(PolicyRef(0, "old"), FixedPolicy.of(1)), (PolicyRef(0, "x"), FixedPolicy.of(0))])
        bank.bind(0, slots, np.array([0, 1], np.int32))
        for k in range(5):
            self.load(bank, served, [(PolicyRef(0, f"new{k}"), FixedPolicy.of(0))])
            self.load(other, served, [(PolicyRef(0, f"other{k}"), FixedPolicy.of(0))])
        due = ActionRequests(slots, np.zeros((2, 3), np.float32), None, np.zeros(2, np.float32), np.zeros(2, np.bool_))
        noise = np.zeros((2, 1), np.float32)
        assert bank.act(0, due, noise).action.tolist() == [1, 0]
        bank.release()
        self.load(bank, served, [(PolicyRef(0, "new4"), FixedPolicy.of(0))])
        assert len(served.part.value._cache._key_of) == 2  # new4 and other4

    def test_all_rows_of_one_architecture_are_one_call(self) -> None:
        served = Served()
        spec = spec_of((1, 2))
        bank = served.bank(spec, 3)
        policies = [(PolicyRef(0, f"p{k}"), FixedPolicy.of(k % 2)) for k in range(4)]
        self.load(bank, served, policies)
        dues = []
        for p, agents in enumerate((1, 2)):
            slots = np.arange(3 * agents, dtype=np.int32)
            bank.bind(p, slots, slots % 4)
            n = len(slots)
            dues.append(
                ActionRequests(
                    slots, np.zeros((n, 3), np.float32), None, np.zeros(n, np.float32), np.zeros(n, np.bool_)
                )
            )
        before = StackedFixed.calls
        acts = bank.act_all([(p, due, np.zeros((len(due.slot), 1), np.float32)) for p, due in enumerate(dues)])
        assert StackedFixed.calls == before + 1
        assert [act.action.tolist() for act in acts] == [[0, 1, 0], [0, 1, 0, 1, 0, 1]]
        assert served.counters() == {"requests": 1, "rows": 9, "batches": 1, "fetched": 4}

    def test_a_server_that_is_made_again_gets_what_is_still_bound(self) -> None:
        served = Served()
        bank = served.bank(self.spec, 2)
        slots = np.arange(2, dtype=np.int32)
        self.load(bank, served, [(PolicyRef(0, "old"), FixedPolicy.of(1)), (PolicyRef(0, "gone"), FixedPolicy.of(1))])
        bank.bind(0, slots, np.zeros(2, np.int32))
        served.runtime.restart(served.part)
        due = ActionRequests(slots, np.zeros((2, 3), np.float32), None, np.zeros(2, np.float32), np.zeros(2, np.bool_))
        noise = np.zeros((2, 1), np.float32)
        new = [(PolicyRef(0, "new"), FixedPolicy.of(0))]
        with pytest.raises(PartDied, match="part 'InferenceServer' was given up"):
            bank.act(0, due, noise)
        with pytest.raises(PartDied, match="part 'InferenceServer' was given up"):
            self.load(bank, served, new)
        bank.server = served.runtime.peer(served.part)
        self.load(bank, served, new)
        bank.bind(0, slots[1:], np.zeros(1, np.int32))
        assert bank.act(0, due, noise).action.tolist() == [1, 0]
        assert served.counters()["fetched"] == 2

    def test_a_server_that_is_made_again_is_given_the_references_of_the_request(self) -> None:
        """Those of earlier requests, of which the runtime may have let go, are not fetched again."""
        served = Served()
        bank, ref = served.bank(self.spec, 1), PolicyRef(0, "member")
        self.load(bank, served, [(ref, FixedPolicy.of(0))])
        self.load(bank, served, [(ref, FixedPolicy.of(1))])  # the same, sent anew: these tell which of them is fetched
        served.runtime.restart(served.part)
        bank.server = served.runtime.peer(served.part)
        self.load(bank, served, [(ref, FixedPolicy.of(2))])
        bank.bind(0, np.zeros(1, np.int32), np.zeros(1, np.int32))
        due = ActionRequests(
            np.zeros(1, np.int32), np.zeros((1, 3), np.float32), None, np.zeros(1, np.float32), np.zeros(1, np.bool_)
        )
        assert bank.act(0, due, np.zeros((1, 1), np.float32)).action.tolist() == [2]

    def test_another_that_comes_under_the_same_name(self) -> None:
        """A worker that was made again: what the dead one held is let go."""
        served = Served()
        self.load(served.bank(self.spec, 1), served, [(PolicyRef(0, "a"), FixedPolicy.of(1))])
        self.load(served.bank(self.spec, 1), served, [(PolicyRef(0, "b"), FixedPolicy.of(1))])
        assert len(served.part.value._cache._key_of) == 1


class TestWhatIsRefused:
    spec = spec_of((1,))

    def test_the_same_policy_twice_and_a_mode_that_is_not_there(self) -> None:
        served = Served()
        bank = served.bank(self.spec, 1)
        a = PolicyRef(0, "a")
        with pytest.raises(PolicyError, match="twice"):
            bank.load(served.sent([(a, FixedPolicy.of(0)), (a, FixedPolicy.of(1))]))
        with pytest.raises(PolicyError, match="no mode 'average'"):
            bank.load(served.sent([(a._replace(mode="average"), FixedPolicy.of(0))]))
        bank.load(served.sent([(a, FixedPolicy.of(0))]))  # nothing came of the failures

    def test_a_bank_without_a_server(self) -> None:
        with pytest.raises(RunError, match="was given no server"):
            RemoteBank(self.spec, 1, client="a").load([])

    def test_a_recurrent_policy_that_forgets_to_answer_its_memory(self) -> None:
        class Forgetful(CountingPolicy):
            def act(self, *args, **kwargs):
                act = super().act(*args, **kwargs)
                return PolicyOutput(act.action, act.logp)

        served = Served()
        bank = served.bank(self.spec, 1)
        bank.load(served.sent([(PolicyRef(0, "a"), Forgetful())]))
        bank.bind(0, np.zeros(1, np.int32), np.zeros(1, np.int32))
        due = random_due(np.random.default_rng(0), 1, masked=False)
        with pytest.raises(PolicyError, match="next memory"):
            bank.act(0, due, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(("rows", "parts"), [(10, 1), (100, 3), (600, 1)])
def test_large_batches_are_split(rows: int, parts: int) -> None:
    """2008 bytes a row: within a call, in pieces that are, or through the object store."""
    whole = remote.RequestRows(
        3, np.arange(rows * 500, dtype=np.float32).reshape(rows, 500), None, None, np.zeros((rows, 2), np.float32)
    )
    cut = remote._cut(whole)
    assert len(cut) == parts
    assert [rows.key for rows in cut] == [3] * parts
    assert_array_equal(np.concatenate([rows.observation for rows in cut]), whole.observation)
    assert all(parts == 1 or rows.observation.nbytes < 100_000 for rows in cut)
