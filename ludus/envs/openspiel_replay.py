"""One episode of an OpenSpiel game as text: who did what, how the board looked, what it paid."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from ludus.envs.openspiel_games import load_game
from ludus.envs.openspiel_state import CHANCE, TERMINAL, Game, Luck
from ludus.envs.tree.walk import title
from ludus.errors import EnvError

__all__ = ["replay"]


def replay(game: Any, moves: Sequence[int], *, seed: int, episode: int = 0, boards: bool = True) -> str:
    """What happens in episode `episode` of an environment with this seed, if its players make `moves`; compiled or not.

    game: a `pyspiel.Game`, or an id `openspiel/…`. moves: one action of each turn in its order; where several players move at once, one of
    each player, -1 (INVALID_ACTION) of those who do not. boards: show the state before each turn too, as OpenSpiel writes it.
    An episode that is not over ends with its present state. Raises EnvError for a move that cannot be made.
    """
    loaded = load_game(game) if isinstance(game, str) else game
    played = Game(loaded)
    luck = Luck(seed, episode)
    state = played.new_state(luck)
    lines = [f"{title(loaded)}, seed {seed}, episode {episode}"]
    left = list(moves)
    while True:
        lines += _chance(state, luck)
        mover = state.current_player()
        if boards or mover == TERMINAL or not left:
            lines.append(textwrap.indent(str(state).rstrip("\n"), "    "))
        if mover == TERMINAL or not left:
            break
        lines += _turn(played, state, left, made=len(moves) - len(left))
    if left:
        raise EnvError(
            f"{title(loaded)} was over after {len(moves) - len(left)} of {len(moves)} moves; give only those."
        )
    return "\n".join([*lines, _result(state)]) + "\n"


def _chance(state: Any, luck: Luck) -> Iterator[str]:
    while state.current_player() == CHANCE:
        action = luck.draw(state.chance_outcomes())
        yield f"chance: {state.action_to_string(CHANCE, action)}"
        state.apply_action(action)


def _turn(game: Game, state: Any, left: list[int], *, made: int) -> Iterator[str]:
    """Take the next moves off `left` and make them."""
    mover = state.current_player()
    players = [mover] if mover >= 0 else list(range(game.players))
    if len(left) < len(players):
        raise EnvError(f"{len(players)} players move at once at move {made}, and only {len(left)} actions are left.")
    actions = left[: len(players)]
    del left[: len(players)]
    for player, action in zip(players, actions, strict=True):
        legal = state.legal_actions(player)
        if legal and action not in legal:
            raise EnvError(f"player {player} cannot play {action} at move {made}; legal: {legal}.")
        if legal:
            yield f"player {player}: {state.action_to_string(player, action)}"
    if mover >= 0:
        state.apply_action(actions[0])
    else:
        state.apply_actions(actions)


def _result(state: Any) -> str:
    returns = ", ".join(f"player {p} {total:g}" for p, total in enumerate(state.returns()))
    return f"{'returns' if state.is_terminal() else 'not over; so far'}: {returns}"
