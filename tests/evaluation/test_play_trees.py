"""Game trees node by node: reach, values and regrets, by hand on Kuhn poker and against OpenSpiel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyspiel
import pytest
from numpy.typing import NDArray

from ludus.apps.play.trees import NodeView, TreeExplorer, analyze
from ludus.core.errors import ConfigError, ScenarioError
from ludus.envs.tree.game_tree import GameTree, compile_tree

_ALPHA = 0.2
BETS = {
    "0": _ALPHA, "1": 0.0, "2": 3 * _ALPHA, "0pb": 0.0, "1pb": _ALPHA + 1 / 3, "2pb": 1.0,
    "0p": 1 / 3, "1p": 0.0, "2p": 1.0, "0b": 0.0, "1b": 1 / 3, "2b": 1.0,
}  # fmt: skip
"""Of each information state, how often it bets: one of Kuhn's equilibria, worth -1/18 to the first player."""


def tables(tree: GameTree, bets: dict[str, float]) -> list[NDArray[np.float64]]:
    keys = tree.enumeration.key
    probs = np.array([[1 - bets[key], bets[key]] for key in keys])
    return [probs[tree.enumeration.ids(p)] for p in range(2)]


def explorer(tree: GameTree, bets: dict[str, float]) -> TreeExplorer:
    """Of policies that have these tables."""
    mine = tables(tree, bets)

    def seats(_: str) -> Any:
        policies = [SimpleNamespace(tabulate=lambda *_, k=p, **__: mine[k]) for p in range(2)]
        return [[SimpleNamespace(name="x", policy=policy, mode="greedy", prob=1.0)] for policy in policies]

    game: Any = SimpleNamespace(tree=tree, spec=tree.spec, named=SimpleNamespace(seats=seats))
    return TreeExplorer(game, ["@0/a", "@1/b"])


@pytest.fixture(scope="module")
def kuhn() -> GameTree:
    return compile_tree("kuhn_poker")


def by_label(view: NodeView) -> dict[str, Any]:
    return {child.label: child for child in view.children}


def test_an_equilibrium_of_kuhn_poker(kuhn: GameTree) -> None:
    look = explorer(kuhn, BETS).look
    root = look("")
    assert root.value == pytest.approx([-1 / 18, 1 / 18])
    assert (root.kind, root.player, root.regret) == ("chance", None, None)
    assert root.nash_conv == pytest.approx(0, abs=1e-12)
    assert [child.leaves for child in root.children] == [10, 10, 10]
    assert root.reach == [1, 1, 1]
    first = look("0.1")  # jack against queen
    assert (first.kind, first.player, first.information) == ("decision", 0, "0")
    assert first.reach == pytest.approx([1, 1, 1 / 6])
    bet = by_label(first)["Bet"]
    assert bet.probability == pytest.approx(0.2)
    # the queen calls one bet of three: 2/3 × 1 - 1/3 × 2 = 0
    assert bet.value == pytest.approx([0, 0])
    assert [step.label for step in first.path] == ["start", "deals J", "deals Q"]
    called = look("0.1.1.1")
    assert (called.kind, called.value, called.children) == ("terminal", [-2, 2], [])
    assert called.reach == pytest.approx([0.2, 1 / 3, 1 / 6])
    for path in ("0.1", "1.0", "2.0", "0.1.0", "0.1.1", "0.1.0.1", "1.2.0.1"):
        regret = look(path).regret
        assert regret is not None
        assert max(regret) < 1e-12


def test_who_errs_regrets_it(kuhn: GameTree) -> None:
    """Who calls a bet with the jack loses 2 instead of 1, whoever bets: against a queen who bets after a pass never, and a king who
    always does, the jack's node after pass and bet is reached by chance (1/6) times the king's bet (1)."""
    look = explorer(kuhn, {**BETS, "0pb": 1.0}).look
    view = look("0.2.0.1")  # jack against king; pass, bet
    assert view.information == "0pb"
    assert view.value == [-2, 2]
    assert view.regret == pytest.approx([1 / 6, 0])
    assert by_label(view)["Pass"].regret == pytest.approx(1 / 6)
    # per game the jack meets that bet in 1/6 of deals, after passing (0.8): it loses 1 more each time
    assert look("").gains[0] == pytest.approx(0.8 / 6)


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_values_and_gains_agree_with_openspiel(name: str) -> None:
    game, tree = pyspiel.load_game(name), compile_tree(name)
    mask, chance = tree.enumeration.mask, np.random.default_rng(1)
    probs = mask * (chance.random(mask.shape) + 0.1)
    probs /= probs.sum(axis=1, keepdims=True)
    found = analyze(tree, [probs[tree.enumeration.ids(p)] for p in range(2)])
    rows = zip(tree.enumeration.key, probs, mask, strict=True)
    policy = pyspiel.TabularPolicy(
        {key: [(action, row[action]) for action in np.flatnonzero(legal).tolist()] for key, row, legal in rows}
    )
    assert found.value[0] == pytest.approx(pyspiel.expected_returns(game.new_initial_state(), policy, -1, True))
    assert found.gains.sum() == pytest.approx(pyspiel.nash_conv(game, policy))
    assert found.leaves[0] == (tree.arrays.nodes.degree == 0).sum()


def test_simultaneous_moves_are_opened_one_player_after_the_other() -> None:
    tree = compile_tree("matrix_pd")
    mine = [np.array([[0.25, 0.75]]), np.array([[0.5, 0.5]])]
    seats = [
        [SimpleNamespace(name="x", policy=SimpleNamespace(tabulate=lambda *_, k=p, **__: mine[k]), mode="", prob=1.0)]
        for p in range(2)
    ]
    game: Any = SimpleNamespace(tree=tree, spec=tree.spec, named=SimpleNamespace(seats=lambda _: seats))
    look = TreeExplorer(game, ["@0/a", "@1/b"]).look
    second = look("0")
    assert (second.player, second.reach) == (1, [0.25, 1, 1])
    end = look("0.1")
    assert (end.kind, end.value, end.reach) == ("terminal", [0, 10], [0.25, 0.5, 1])
    assert look("").regret == pytest.approx([2.5 - look("").value[0], 5.5 - look("").value[0]])


def test_tree_paths_to_nowhere_are_rejected(kuhn: GameTree) -> None:
    look = explorer(kuhn, BETS).look
    for path in ("7", "0.0", "0.1.1.1.0"):
        with pytest.raises(ConfigError, match="leads to no node"):
            look(path)
    for path in ("a", "-1", "1..2", "1" * 5000, "٣"):
        with pytest.raises(ConfigError, match="is no node"):
            look(path)
    untabled: Any = SimpleNamespace(tabulate=lambda *_, **__: None)
    seats = [[SimpleNamespace(name="bot:x", policy=untabled, mode="", prob=1.0)]] * 2
    game: Any = SimpleNamespace(tree=kuhn, spec=kuhn.spec, named=SimpleNamespace(seats=lambda _: seats))
    with pytest.raises(ScenarioError, match="has no table"):
        TreeExplorer(game, ["@0/a", "@1/b"])
    game.tree = None
    with pytest.raises(ScenarioError, match="no compiled tree"):
        TreeExplorer(game, ["@0/a", "@1/b"])
