"""States that one player cannot tell apart: another history, with some of what was hidden from the player changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyspiel

Events = list[tuple[int, int]]  # (player or chance, action)


def positions(game: Any, rng: random.Random, *, most: int) -> list[Any]:
    """The decision nodes of one random episode, up to `most` of them."""
    state, found = game.new_initial_state(), []
    while not state.is_terminal() and len(found) < most:
        if state.is_chance_node():
            actions, weights = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(rng.choices(actions, weights)[0])
            continue
        found.append(state.clone())
        if state.is_simultaneous_node():
            legal = [state.legal_actions(p) for p in range(game.num_players())]
            state.apply_actions([rng.choice(options) if options else pyspiel.INVALID_ACTION for options in legal])
        else:
            state.apply_action(rng.choice(state.legal_actions()))
    return found


def twins(state: Any, player: int, rng: random.Random, *, tries: int) -> Iterator[Any]:
    """States in which `player` has the same information (OpenSpiel's string of it) after another history."""
    game = state.get_game()
    events = [(made.player, made.action) for made in state.full_history()]
    if not any(who != player for who, _ in events):
        return
    for _ in range(tries):
        other = _replayed(game, _changed(game, events, player, rng))
        alike = other is not None and other.current_player() == state.current_player()
        if alike and known_to(other, player) == known_to(state, player):
            yield other


def known_to(state: Any, player: int) -> str:
    """What OpenSpiel says that the player knows; what it sees now, for games that say only that."""
    if state.get_game().get_type().provides_information_state_string:
        return str(state.information_state_string(player))
    return str(state.observation_string(player))


def _changed(game: Any, events: Events, player: int, rng: random.Random) -> Events:
    """One event that is not the player's own becomes another, or two of the same mover change places."""
    events = list(events)
    i = rng.choice([k for k, (who, _) in enumerate(events) if who != player])
    who, action = events[i]
    others = [k for k, (mover, another) in enumerate(events) if mover == who and another != action]
    if others and rng.random() < 0.5:
        k = rng.choice(others)
        events[i], events[k] = events[k], events[i]
        return events
    before = _replayed(game, events[:i])
    if before is not None and not before.is_terminal():
        options = [a for a, _ in before.chance_outcomes()] if who < 0 else before.legal_actions(who)
        events[i] = (who, rng.choice(options or [action]))
    return events


def _replayed(game: Any, events: Events) -> Any | None:
    """The state after the events; None if they do not fit together."""
    state, at = game.new_initial_state(), 0
    while at < len(events):
        if state.is_simultaneous_node():
            joint = events[at : at + game.num_players()]
            if [who for who, _ in joint] != list(range(game.num_players())) or not all(
                action in (state.legal_actions(who) or [pyspiel.INVALID_ACTION]) for who, action in joint
            ):
                return None
            state.apply_actions([action for _, action in joint])
            at += len(joint)
            continue
        who, action = events[at]
        if state.is_terminal() or state.current_player() != who or action not in state.legal_actions():
            return None
        state.apply_action(action)
        at += 1
    return state
