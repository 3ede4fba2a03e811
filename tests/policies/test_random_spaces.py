"""Random play of every kind of action space."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from scipy import stats

from ludus.core.errors import PolicyError
from ludus.core.types import Enumeration, PolicySpec
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_config, random_spec
from ludus.testing.policy import check_policy

INF = np.inf
SPACES = [
    Discrete(4),
    MultiDiscrete([2, 5, 3]),
    MultiBinary(3),
    Box(-1, 3, (2,)),
    Box(np.float32([[0, -INF], [-INF, 1]]), np.float32([[INF, INF], [2, 1]])),
]


def act(space, noise):
    policy = build_policy(random_spec(space), {})
    return policy.act(np.zeros((len(noise), 3), np.float32), None, None, np.asarray(noise, np.float32))


@pytest.mark.parametrize("space", SPACES)
def test_random_policies_satisfy_policy_contract(space):
    check_policy(build_policy(random_spec(space), {}), observation=np.zeros((20, 3), np.float32))


@pytest.mark.parametrize("space", SPACES)
def test_extreme_noise_stays_inside(space):
    width = build_policy(random_spec(space), {}).noise_width
    for action in act(space, [[u] * width for u in (0.0, 0.5, 1 - 2.0**-24)]).action:
        assert space.contains(action.astype(space.dtype))


def test_a_vector_of_choices_is_uniform_in_each_place():
    answer = act(MultiDiscrete([2, 5]), [[0.0, 0.0], [0.49, 0.39], [0.5, 0.41], [0.99, 0.99]])
    assert answer.action.tolist() == [[0, 0], [0, 1], [1, 2], [1, 4]]
    assert answer.action.dtype == np.int32
    assert answer.logp.tolist() == pytest.approx([-np.log(10)] * 4)


def test_bits_are_uniform():
    answer = act(MultiBinary(2), [[0.49, 0.5], [0.51, 0.0]])
    assert answer.action.tolist() == [[0, 1], [1, 0]]
    assert answer.logp.tolist() == pytest.approx([-np.log(4)] * 2)


@pytest.mark.parametrize("space", [MultiDiscrete([2, 5, 3]), MultiBinary(4)])
def test_a_mask_that_forbids_nothing_changes_nothing(space):
    policy = build_policy(random_spec(space), {})
    noise = np.random.default_rng(0).random((50, policy.noise_width), np.float32)
    seen, mask = np.zeros((50, 3), np.float32), np.ones((50, 10 if isinstance(space, MultiDiscrete) else 8), np.bool_)
    free, masked = policy.act(seen, None, None, noise), policy.act(seen, mask, None, noise)
    assert free.action.tolist() == masked.action.tolist()
    np.testing.assert_allclose(free.logp, masked.logp, rtol=1e-6)


@pytest.mark.parametrize("space", SPACES[:4])
def test_random_policies_match_the_width_of_heads(space):
    """A population begins with a random policy, and is then trained."""
    assert action_config(space).get("choices") == random_spec(space).config.get("choices")
    assert action_config(space).get("actions") == random_spec(space).config.get("actions")


def test_a_box_with_an_entry_of_one_value_has_no_head():
    with pytest.raises(PolicyError, match="does not have low < high in every entry"):
        action_config(SPACES[-1])


def test_a_bounded_box_is_uniform():
    answer = act(Box(-1, 3, (2,)), [[0.0, 0.25], [0.5, 0.75]])
    assert answer.action.tolist() == [[-1, 0], [1, 2]]
    assert answer.action.dtype == np.float32
    assert answer.logp.tolist() == pytest.approx([-np.log(16)] * 2)


def test_boxes_without_bounds_have_the_densities_that_are_said():
    noise = np.array([[0.2, 0.3, 0.4]])
    answer = act(Box(np.float32([2, -INF, -INF]), np.float32([INF, INF, 5])), noise)
    below, normal, above = answer.action[0].tolist()
    assert [below, normal, above] == pytest.approx(
        [2 + stats.expon.ppf(0.2), stats.norm.ppf(0.3), 5 - stats.expon.ppf(0.4)]
    )
    density = stats.expon.logpdf(below - 2) + stats.norm.logpdf(normal) + stats.expon.logpdf(5 - above)
    assert answer.logp[0] == pytest.approx(density, abs=1e-5)


def test_spaces_without_a_random_policy_raise():
    for space in (Dict({"a": Discrete(2)}), Discrete(3, start=1)):
        with pytest.raises(PolicyError, match="no random policy for the action space"):
            random_spec(space)
    with pytest.raises(PolicyError, match="is above high"):
        build_policy(PolicySpec("random", {"shape": [1], "low": [1], "high": [0]}), {})
    with pytest.raises(PolicyError, match="expected 2 numbers"):
        build_policy(PolicySpec("random", {"shape": [2], "low": [1], "high": [2, 2]}), {})


def test_vectors_are_not_tabulated():
    mask = np.ones((2, 2), np.bool_)
    game = Enumeration(np.zeros((2, 1), np.float32), mask, offset=(0, 2), key=("a", "b"))
    assert build_policy(random_spec(MultiDiscrete([2, 2])), {}).tabulate(game, 0) is None
    assert build_policy(random_spec(Discrete(2)), {}).tabulate(game, 0).tolist() == [[0.5, 0.5]] * 2
