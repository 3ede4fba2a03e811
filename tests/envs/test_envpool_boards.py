"""EnvPool's games of several players: the contract, a game by hand, hidden cards, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import require

from ludus.core.errors import ConfigError, EnvError
from ludus.core.seeding import keys
from ludus.core.types import Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

require("envpool")


SEED = 7
GAMES = [
    "AnimalShogi-v1", "Backgammon-v1", "Chess-v1", "ChineseGo9x9-v1", "ConnectFour-v1", "GardnerChess-v1", "Go9x9-v1", "Hex-v1",
    "KuhnPoker-v1", "LeducHoldem-v1", "Othello-v1", "Shogi-v1", "SparrowMahjong-v1", "TicTacToe-v1",
]  # fmt: skip


def vector(name: str, n: int, **options: Any) -> VectorEnv:
    return make_env(f"envpool/{name}", num_envs=n, **options)


FAST = {"TicTacToe-v1", "KuhnPoker-v1", "LeducHoldem-v1", "SparrowMahjong-v1"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in GAMES])
def test_envpool_boards_satisfy_vector_env_contract(name: str) -> None:
    check_env(lambda n: vector(name, n), num_envs=3, steps=30)


class Shuffled:
    """A pool that lists its games in another order each time, as its threads may; each still gets its own actions."""

    def __init__(self, pool: Any) -> None:
        self._pool, self._rng = pool, np.random.default_rng(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def shuffle(self, reply: tuple[Any, ...]) -> tuple[Any, ...]:
        *columns, info = reply
        n = len(info["env_id"])
        order = self._rng.permutation(n)

        def moved(column: Any) -> Any:
            return column.reshape(n, -1, *column.shape[1:])[order].reshape(column.shape)

        told = {key: moved(info[key]) for key in ("env_id", "current_player", "legal_action_mask")}
        return *map(moved, columns), told

    def step(self, actions: Any) -> Any:
        return self.shuffle(self._pool.step(actions))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TicTacToe-v1", "LeducHoldem-v1", "SparrowMahjong-v1"])
def test_rows_in_the_order_of_threads(name: str) -> None:
    """EnvPool lists games of several players in the order in which its threads finish them; nothing may depend on it."""

    def shuffled(n: int) -> VectorEnv:
        env: Any = vector(name, n, threads=1)
        start = env._start

        def other(seeds: Any) -> Any:
            pool, *reply = start(seeds)
            pool = Shuffled(pool)
            return pool, *pool.shuffle(tuple(reply))

        env._start = other
        return env  # type: ignore[no-any-return]

    check_env(shuffled, num_envs=5, steps=40)
    plain, odd = vector(name, 5, threads=1), shuffled(5)
    rng, seeds = np.random.default_rng(1), keys(3, "order", count=5)
    one, other = plain.reset(seeds), odd.reset(seeds)
    for _ in range(40):
        for a, b in zip((*one.due, *one.ended, one.finished), (*other.due, *other.ended, other.finished), strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x, y)
        chosen = []
        for due in one.due:
            assert due.mask is not None
            chosen.append(np.array([rng.choice(np.flatnonzero(legal)) for legal in due.mask], np.int64))
        one, other = plain.step(tuple(chosen)), odd.step(tuple(chosen))


def mover(timestep: Timestep) -> int:
    """The only player with something due."""
    (player,) = [p for p, due in enumerate(timestep.due) if len(due.slot)]
    return player


def act(env: VectorEnv, timestep: Timestep, action: int) -> Timestep:
    return env.step(tuple(np.full(len(due.slot), action) for due in timestep.due))


def test_tic_tac_toe_by_hand() -> None:
    """Whoever begins fills the top row against the middle one: both open decisions close, +1 and -1."""
    env = vector("TicTacToe-v1", 1)
    timestep = env.reset(np.array([SEED], np.uint64))
    begins = mover(timestep)
    for move, cell in enumerate([0, 3, 1, 4]):
        assert mover(timestep) == (begins + move) % 2
        timestep = act(env, timestep, cell)
    mask = timestep.due[begins].mask
    assert mask is not None
    assert mask.tolist() == [[False, False, True, False, False, True, True, True, True]]
    wrong = rf"player {begins}'s illegal action 4; legal: \[2, 5, 6, 7, 8\]; environment 0 of 1, seed {SEED}, episode 0, step 5"
    with pytest.raises(EnvError, match=wrong):
        act(env, timestep, 4)
    timestep = act(env, timestep, 2)
    for player in (0, 1):
        ended = timestep.ended[player]
        assert ended.slot.tolist() == [0]
        assert ended.reward.tolist() == [1 if player == begins else -1]
        assert ended.terminated.tolist() == [True]
        # Two planes of nine cells, the viewer's own first: the winner has the top row, the loser two cells of the middle one.
        assert ended.observation.shape == (1, 3, 3, 2)
        board = ended.observation.reshape(9, 2)
        own, other = board[:, 0].nonzero()[0].tolist(), board[:, 1].nonzero()[0].tolist()
        assert (own, other) == (([0, 1, 2], [3, 4]) if player == begins else ([3, 4], [0, 1, 2]))
    assert timestep.finished.length.tolist() == [5]
    assert mover(timestep) in (0, 1)  # the next game has begun
    assert timestep.due[mover(timestep)].first.all()


def test_hidden_cards_stay_hidden() -> None:
    """Kuhn poker has three cards; in sixty deals, whoever begins sees three different things and not one more. In Leduc poker likewise,
    and each of the cards is seen whichever of the three the opponent has."""
    for name in ("KuhnPoker-v1", "LeducHoldem-v1"):
        env = vector(name, 120)
        timestep = env.reset(keys(2, "boards", count=120))
        for due in timestep.due:
            assert len({row.tobytes() for row in due.observation}) == 3


def test_each_player_sees_its_own_card() -> None:
    """Leduc poker: the card that a player's observation shows is that of the pool's `cards` for this player, and never the opponent's."""
    env: Any = vector("LeducHoldem-v1", 90)
    dealt = []
    start = env._start

    def spied(seeds: Any) -> Any:
        pool, seen, info = start(seeds)
        dealt.append(info["cards"][np.argsort(info["env_id"])].copy())
        return pool, seen, info

    env._start = spied
    timestep = env.reset(keys(4, "cards", count=90))
    pairs = set()
    for player, due in enumerate(timestep.due):
        for slot, row in zip(due.slot.tolist(), due.observation, strict=True):
            own, theirs = dealt[0][slot][player], dealt[0][slot][1 - player]
            assert row[:3].astype(int).tolist() == [int(own == card) for card in range(3)]
            pairs.add((int(own), int(theirs)))
    assert len(pairs) == 9  # each own card beside each card of the opponent


def test_returns_of_three_players() -> None:
    env = vector("SparrowMahjong-v1", 4)
    timestep, rng = env.reset(keys(5, "mahjong", count=4), episodes=3), np.random.default_rng(0)
    returns: list[list[float]] = []
    while any(len(due.slot) for due in timestep.due):
        chosen = []
        for due in timestep.due:
            assert due.mask is not None
            chosen.append(np.array([rng.choice(np.flatnonzero(legal)) for legal in due.mask], np.int64))
        timestep = env.step(tuple(chosen))
        returns += timestep.finished.returns.tolist()
    assert len(returns) == 12
    assert [len(row) for row in returns] == [3] * 12
    assert np.abs(np.sum(returns, axis=1)).max() < 1e-6
    assert np.any(returns)


@pytest.mark.long
@pytest.mark.parametrize("name", GAMES)
def test_returns_of_every_game_sum_to_zero(name: str) -> None:
    env = vector(name, 8)
    assert env.spec.zero_sum
    timestep, rng, ended = env.reset(keys(6, "sum", count=8)), np.random.default_rng(0), 0
    while ended < 8:
        chosen = []
        for due in timestep.due:
            assert due.mask is not None
            chosen.append(np.array([rng.choice(np.flatnonzero(legal)) for legal in due.mask], np.int64))
        timestep = env.step(tuple(chosen))
        assert np.abs(timestep.finished.returns.sum(axis=1)).max(initial=0) < 1e-6
        ended += len(timestep.finished.length)


def test_render() -> None:
    env: Any = vector("ConnectFour-v1", 2, render=True)
    env.reset(keys(7, "show", count=2))
    image = env.render(1)
    assert image.dtype == np.uint8
    assert image.ndim == 3
    assert image.shape[2] == 3


def test_names_and_refusals() -> None:
    assert {"envpool/TicTacToe-v1", "envpool/Chess-v1", "envpool/Go9x9-v1"} <= set(list_envs("envpool"))
    with pytest.raises(ConfigError, match="games of several players are stepped together"):
        make_env("envpool/TicTacToe-v1", num_envs=2, batch_size=1)
    env = vector("TicTacToe-v1", 1)
    with pytest.raises(EnvError, match="nothing to show"):
        env.render(0)  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match="max_episode_steps was given for envpool/TicTacToe-v1; EnvPool ignores it there"
    ):
        vector("TicTacToe-v1", 1, max_episode_steps=3)
    with pytest.raises(EnvError, match="step was called before reset"):
        env.step((np.zeros(1, int), np.zeros(0, int)))
    env.reset(np.array([SEED], np.uint64))
    for wrong in ((np.zeros(1, int), np.zeros(1, int)), (np.zeros(1), np.zeros(0)), (np.zeros(0), np.zeros(1))):
        with pytest.raises(EnvError, match="expected one integer each"):
            env.step(wrong)
