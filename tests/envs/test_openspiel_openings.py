"""Episodes of OpenSpiel's games that begin after random moves."""

from __future__ import annotations

import numpy as np
import pyspiel
import pytest

from ludus.core.errors import ConfigError
from ludus.envs.config import Environment
from ludus.envs.openspiel.states import ChanceStream, OpenSpielGame, player_moves
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import make_env
from ludus.testing.env import check_env


def moves_made(openings: int, episodes: int = 1500) -> list[int]:
    game = OpenSpielGame(pyspiel.load_game("tic_tac_toe"), openings)
    luck, found = ChanceStream(7), []
    for _ in range(episodes):
        found.append(len(player_moves(game.new_state(luck))))
        luck.renew()
    return found


def test_every_number_of_moves_is_as_likely():
    """Four moves cannot end a game of tic-tac-toe: 0 to 4 with 1/5 each, 300 +- 62 (four deviations) of 1,500."""
    assert all(abs(n - 300) <= 62 for n in np.bincount(moves_made(4), minlength=5))
    assert set(moves_made(0, 10)) == {0}


def test_an_opening_that_ends_the_game_is_none():
    """With up to 9 moves, 1,500 episodes have every length up to 8; 9 moves fill the board, so they begin at the root."""
    counts = np.bincount(moves_made(9), minlength=10)
    assert counts[9] == 0
    assert counts[1:6].min() > 0
    assert counts[0] > 150 + 4 * 12  # a tenth, and those that ended


def test_first_moves_are_uniform():
    game, luck, first = OpenSpielGame(pyspiel.load_game("tic_tac_toe"), 1), ChanceStream(3), []
    for _ in range(3600):
        first += player_moves(game.new_state(luck))
        luck.renew()
    counts = np.bincount(first, minlength=9)
    expected = len(first) / 9  # about 200
    assert ((counts - expected) ** 2 / expected).sum() < 26.1  # chi-squared, 8 degrees of freedom, 1 in 1,000


@pytest.mark.parametrize("game", ["tic_tac_toe", "leduc_poker", "backgammon", "goofspiel(num_cards=4)", "negotiation"])
def test_openspiel_openings_satisfy_vector_env_contract(game):
    """Turns, chance before and between moves, simultaneous moves, chance inside: the same seeds, the same episodes; snapshots go on."""
    check_env(lambda n: OpenSpielVectorEnv(game, n, openings=3), num_envs=3, steps=40)


def test_observations_and_length_begin_after_the_opening():
    """Up to 5 moves of tic-tac-toe: whoever is to move sees as many pieces as were set, and the length counts what was decided."""
    env = OpenSpielVectorEnv("tic_tac_toe", 64, openings=5)
    seeds = np.arange(64, dtype=np.uint64)
    step = env.reset(seeds, episodes=1)
    before = np.zeros(64, np.int64)
    for due in step.due:
        before[due.slot] = 9 - due.mask.sum(1)
        assert (due.observation.reshape(-1, 3, 9)[:, 1:].sum((1, 2)) == before[due.slot]).all()
        assert due.first.all()
    assert set(before) == {0, 1, 2, 3, 4, 5}
    lengths = {}
    while len(lengths) < 64:
        step = env.step(tuple(due.mask.argmax(1) for due in step.due))
        lengths |= dict(zip(step.finished.environment.tolist(), step.finished.length.tolist(), strict=True))
    # The lowest free cell is taken each time: with the opening, at most all 9.
    assert all(1 <= lengths[e] <= 9 - before[e] for e in range(64))
    assert env.transcript(0).count("\nplayer ") == lengths[0] + before[0]


def test_openings_reject_invalid_options():
    with pytest.raises(ConfigError, match="openings=3 was given with tree=on"):
        make_env("openspiel/tic_tac_toe", num_envs=1, tree="on", openings=3)
    with pytest.raises(ConfigError, match="openings=-1 was given"):
        make_env("openspiel/tic_tac_toe", num_envs=1, openings=-1)


def test_matches_are_played_from_the_start():
    assert Environment(id="openspiel/tic_tac_toe", options={"openings": 3}).played.options == {}
    own = Environment(id="a.module:Class", options={"openings": 3})  # its own meaning
    assert own.played is own
