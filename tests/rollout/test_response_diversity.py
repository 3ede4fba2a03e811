"""The rule of response diversity: hulls by hand and against SciPy's optimiser, and what it draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from ludus.core.errors import ConfigError
from ludus.core.parts import build_part
from ludus.core.types import AdaptiveMixture, Mixture, PolicyRef
from ludus.rollout.opponent_rules import OpponentResults, PerGroup, Rule, hull_difference, nearest_in_hull
from ludus.rollout.opponents import AdaptiveOpponents

RULE = "ludus.rollout.opponent_rules:ResponseDiversityRule"


@pytest.mark.parametrize(
    ("rows", "point", "expected"),
    [
        ([[0.0, 0.0]], [3.0, 4.0], [3.0, 4.0]),  # one row: its distance, 5
        ([[0.0, 0.0], [2.0, 0.0]], [1.0, 1.0], [0.0, 1.0]),  # above the middle of a segment
        ([[0.0, 0.0], [2.0, 0.0]], [3.0, 1.0], [1.0, 1.0]),  # beyond its end
        ([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]], [0.0, -1.0], [-0.5, -0.5]),  # below the long side of a triangle
        ([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]], [0.5, 0.5], [0.0, 0.0]),  # inside
        ([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]),  # a copy
    ],
)
def test_hulls_by_hand(rows: list[list[float]], point: list[float], expected: list[float]) -> None:
    assert np.allclose(hull_difference(np.array(rows), np.array(point)), expected, atol=1e-12)


@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_the_distance_is_the_least_there_is(m: int, n: int, data: st.DataObject) -> None:
    numbers = st.floats(-5, 5).map(lambda x: round(x, 3))
    rows = data.draw(arrays(np.float64, (m, n), elements=numbers))
    point = data.draw(arrays(np.float64, (n,), elements=numbers))
    weights = nearest_in_hull(rows, point)
    assert weights.shape == (m,)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0)
    found = minimize(
        lambda b: ((b @ rows - point) ** 2).sum(),
        np.full(m, 1 / m),
        jac=lambda b: 2 * rows @ (b @ rows - point),
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    length = (hull_difference(rows, point) ** 2).sum()
    assert length <= found.fun + 1e-9
    assert length == pytest.approx(found.fun, abs=1e-5)


def test_the_direction_is_the_gradient() -> None:
    rng = np.random.default_rng(0)
    rows, point = rng.normal(size=(4, 3)), 3.0 + rng.normal(size=3)

    def half_square(a: np.ndarray) -> float:
        return 0.5 * float((hull_difference(rows, a) ** 2).sum())

    step = 1e-6
    numeric = [(half_square(point + step * e) - half_square(point - step * e)) / (2 * step) for e in np.eye(3)]
    assert np.allclose(hull_difference(rows, point), numeric, atol=1e-7)


def evidence(played: list[int], earned: list[float]) -> OpponentResults:
    return OpponentResults(np.array(played), -np.array(earned), np.zeros(len(played)), np.array(earned))


def made(**options: object) -> Rule:
    rule = build_part("rule", {"kind": RULE, "tables": [[[0.0, 0.0], [2.0, 0.0]]], "explore": 0.0, **options}, {})
    assert isinstance(rule, PerGroup)
    return rule.of_group(0)


def test_opponents_by_hand() -> None:
    """a = (1, 3) is (0, 3) from the hull; of the second opponent ten episodes are known, so with a prior of 20 a third of it counts."""
    rule = made(weight=2.0, prior=20.0)
    state = rule.start(np.array([1.0, 0.0]))
    assert rule.probs(state).tolist() == [1.0, 0.0]
    state = rule.update(state, evidence([10, 10], [1.0, 3.0]))
    assert np.allclose(rule.probs(state), np.array([1.0, 2.0 * 3.0 / 3.0]) / 3.0)
    losing = rule.update(rule.start(np.array([1.0, 0.0])), evidence([10, 10], [1.0, -3.0]))
    assert rule.probs(losing).tolist() == [1.0, 0.0]  # against which it would have to lose more
    inside = rule.update(rule.start(np.array([0.5, 0.5])), evidence([10, 10], [1.0, 0.0]))
    assert np.allclose(rule.probs(inside), [0.5, 0.5])


def test_unknown_payoffs_attract_no_weight() -> None:
    rule = made(weight=2.0, prior=0.0, decay=1.0)
    state = rule.update(rule.start(np.array([0.5, 0.5])), evidence([10, 0], [3.0, np.nan]))
    assert np.allclose(rule.probs(state), np.array([2.5, 0.5]) / 3.0)  # 3 is 1 above the two rows' 0 and 2
    state = rule.update(state, evidence([30, 5], [1.0, 0.0]))
    assert np.allclose(state["earned"] / state["played"], [1.5, 0.0])  # the mean over both rollouts
    assert np.allclose(rule.probs(state), [0.5, 0.5])


def test_explored_and_without_a_table() -> None:
    assert np.allclose(made(explore=0.2).probs(made().start(np.array([1.0, 0.0]))), [0.9, 0.1])
    inert = made(tables=[None])
    state = inert.update(inert.start(np.array([0.3, 0.7])), evidence([5, 5], [9.0, -9.0]))
    assert np.allclose(inert.probs(state), [0.3, 0.7])


def test_each_group_has_a_table_of_its_own() -> None:
    """Three players in two populations: one table for the population of the seats 0 and 1, another for that of seat 2."""
    refs = [(PolicyRef(0, "a"), PolicyRef(0, "b")), (PolicyRef(1, "c"), PolicyRef(1, "d"))]
    mixture = Mixture.product({seat: (refs[which], (0.5, 0.5)) for seat, which in enumerate((0, 0, 1))})
    tables = [[[0.0, 0.0]], [[5.0, 5.0]]]
    moving = AdaptiveOpponents(AdaptiveMixture(mixture, RULE, {"tables": tables}))
    assert [rule.rows.tolist() for rule in moving._rules] == tables
    assert moving._groups == [[0, 1], [2]]


@pytest.mark.parametrize("options", [{"weight": -1.0}, {"explore": 2.0}, {"decay": 0.0}, {"prior": -1.0}])
def test_settings_that_make_no_sense(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        made(**options)
