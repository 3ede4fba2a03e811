"""A network that plays several policies, each told which: by hand, and the contract."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import PolicyError
from ludus.core.types import Enumeration, condition_mode
from ludus.policies.actor_critic import initial_weights
from ludus.policies.registry import ConditionedPolicy, build_policy, conditioned
from ludus.policies.specs import conditioned_spec, gru_spec, joined, mlp_spec, tabular_spec
from ludus.testing.policy import check_policy

GAME = Enumeration(
    observation=np.eye(3, dtype=np.float32),
    mask=np.array([[True, True], [True, True], [True, False]]),
    offset=(0, 3),
    key=("a", "b", "c"),
)
LINEAR = mlp_spec(inputs=5, actions=2, hidden=(), value="none")


def policy(weight: np.ndarray, condition: list[list[float]]) -> ConditionedPolicy:
    """Whose logits are weight [2, 5] times (observation, condition)."""
    network = {"head.weight": weight, "head.bias": np.zeros(2)}
    made = build_policy(conditioned_spec(LINEAR), {"condition": np.array(condition), **joined({"network": network})})
    assert isinstance(made, ConditionedPolicy)
    return made


def test_rows_are_told_apart_by_their_conditions() -> None:
    """Logit 1 is 2 x what is told at the first place, in state a 1 more: odds e^2 and e^3 for the first row, 1 and e for the second."""
    weight = np.array([[0, 0, 0, 0, 0], [1, 0, 0, 2, 0]], np.float64)
    two = policy(weight, [[1.0, 0.0], [0.0, 1.0]])
    assert two.modes == ("explore", "greedy", "row-0", "row-1")
    odds = [[np.exp(3), np.exp(2)], [np.exp(1), 1.0]]
    for row in range(2):
        table = two.tabulate(GAME, 0, mode=condition_mode(row))
        assert table is not None
        np.testing.assert_allclose(table[:2, 1] / table[:2, 0], odds[row], rtol=1e-5)
    np.testing.assert_array_equal(two.tabulate(GAME, 0), two.tabulate(GAME, 0, mode="row-1"))
    assert two.tabulate(GAME, 0, mode="greedy").tolist() == [[0, 1], [1, 0], [1, 0]]
    act = two.act(GAME.observation, GAME.mask, None, np.full((3, 1), 0.5, np.float32), mode="row-0")
    assert act.extras["row"].tolist() == [0, 0, 0]
    assert act.action.tolist() == [1, 1, 0]


def test_conditions_come_behind_flat_observations() -> None:
    seen = conditioned(np.arange(8).reshape(2, 2, 2), np.array([0.5, 0.25], np.float32))
    assert seen.tolist() == [[0, 1, 2, 3, 0.5, 0.25], [4, 5, 6, 7, 0.5, 0.25]]
    each = conditioned(np.zeros((2, 1)), np.array([[1.0], [2.0]], np.float32))
    assert each.tolist() == [[0, 1], [0, 2]]


@pytest.mark.parametrize("core", ["none", "gru"])
def test_conditioned_policy_satisfies_policy_contract(core: str) -> None:
    spec = LINEAR if core == "none" else gru_spec(inputs=5, actions=2, hidden=3)
    network = initial_weights(spec, np.random.default_rng(0))
    weights = {"condition": np.eye(2, dtype=np.float32), **joined({"network": network})}
    check_policy(build_policy(conditioned_spec(spec), weights), enumeration=GAME)


def test_conditioned_policy_rejects_invalid_specs() -> None:
    network = joined({"network": initial_weights(LINEAR, np.random.default_rng(0))})
    with pytest.raises(PolicyError, match="have `condition` float"):
        build_policy(conditioned_spec(LINEAR), network)
    with pytest.raises(PolicyError, match=r"'conditioned': not expected \['conditions'\]"):
        build_policy(conditioned_spec(LINEAR), {**network, "condition": np.ones((1, 1)), "conditions": np.ones((1, 1))})
    table = {"condition": np.ones((1, 1)), "network/probs": np.array([[1.0, 0.0]] * 3)}
    with pytest.raises(PolicyError, match="this one takes ids"):
        build_policy(conditioned_spec(tabular_spec(GAME, (0,))), table)
