"""A policy that picks which of several others acts: by hand, and the contract."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import PolicyError
from ludus.core.types import Enumeration, PolicySpec
from ludus.policies.actor_critic import initial_weights
from ludus.policies.base import Policy
from ludus.policies.registry import ChoicePolicy, build_policy
from ludus.policies.specs import choice_spec, gru_spec, joined, mlp_spec
from ludus.testing.policy import check_policy

GAME = Enumeration(
    observation=np.eye(3, dtype=np.float32),
    mask=np.array([[True, True], [True, True], [True, False]]),
    offset=(0, 3),
    key=("a", "b", "c"),
)


def table(*rows: list[float]) -> Policy:
    probs = np.array(rows, np.float64)
    return build_policy(PolicySpec("tabular", {"offset": 0, "actions": probs.shape[1]}), {"probs": probs})


def network(actions: int, seed: int) -> Policy:
    spec = mlp_spec(inputs=3, actions=actions, hidden=(4,), value="none")
    return build_policy(spec, initial_weights(spec, np.random.default_rng(seed)))


def choice(chooser: Policy, *members: tuple[Policy, str]) -> ChoicePolicy:
    weights = {str(k): member.weights() for k, (member, _) in enumerate(members)}
    spec = choice_spec(chooser.spec, [(member.spec, mode) for member, mode in members])
    policy = build_policy(spec, joined({"chooser": chooser.weights(), **weights}))
    assert isinstance(policy, ChoicePolicy)
    return policy


TWO = choice(
    table([0.25, 0.75], [1.0, 0.0], [0.5, 0.5]),
    (table([1.0, 0.0], [0.5, 0.5], [1.0, 0.0]), "explore"),
    (table([0.25, 0.75], [0.0, 1.0], [1.0, 0.0]), "greedy"),
)


def test_its_table_is_what_members_do_as_often_as_they_are_picked() -> None:
    """In state a: 1/4 of (1, 0), and 3/4 of the second one's best action, (0, 1)."""
    assert TWO.tabulate(GAME, 0).tolist() == [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]
    assert TWO.tabulate(GAME, 0, mode="greedy").tolist() == [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]


def test_it_picks_then_acts() -> None:
    """Two uniforms: the first picks, the second is the member's."""
    noise = np.array([[0.2, 0.9], [0.3, 0.9], [0.9, 0.4], [0.9, 0.6]], np.float32)
    act = TWO.act(np.array([0, 0, 1, 1], np.int32), GAME.mask[[0, 0, 1, 1]], None, noise)
    assert act.extras["choice"].tolist() == [0, 1, 0, 0]
    assert act.action.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(np.exp(act.extras["choice_logp"]), [0.25, 0.75, 1.0, 1.0])
    np.testing.assert_allclose(np.exp(act.logp), [0.25, 0.75, 0.5, 0.5])


@pytest.mark.parametrize("kind", ["tables", "networks"])
def test_choice_policy_satisfies_policy_contract(kind: str) -> None:
    policy = TWO if kind == "tables" else choice(network(2, 0), (network(2, 1), "explore"), (network(2, 2), "greedy"))
    check_policy(policy, enumeration=GAME)


def test_choice_policy_rejects_invalid_specs() -> None:
    members = (table([1.0, 0.0], [0.5, 0.5], [1.0, 0.0]), "explore")
    with pytest.raises(PolicyError, match="some take ids, others tensors"):
        choice(network(1, 0), members)
    spec = gru_spec(inputs=3, actions=2, hidden=2)
    recurrent = build_policy(spec, initial_weights(spec, np.random.default_rng(0)))
    with pytest.raises(PolicyError, match="say how likely each action is"):
        choice(network(1, 0), (recurrent, "explore"))
    with pytest.raises(PolicyError, match="has members"):
        choice(network(1, 0))
    with pytest.raises(PolicyError, match=r"'choice': not expected \['2/probs'\]"):
        build_policy(TWO.spec, {**TWO.weights(), "2/probs": np.ones((3, 2))})
