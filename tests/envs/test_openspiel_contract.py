"""The shipped contract check on OpenSpiel games, and on environments that break the contract."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ludus.core.types import ActionRequests, ClosedDecisions, Timestep
from ludus.envs.adapters.openspiel import load_game
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import list_envs
from ludus.testing.env import check_env
from ludus.testing.fakes import ENDS_OFF_TURN, TEAM, TRUNCATED_OFF_TURN, ScriptedEnv

FAST = [
    "kuhn_poker",
    "kuhn_poker(players=3)",
    "leduc_poker",
    "liars_dice",
    "tic_tac_toe",
    "connect_four",
    "breakthrough",  # more than 256 actions
    "matrix_rps",
    "matching_pennies_3p",
    "goofspiel(imp_info=True,num_cards=4,points_order=descending)",
    "goofspiel(imp_info=True,num_cards=4,points_order=random)",
    "goofspiel(players=3,num_cards=3)",
    "oshi_zumo(coins=4,size=2)",
    "blackjack",
    "catch",
    "pathfinding",
    "negotiation",
    "markov_soccer",
]
UNFIT = {
    "openspiel/bridge": "solves every deal double dummy, seconds each",
    "openspiel/bridge_uncontested_bidding": "solves every deal double dummy, seconds each",
}


@pytest.mark.parametrize("game", FAST)
def test_openspiel_games_satisfy_vector_env_contract(game):
    check_env(lambda n: OpenSpielVectorEnv(game, n), num_envs=3, steps=40)


@pytest.mark.long
@pytest.mark.parametrize("id", list_envs("openspiel"))
def test_every_game_satisfies_vector_env_contract(id):
    if id in UNFIT:
        pytest.skip(UNFIT[id])
    game = load_game(id)
    check_env(lambda n: OpenSpielVectorEnv(game, n), num_envs=2, steps=15)


@pytest.mark.parametrize("script", [ENDS_OFF_TURN, TRUNCATED_OFF_TURN, TEAM])
def test_fake_games_satisfy_vector_env_contract(script):
    check_env(lambda n: ScriptedEnv([script], n), steps=20)


def test_rewards_before_a_first_decision_must_be_announced():
    early = dataclasses.replace(ENDS_OFF_TURN, returns=(1.5, -2.0))  # player 1 lost 0.5 before it first moved
    check_env(lambda n: ScriptedEnv([early], n), steps=20, early_rewards=True)
    with pytest.raises(AssertionError, match="sum to"):
        check_env(lambda n: ScriptedEnv([early], n), steps=20)


class Broken(ScriptedEnv):
    """A scripted environment whose timesteps `spoil` changes."""

    def __init__(self, num_envs: int, spoil) -> None:
        super().__init__([ENDS_OFF_TURN], num_envs)
        self._spoil = spoil

    def reset(self, seeds, *, episodes=None) -> Timestep:
        return self._spoil(super().reset(seeds, episodes=episodes))

    def step(self, actions) -> Timestep:
        return self._spoil(super().step(actions))


def _due(timestep: Timestep, **columns) -> Timestep:
    def spoil(due: ActionRequests) -> ActionRequests:
        return due._replace(**{name: change(getattr(due, name)) for name, change in columns.items()})

    return timestep._replace(due=tuple(spoil(due) for due in timestep.due))


def _ended(timestep: Timestep, **columns) -> Timestep:
    def spoil(ended: ClosedDecisions) -> ClosedDecisions:
        return ended._replace(**{name: change(getattr(ended, name)) for name, change in columns.items()})

    return timestep._replace(ended=tuple(spoil(ended) for ended in timestep.ended))


def _forget_player_0(timestep: Timestep) -> Timestep:
    empty = ClosedDecisions(
        np.empty(0, np.int32),
        np.empty(0, np.float32),
        np.empty(0, np.bool_),
        np.empty((0, 1), np.float32),
    )
    return timestep._replace(ended=(empty, timestep.ended[1]))


def _length(timestep: Timestep) -> Timestep:
    finished = timestep.finished._replace(length=timestep.finished.length + 1)
    return timestep._replace(finished=finished)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_forget_player_0, "open decisions are not in `ended`"),
        (_length, r"`finished.length` says"),
        (lambda t: _due(t, mask=np.zeros_like), "without a legal action"),
        (lambda t: _due(t, slot=lambda s: s[::-1].copy()), "must rise"),
        (lambda t: _due(t, slot=lambda s: s.astype(np.int64)), "must be int32"),
        (lambda t: _due(t, reward=lambda r: r * np.float32(np.nan)), "not finite"),
        (lambda t: _due(t, first=np.zeros_like), "`first` must mark"),
        (lambda t: _due(t, reward=lambda r: r + np.float32(1)), "first decision came with a reward"),
        (lambda t: _due(t, observation=lambda o: o[:, 0]), "observations are"),
        (lambda t: _ended(t, reward=lambda r: r + np.float32(1)), "sum to"),
    ],
)
def test_breaches_are_found(spoil, message):
    with pytest.raises(AssertionError, match=message):
        check_env(lambda n: Broken(n, spoil), steps=20)


def test_dependence_on_neighbours_is_found():
    class Crowded(OpenSpielVectorEnv):
        def reset(self, seeds, *, episodes=None):
            return super().reset(seeds + np.uint64(self.num_envs), episodes=episodes)

    with pytest.raises(AssertionError, match="alone"):
        check_env(lambda n: Crowded("leduc_poker", n), steps=20)


def test_reused_buffers_are_found():
    class OneBuffer(OpenSpielVectorEnv):
        def _publish(self, returns=None):
            self._pub._now = 0
            return super()._publish(returns)

    with pytest.raises(AssertionError, match="overwrote"):
        check_env(lambda n: OneBuffer("leduc_poker", n), steps=20)


def test_unseeded_chance_is_found():
    class Unseeded(OpenSpielVectorEnv):
        def reset(self, seeds, *, episodes=None):
            return super().reset(
                np.random.default_rng().integers(2**62, size=len(seeds), dtype=np.uint64), episodes=episodes
            )

    with pytest.raises(AssertionError, match="second reset"):
        check_env(lambda n: Unseeded("leduc_poker", n), steps=20)
