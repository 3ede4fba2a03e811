"""Ids of one name that are one game (docs/environments/same-games.md), in lockstep: legal moves, who is due, payoffs, ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyspiel
import pytest
from installed import require

from ludus.core.seeding import keys
from ludus.envs.registry import make_env

Deal = Callable[[Any, int, int], list[int]]
"""(vector, environment, first player) -> the chance actions of an episode, in OpenSpiel's numbers."""
_PASS = 64


def deal_leduc(env: Any, environment: int, first: int) -> list[int]:
    """Player 0 of OpenSpiel is who begins; ranks are the same, and cards of one rank are two numbers."""
    ranks = np.asarray(env._carry.state._cards)[environment].tolist()
    cards: list[int] = []
    for rank in (ranks[first], ranks[1 - first], ranks[2]):
        cards.append(2 * rank + (2 * rank in cards))
    return cards


def deal_kuhn(env: Any, environment: int, first: int) -> list[int]:
    cards = np.asarray(env._carry.state._cards)[environment].tolist()
    return [cards[first], cards[1 - first]]


class Lockstep:
    """Random games of a vector of two players in turn, and of OpenSpiel. numbers: OpenSpiel's of each action, where they differ. without:
    actions of the vector that are not played, and that OpenSpiel lacks. late: the only action that is left after OpenSpiel's end."""

    def __init__(
        self,
        id: str,
        game: str,
        *,
        num_envs: int = 4,
        numbers: Mapping[int, int] | None = None,
        without: Sequence[int] = (),
        late: int | None = None,
        deal: Deal | None = None,
        **options: Any,
    ) -> None:
        self.env: Any = make_env(id, num_envs=num_envs, **options)
        self.game, self.deal, self.late, self.without = pyspiel.load_game(game), deal, late, set(without)
        self.numbers = numbers or {}
        self.states: list[Any] = [None] * num_envs
        self.chance: list[list[int]] = [[] for _ in range(num_envs)]
        self.first = [0] * num_envs
        self.rng = np.random.default_rng(0)

    def play(self, games: int) -> None:
        num_envs = len(self.states)
        timestep = self.env.reset(keys(0, "lockstep", count=num_envs))
        self._begin(range(num_envs), timestep)
        while games > 0:
            timestep = self.env.step(self._moves(timestep))
            over = timestep.finished.environment.tolist()
            for e, returns in zip(over, timestep.finished.returns, strict=True):
                theirs = self.states[e].returns()
                assert returns.tolist() == [theirs[(p - self.first[e]) % 2] for p in range(2)]
            ended = {e for e, state in enumerate(self.states) if state.is_terminal()}
            assert set(over) <= ended if self.late is not None else set(over) == ended
            games -= len(over)
            self._begin(over, timestep)

    def _begin(self, environments: Sequence[int] | range, timestep: Any) -> None:
        for e in environments:
            (self.first[e],) = [p for p, due in enumerate(timestep.due) if e in due.slot]
            self.states[e] = self.game.new_initial_state()
            self.chance[e] = [] if self.deal is None else self.deal(self.env, e, self.first[e])
            self._draw(e)

    def _draw(self, e: int) -> None:
        while self.states[e].is_chance_node():
            self.states[e].apply_action(self.chance[e].pop(0))

    def _moves(self, timestep: Any) -> tuple[Any, ...]:
        moves: list[list[int]] = [[], []]
        for p, due in enumerate(timestep.due):
            for e, mask in zip(due.slot.tolist(), due.mask, strict=True):
                state, legal = self.states[e], [a for a in np.flatnonzero(mask).tolist() if a not in self.without]
                if state.is_terminal():
                    assert legal == [self.late]
                    moves[p].append(legal[0])
                    continue
                assert (p - self.first[e]) % 2 == state.current_player()
                assert sorted(self.numbers.get(a, a) for a in legal) == state.legal_actions()
                moves[p].append(int(self.rng.choice(legal)))
                state.apply_action(self.numbers.get(moves[p][-1], moves[p][-1]))
                self._draw(e)
        return tuple(np.array(each, int) for each in moves)


TRANSPOSED = {a: a % 3 * 3 + a // 3 for a in range(9)}
"""PettingZoo counts the cells of tic-tac-toe column by column."""


def test_connect_four_of_pettingzoo() -> None:
    require("pettingzoo")
    Lockstep("pettingzoo/connect_four_v3", "connect_four").play(8)


def test_tic_tac_toe_of_pettingzoo() -> None:
    require("pettingzoo")
    Lockstep("pettingzoo/tictactoe_v3", "tic_tac_toe", numbers=TRANSPOSED).play(12)


def test_go_of_pettingzoo() -> None:
    require("pettingzoo")
    Lockstep("pettingzoo/go_v5", "go(board_size=9,komi=7.5)", num_envs=1, board_size=9).play(2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "game", "options"),
    [
        ("kuhn_poker", "kuhn_poker", {"numbers": {0: 1, 1: 0}, "deal": deal_kuhn}),
        ("leduc_holdem", "leduc_poker", {"numbers": {0: 1, 1: 2, 2: 0}, "deal": deal_leduc}),
        ("othello", "othello", {"late": _PASS}),
        pytest.param("hex", "hex", {"without": [121]}, marks=pytest.mark.long),
        pytest.param("go_9x9", "go(board_size=9,komi=7.5)", {"num_envs": 2}, marks=pytest.mark.long),
    ],
)
def test_games_of_pgx(id: str, game: str, options: dict[str, Any]) -> None:
    require("pgx")
    Lockstep(f"pgx/{id}", game, **options).play(40 if "deal" in options else 4)


def test_moves_of_chess_in_pettingzoo() -> None:
    """One random game, by the names of the moves. White, who begins, is player 1 of OpenSpiel and player 0 of PettingZoo."""
    require("pettingzoo")
    env: Any = make_env("pettingzoo/chess_v6", num_envs=1)
    from pettingzoo.classic.chess import chess_utils

    timestep, rng = env.reset(np.zeros(1, np.uint64), episodes=1), np.random.default_rng(0)
    state = pyspiel.load_game("chess").new_initial_state()
    for ply in range(40):
        if not any(len(due.slot) for due in timestep.due):
            break
        player = ply % 2
        assert state.current_player() == 1 - player
        board = env.game(0).unwrapped.board
        legal = np.flatnonzero(timestep.due[player].mask[0]).tolist()
        moves = {board.san(chess_utils.action_to_move(board, a, player)).rstrip("+#"): a for a in legal}
        numbers = {state.action_to_string(a).rstrip("+#"): a for a in state.legal_actions()}
        assert moves.keys() == numbers.keys()
        move = sorted(moves)[rng.integers(len(moves))]
        state.apply_action(numbers[move])
        timestep = env.step(tuple(np.array([moves[move]] if p == player else [], int) for p in range(2)))
    assert timestep.finished.returns.tolist() == ([state.returns()[::-1]] if state.is_terminal() else [])


@pytest.mark.long
def test_simple_spread_of_jaxmarl() -> None:
    """25 steps from one start: MPE2 is at its end then, JaxMARL plays one more."""
    require("mpe2")
    require("jaxmarl")
    import jax
    from mpe2.simple_spread.simple_spread import raw_env

    env: Any = make_env("jaxmarl/MPE_simple_spread_v3", num_envs=1)
    inner, other = env._program.env._env, raw_env()
    other.reset(seed=1)
    entities = (*other.world.agents, *other.world.landmarks)
    _, state = jax.jit(inner.reset)(jax.random.PRNGKey(0))
    state = state.replace(p_pos=jax.numpy.asarray([entity.state.p_pos for entity in entities], jax.numpy.float32))
    step, rng = jax.jit(inner.step_env), np.random.default_rng(0)
    for _ in range(25):
        actions = {agent: int(rng.integers(5)) for agent in inner.agents}
        seen, state, paid, done, _ = step(jax.random.PRNGKey(0), state, actions)
        for agent in inner.agents:
            other.step(actions[agent])
        for agent in inner.agents:
            np.testing.assert_allclose(seen[agent], other.observe(agent), atol=1e-5)
            np.testing.assert_allclose(paid[agent], other.rewards[agent], atol=1e-5)
    assert all(other.truncations.values())
    assert not done["__all__"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:scatter inputs")
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_hanabi_of_jaxmarl() -> None:
    """The same deck: legal moves, rewards, ends are equal. What is known of each of ten cards takes 25 numbers, which differ."""
    require("jaxmarl")
    import jax

    env: Any = make_env("jaxmarl/hanabi", num_envs=1)
    inner, rng = env._program.env._env, np.random.default_rng(0)
    step, moves = jax.jit(inner.step_env), jax.jit(inner.get_legal_moves)
    deck = [(color, rank) for color in range(5) for rank, count in enumerate((3, 2, 2, 2, 1)) for _ in range(count)]
    deck = [deck[k] for k in rng.permutation(50)]
    state = inner.reset_game_from_deck_of_pairs(jax.numpy.asarray(deck))
    game, cards, differing = pyspiel.load_game("hanabi").new_initial_state(), iter(deck), 0
    done = False
    while not done:
        while game.is_chance_node():
            color, rank = next(cards)
            game.apply_action(5 * color + rank)
        player = game.current_player()
        legal = np.asarray(moves(state)[f"agent_{player}"])
        assert np.flatnonzero(legal[:20]).tolist() == game.legal_actions()
        action = int(rng.choice(game.legal_actions()))
        actions = {f"agent_{p}": action if p == player else 20 for p in range(2)}
        seen, state, paid, ends, _ = step(jax.random.PRNGKey(0), state, actions)
        game.apply_action(action)
        done = bool(ends["__all__"])
        assert done == game.is_terminal()
        assert paid["agent_0"] == paid["agent_1"] == game.rewards()[0]
        while game.is_chance_node():
            color, rank = next(cards)
            game.apply_action(5 * color + rank)
        if not done:
            theirs = np.asarray(game.observation_tensor(game.current_player()))
            differing = max(differing, int((np.asarray(seen[f"agent_{game.current_player()}"]) != theirs).sum()))
    assert 0 < differing <= 250
