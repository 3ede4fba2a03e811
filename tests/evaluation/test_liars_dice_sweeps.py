"""Best responses in liar's dice: against compiled trees, OpenSpiel, numbers worked by hand, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyspiel
import pytest
from numpy.typing import NDArray
from open_spiel.python.algorithms.exploitability import nash_conv
from open_spiel.python.policy import UniformRandomPolicy

import ludus
from ludus.core.errors import ScenarioError
from ludus.envs.registry import make_env
from ludus.envs.sweep_rules import LiarsDice
from ludus.envs.tree.game_tree import compile_tree
from ludus.evaluation import liars_dice
from ludus.evaluation.evaluate import RunEvaluator

FORMS = [
    "liars_dice(dice_sides=3,numdice=1)",
    "liars_dice(dice_sides=2,numdice=2)",
    "liars_dice(bidding_rule=reset-quantity,dice_sides=3,numdice=1)",
]


def game(name: str, *, sequences: bool = True) -> LiarsDice:
    shown = "information_state" if sequences else "observation"
    env: Any = make_env(f"openspiel/{name}", num_envs=1, tree="off", fast="on", observation=shown)
    rules: LiarsDice = env.sweep_rules
    env.close()
    return rules


def at_random(seed: int) -> liars_dice.Ask:
    """A policy that is another function of what it sees for each seed."""

    def ask(rows: NDArray[np.float32], legal: NDArray[np.bool_]) -> NDArray[np.float64]:
        probs = np.zeros(legal.shape)
        for k, row in enumerate(rows):
            rng = np.random.default_rng([seed, *row.astype(int).tolist()])
            weight = rng.exponential(size=legal.shape[1]) ** 3 * legal[k]
            probs[k] = weight / weight.sum()
        return probs

    return ask


def uniformly(rows: NDArray[np.float32], legal: NDArray[np.bool_]) -> NDArray[np.float64]:
    del rows
    probs: NDArray[np.float64] = legal / legal.sum(axis=1, keepdims=True)
    return probs


Mixtures = list[tuple[list[float], list[liars_dice.Ask]]]


def opponents_of(rules: LiarsDice, mixtures: Mixtures) -> list[liars_dice.Opponent]:
    return [liars_dice.opponent_of(rules, p, np.array(w), asks) for p, (w, asks) in enumerate(mixtures)]


def best_responses(rules: LiarsDice, mixtures: Mixtures) -> list[float]:
    opponents = opponents_of(rules, mixtures)
    return [liars_dice.best_response_value(rules, p, opponents[1 - p]) for p in range(2)]


def value(rules: LiarsDice, mixtures: Mixtures) -> float:
    first, second = opponents_of(rules, mixtures)
    return liars_dice.value_of(rules, (first, second))


@pytest.mark.parametrize("sequences", [True, False])
@pytest.mark.parametrize("name", FORMS)
def test_random_mixtures_are_as_exploitable_as_on_the_tree(name: str, sequences: bool) -> None:
    rules = game(name, sequences=sequences)
    mixtures = [([0.25, 0.75], [at_random(10 * p), at_random(10 * p + 1)]) for p in range(2)]
    tree = compile_tree(name, observation="information_state" if sequences else "observation")
    plans = []
    for player, (weights, asks) in enumerate(mixtures):
        own = tree.enumeration.ids(player)
        rows, legal = tree.enumeration.observation[own], tree.enumeration.mask[own]
        plans.append(np.array(weights) @ np.stack([tree.realization(player, ask(rows, legal)) for ask in asks]))
    exact = tree.exploitability(plans)
    np.testing.assert_allclose(best_responses(rules, mixtures), exact.value + exact.gain, rtol=0, atol=1e-12)
    assert value(rules, mixtures) == pytest.approx(exact.value[0], abs=1e-12)


@pytest.mark.parametrize("name", FORMS)
def test_uniform_play_is_as_exploitable_as_openspiel_says(name: str) -> None:
    openspiel = pyspiel.load_game(name)
    expected = nash_conv(openspiel, UniformRandomPolicy(openspiel))
    assert sum(best_responses(game(name), 2 * [([1.0], [uniformly])])) == pytest.approx(expected, abs=1e-12)


def test_two_one_sided_dice_by_hand() -> None:
    # every die shows 1, so that both bids, one and two dice, are true: who bids last wins, and only the second bid can be the last for sure
    rules = game("liars_dice(dice_sides=1,numdice=1)")
    assert liars_dice.hands_of(rules)[1].tolist() == [1.0]
    # player 0 bids 2 and is called a liar, which it is not; player 1, after a bid of 1 (probability 1/2), bids 2, and after 2 loses
    uniform: Mixtures = 2 * [([1.0], [uniformly])]
    assert best_responses(rules, uniform) == [1.0, 0.0]
    # it wins half of the games after a bid of 1, in which player 1 calls it or bids 2 and is called; and all after a bid of 2
    assert value(rules, uniform) == 0.5


def test_hands_have_multinomial_probabilities() -> None:
    hands, probs = liars_dice.hands_of(game("liars_dice(dice_sides=5,numdice=2)"))
    assert len(hands) == 15
    assert dict(zip(map(tuple, hands.tolist()), (25 * probs).tolist(), strict=True))[1, 1] == pytest.approx(1)
    assert dict(zip(map(tuple, hands.tolist()), (25 * probs).tolist(), strict=True))[2, 4] == pytest.approx(2)
    assert probs.sum() == pytest.approx(1)


def test_too_large_games_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScenarioError, match="up to 26 bids, and this one has 36"):
        liars_dice.bytes_of(game("liars_dice(numdice=3)"))
    monkeypatch.setattr(liars_dice, "free_memory", lambda: 10_000_000)
    with pytest.raises(ScenarioError, match="10 MB are free"):
        liars_dice.bytes_of(game("liars_dice(dice_sides=5,numdice=2)"))


@pytest.mark.parametrize("shown", ["observation", "information_state"])
def test_mixtures_of_a_run_are_as_exploitable_as_on_the_tree(tmp_path: Path, shown: str) -> None:
    scenario = ludus.PSRO(
        env={"id": f"openspiel/{FORMS[0]}", "num_envs": 8, "tree": "off", "options": {"observation": shown}},
        algorithm="ppo",
        response={"decisions": 256},
        evaluation={"episodes": 50},
        generations=2,
    )
    ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    told: list[tuple[int, int, int]] = []
    report = ludus.evaluate_exact(tmp_path / "run", tell=lambda *done: told.append(done))
    tree = compile_tree(FORMS[0], observation=shown)
    with RunEvaluator(tmp_path / "run") as run:
        plans = []
        for player, probs in enumerate(run.named.solution("@meta").strategies):
            members = run.stored.members[run.stored.population[player]]
            tables = [run.policy(m.ref).tabulate(tree.enumeration, player, mode=m.ref.mode) for m in members]
            stack = np.stack([tree.realization(player, table) for table in tables if table is not None])
            plans.append(probs @ stack[: len(probs)])
    exact = tree.exploitability(plans)
    np.testing.assert_allclose(report.best, exact.value + exact.gain, rtol=0, atol=1e-5)  # networks round by rows
    assert [done[:2] for done in told] == [(0, 2), (1, 2), (2, 2)]
    assert {size for _, _, size in told} == {report.bytes}
