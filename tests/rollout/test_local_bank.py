"""Local inference: binding, memory, tables, groups; and what a bank refuses."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from ludus.core.errors import PolicyError
from ludus.core.types import ActionRequests, PolicyOutput, PolicyRef, PolicySpec
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.random import RandomPolicy
from ludus.rollout.inference import local
from ludus.rollout.inference.groups import Group, merge
from ludus.rollout.inference.local import LocalBank, StackedTables
from ludus.testing.fakes import ENDS_OFF_TURN, CountingPolicy, FixedPolicy, ScriptedEnv, StackedFixed

A, B, C = (PolicyRef(0, name) for name in "abc")
SPEC = ScriptedEnv([ENDS_OFF_TURN], 1).spec


def due(slots: list[int], *, first: bool = False) -> ActionRequests:
    n = len(slots)
    return ActionRequests(
        np.array(slots, np.int32),
        np.array(slots, np.float32)[:, None],
        np.ones((n, 2), np.bool_),
        np.zeros(n, np.float32),
        np.full(n, first),
    )


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def noise(n: int) -> np.ndarray:
    return np.zeros((n, 1), np.float32)


class TestBinding:
    def bank(self) -> LocalBank:
        bank = LocalBank(SPEC, 4)
        bank.load([(A, FixedPolicy.of(0)), (B, FixedPolicy.of(1))])
        bank.bind(0, ints(0, 1, 2, 3), ints(0, 1, 0, 1))
        return bank

    def test_rows_go_to_the_policy_of_their_slot(self):
        act = self.bank().act(0, due([0, 1, 2, 3]), noise(4))
        assert act.action.tolist() == [0, 1, 0, 1]

    def test_players_are_bound_apart(self):
        bank = self.bank()
        bank.bind(1, ints(0, 1, 2, 3), ints(1, 1, 1, 0))
        assert bank.act(1, due([0, 3]), noise(2)).action.tolist() == [1, 0]
        assert bank.act(0, due([0, 3]), noise(2)).action.tolist() == [0, 1]

    def test_indices_may_move_between_loads(self):
        bank = self.bank()
        bank.load([(C, FixedPolicy.of(0)), (B, FixedPolicy.of(1)), (A, FixedPolicy.of(0))])
        assert bank.act(0, due([0, 1, 2, 3]), noise(4)).action.tolist() == [0, 1, 0, 1]
        bank.bind(0, ints(0), ints(1))
        assert bank.act(0, due([0, 1, 2, 3]), noise(4)).action.tolist() == [1, 1, 0, 1]

    def test_a_policy_that_is_bound_stays_when_it_is_no_longer_loaded(self):
        bank = self.bank()
        bank.load([(C, FixedPolicy.of(0))])
        assert bank.act(0, due([1, 2]), noise(2)).action.tolist() == [1, 0]
        bank.bind(0, ints(0, 1, 2, 3), ints(0, 0, 0, 0))
        bank.load([(C, FixedPolicy.of(0))])  # nothing is bound to A and B now: their rows are free
        bank.load([(C, FixedPolicy.of(0)), (PolicyRef(0, "d"), FixedPolicy.of(1))])
        bank.bind(0, ints(3), ints(1))
        assert bank.act(0, due([0, 1, 2, 3]), noise(4)).action.tolist() == [0, 0, 0, 1]

    def test_a_ref_with_a_version_is_not_taken_anew_and_one_without_is(self):
        fixed, live = PolicyRef(0, "x", 1), PolicyRef(0, "y", None)
        bank = LocalBank(SPEC, 2)
        bank.load([(fixed, FixedPolicy.of(0)), (live, FixedPolicy.of(0))])
        bank.load([(fixed, FixedPolicy.of(1)), (live, FixedPolicy.of(1))])
        bank.bind(0, ints(0, 1), ints(0, 1))
        assert bank.act(0, due([0, 1]), noise(2)).action.tolist() == [0, 1]

    def test_twice_the_same(self):
        with pytest.raises(PolicyError, match="twice"):
            LocalBank(SPEC, 1).load([(A, FixedPolicy.of(0)), (A, FixedPolicy.of(1))])

    def test_a_mode_that_the_policy_does_not_have(self):
        with pytest.raises(PolicyError, match="no mode 'average'"):
            LocalBank(SPEC, 1).load([(PolicyRef(0, "a", 0, "average"), FixedPolicy.of(0))])


class TestMemory:
    def bank(self) -> LocalBank:
        bank = LocalBank(SPEC, 2)
        bank.load([(A, CountingPolicy()), (B, FixedPolicy.of(1))])
        bank.bind(0, ints(0, 1), ints(0, 0))
        return bank

    def test_it_is_kept_by_slot(self):
        bank = self.bank()
        for slots in ([0, 1], [0], [0]):
            bank.act(0, due(slots), noise(len(slots)))
        assert bank.memory(0, ints(0, 1), 0).tolist() == [[2], [0]]

    def test_it_starts_at_zero_with_an_episode_and_with_a_binding(self):
        bank = self.bank()
        for _ in range(3):
            bank.act(0, due([0, 1]), noise(2))
        bank.act(0, due([0], first=True), noise(1))
        assert bank.memory(0, ints(0, 1), 0).tolist() == [[0], [2]]
        bank.bind(0, ints(1), ints(0))
        bank.bind(0, ints(0), ints(0), keep_memory=True)
        bank.act(0, due([0, 1]), noise(2))
        assert bank.memory(0, ints(0, 1), 0).tolist() == [[1], [0]]

    def test_policies_with_and_without_memory_side_by_side(self):
        bank = self.bank()
        bank.bind(0, ints(1), ints(1))
        for expected in ([0, 1], [1, 1], [0, 1]):
            assert bank.act(0, due([0, 1]), noise(2)).action.tolist() == expected
        assert bank.memory(0, ints(1), 1) is None

    def test_a_recurrent_policy_that_forgets_to_answer_its_memory(self):
        class Forgetful(CountingPolicy):
            def act(self, *args, **kwargs):
                act = super().act(*args, **kwargs)
                return PolicyOutput(act.action, act.logp)

        bank = LocalBank(SPEC, 1)
        bank.load([(A, Forgetful())])
        bank.bind(0, ints(0), ints(0))
        with pytest.raises(PolicyError, match="next memory"):
            bank.act(0, due([0]), noise(1))


class TestTables:
    @pytest.fixture
    def tables(self) -> StackedTables:
        return StackedTables(compile_tree("kuhn_poker").enumeration, 1)

    def sample(self, tables: StackedTables, rows: list[int], uniforms: list[float]) -> tuple[list, list]:
        n = len(rows)
        action, logp = np.empty(n, np.int32), np.empty(n, np.float32)
        ids = np.full(n, tables.offset, np.int32)
        slots = np.arange(n, dtype=np.int32)
        tables.sample(slots, ids, np.array(rows, np.int32), np.float32(uniforms)[:, None], action=action, logp=logp)
        return action.tolist(), logp.tolist()

    def test_inverse_distribution(self, tables):
        tables.set(0, np.tile([0.25, 0.75], (6, 1)), name="a")
        tables.set(9, np.tile([1.0, 0.0], (6, 1)), name="b")
        action, logp = self.sample(tables, [0, 0, 0, 9], [0.2499, 0.25, 0.99999994, 0.99999994])
        assert action == [0, 1, 1, 0]
        assert logp == pytest.approx([np.log(0.25), np.log(0.75), np.log(0.75), 0])

    @pytest.mark.parametrize(
        ("probs", "message"),
        [
            (np.full((5, 2), 0.5), r"\(5, 2\) for player 1; expected \(6, 2\)"),
            (np.full((6, 2), 0.6), "do not sum to 1"),
            (np.tile([1.5, -0.5], (6, 1)), "negative"),
            (np.full((6, 2), np.nan), "NaN"),
        ],
    )
    def test_invalid_distributions_raise(self, tables, probs, message):
        with pytest.raises(PolicyError, match=message):
            tables.set(0, probs, name="a")

    def test_illegal_actions(self):
        tables = StackedTables(compile_tree("leduc_poker").enumeration, 0)
        with pytest.raises(PolicyError, match="illegal"):
            tables.set(0, np.full((468, 3), 1 / 3), name="a")


class TestGroups:
    def test_a_group_gives_each_row_its_policys_answer_stacked_or_not(self):
        policies = [FixedPolicy.of(k % 2) for k in range(5)]
        rng = np.random.default_rng(0)
        for n, most in ((7, 5), (4000, 5), (4000, 1)):  # balanced and not, few rows and many
            index = rng.integers(most, size=n).astype(np.int32)
            act = Group(policies, "explore").act(np.zeros((n, 1)), None, None, noise(n), index=index)
            assert np.array_equal(act.action, index % 2)

    def test_a_stack_answers_in_one_call_however_the_rows_are_spread(self):
        policies = [FixedPolicy.of(k % 2) for k in range(20)]
        index = np.zeros(10_000, np.int32)
        index[:2] = [5, 7]
        group = Group(policies, "explore")
        for rows in (10_000, 2):
            before = StackedFixed.calls
            act = group.act(np.zeros((rows, 1)), None, None, noise(rows), index=index[:rows])
            assert act.action[:2].tolist() == [1, 1]
            assert not act.action[2:].any()
            assert StackedFixed.calls == before + 1

    def test_a_population_is_put_together_once(self):
        """And not at each first meeting with one of it."""

        class Copied(FixedPolicy):
            sizes: ClassVar[list[int]] = []

            @classmethod
            def stack(cls, policies):
                cls.sizes.append(len(policies))
                return super().stack(policies)

        bank = LocalBank(SPEC, 4)
        bank.load([(PolicyRef(0, f"p{k}"), Copied.of(k % 2)) for k in range(20)])
        for slot in range(4):
            bank.bind(0, ints(slot), ints(5 * slot))
        assert bank.act(0, due([0, 1, 2, 3]), noise(4)).action.tolist() == [0, 1, 0, 1]
        assert Copied.sizes == [20]

    def test_without_a_stack_each_policy_answers_its_own_rows(self):
        class Counted(FixedPolicy):
            stack = None
            rows = 0

            def act(self, observation, *args, **kwargs):
                Counted.rows += len(observation)
                return super().act(observation, *args, **kwargs)

        policies = [Counted.of(k % 2) for k in range(20)]
        index = np.arange(40, dtype=np.int32) % 3
        act = Group(policies, "explore").act(np.zeros((40, 1)), None, None, noise(40), index=index)
        assert Counted.rows == 40
        assert np.array_equal(act.action, index % 2)

    def test_merging_keeps_rows_and_fills_extras(self):
        first = PolicyOutput(np.array([1, 2]), np.float32([-1, -2]), None, {"value": np.float32([10, 20])})
        second = PolicyOutput(np.array([3], np.int32), np.float32([-3]))
        act = merge([(np.array([2, 0]), first), (np.array([1]), second)], 3)
        assert act.action.tolist() == [2, 3, 1]
        assert act.logp.tolist() == [-2, -3, -1]
        assert act.extras["value"].tolist() == [20, 0, 10]

    def test_actions_of_different_shapes(self):
        one, two = (
            PolicyOutput(np.zeros(1), np.zeros(1, np.float32)),
            PolicyOutput(np.zeros((1, 2)), np.zeros(1, np.float32)),
        )
        with pytest.raises(PolicyError, match="shapes"):
            merge([(np.array([0]), one), (np.array([1]), two)], 2)


class Evaluated(RandomPolicy):
    """Counts the tables and the answers that it was asked for."""

    def __init__(self) -> None:
        super().__init__(PolicySpec("random", {"actions": 2}), {})
        self.tables = self.answers = 0

    def tabulate(self, enumeration, player, *, mode="explore"):
        self.tables += 1
        return super().tabulate(enumeration, player, mode=mode)

    def act(self, observation, mask, memory, noise, *, mode="explore"):
        self.answers += 1
        return super().act(observation, mask, memory, noise, mode=mode)


@pytest.mark.parametrize("large", [False, True])
def test_a_learner_in_a_large_game_is_not_tabulated(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights change with every request; members keep their tables. What is played is the same."""
    if large:
        monkeypatch.setattr(local, "LARGE", 5)  # each player of Kuhn poker has six information states
    spec = compile_tree("kuhn_poker").spec
    bank = LocalBank(spec, 4)
    learner, member = Evaluated(), Evaluated()
    bank.load([(PolicyRef(0, "learner", 1), learner), (PolicyRef(0, "member"), member)])
    bank.bind(0, ints(0, 1, 2, 3), ints(0, 1, 0, 1))
    ids = np.array([0, 1, 2, 0], np.int32)
    rows = ActionRequests(ints(0, 1, 2, 3), ids, None, np.zeros(4, np.float32), np.ones(4, np.bool_))
    act = bank.act(0, rows, np.array([[0.2], [0.7], [0.9], [0.4]], np.float32))
    assert act.action.tolist() == [0, 1, 1, 0]
    assert act.logp.tolist() == pytest.approx([np.log(0.5)] * 4)
    assert (learner.tables, learner.answers) == ((0, 1) if large else (1, 0))
    assert (member.tables, member.answers) == (1, 0)
