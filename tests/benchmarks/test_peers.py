"""The peers' own parts, against pyspiel and against each other: a peer that is wrong would make a bar worthless."""

import numpy as np
import pyspiel
import pytest

from benchmarks.peers.sequence_form import SequenceForm

highspy = pytest.importorskip("highspy")

from benchmarks.peers.pyspiel_loop.run import ColdLP, OneMDP, TwoTables, WarmLP  # noqa: E402


@pytest.fixture(scope="module")
def leduc() -> tuple[pyspiel.Game, SequenceForm]:
    game = pyspiel.load_game("leduc_poker")
    return game, SequenceForm(game)


def random_plans(form: SequenceForm, seed: int) -> list[np.ndarray]:
    """Mixtures of five random pure policies per player."""
    rng = np.random.default_rng(seed)
    plans = []
    for player, own in enumerate(form.players):
        pure = [
            form.pure(player, {key: int(rng.choice(a)) for key, a in zip(own.key, own.actions, strict=True)})
            for _ in range(5)
        ]
        plans.append(rng.dirichlet(np.ones(5)) @ np.array(pure))
    return plans


def table(form: SequenceForm, plans: list[np.ndarray], tremble: float = 0.0) -> dict[str, list[tuple[int, float]]]:
    return form.policy_dict(0, plans[0], tremble=tremble) | form.policy_dict(1, plans[1], tremble=tremble)


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_sequence_form_payoffs_are_pyspiels_expected_returns(name: str) -> None:
    game = pyspiel.load_game(name)
    form = SequenceForm(game)
    plans = random_plans(form, seed=1)
    policy = pyspiel.TabularPolicy(table(form, plans))
    expected = pyspiel.expected_returns(game.new_initial_state(), policy, -1, True)
    assert plans[0] @ (form.payoff @ plans[1]) == pytest.approx(expected[0], abs=1e-12)


def test_the_uniform_policy_of_kuhn() -> None:
    """Uniform play of Kuhn poker gives the first player 1/8; 12 information states, two actions each."""
    form = SequenceForm(pyspiel.load_game("kuhn_poker"))
    assert form.payoff.shape == (13, 13)
    assert form.uniform(0) @ (form.payoff @ form.uniform(1)) == pytest.approx(0.125)


def test_both_best_responses_are_pyspiels_nash_conv(leduc: tuple[pyspiel.Game, SequenceForm]) -> None:
    game, form = leduc
    mixture = table(form, random_plans(form, seed=2), tremble=1e-9)
    actions, value = OneMDP(game)(mixture)
    by_table, table_value = TwoTables(game, mixture)(mixture)
    assert value == pytest.approx(pyspiel.nash_conv(game, mixture), abs=1e-9)
    assert table_value == pytest.approx(value, abs=1e-9)
    assert [set(a) for a in actions] == [set(own.key) for own in form.players]
    assert [set(a) for a in by_table] == [set(a) for a in actions]


def test_a_warm_lp_solves_every_growing_game_as_a_cold_one_does() -> None:
    payoff = np.random.default_rng(3).normal(size=(12, 12))
    warm = WarmLP()
    for size in (1, 2, 5, 12):
        game = payoff[:size, :size]
        for row, column in (warm.solve(game), ColdLP().solve(game)):
            assert row.sum() == pytest.approx(1.0)
            assert (row @ game).min() == pytest.approx((game @ column).max(), abs=1e-7)
