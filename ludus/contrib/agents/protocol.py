"""Messages between Ludus and an agent, one JSON value each: version 1 of the protocol that docs/reference/agent-protocol.md tells.

    hello → ready · reset → nothing · act → {"action": …} · in batches act → {"actions": […]} · close → nothing

Keys come in the order in which they are written here, without spaces between them.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from ludus.contrib.agents.answers import NoAnswer
from ludus.core.errors import PolicyError
from ludus.core.user_code import short_repr
from ludus.envs.spaces import Choices
from ludus.policies.agents import AgentGame, AgentRequests

VERSION = 1
Serves = Literal["one", "many", "batch"]
"""What one object of an agent serves: one episode at a time, several, or several by one message for all their decisions."""
_SERVES: tuple[Serves, ...] = ("one", "many", "batch")


def encoded(message: Any) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=True).encode() + b"\n"


def described(space: Space[Any]) -> dict[str, Any]:
    """Return a space as JSON."""
    if isinstance(space, Discrete):
        return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        return {"type": "multi_discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, MultiBinary):
        return {"type": "multi_binary", "shape": list(space.shape)}
    assert isinstance(space, Box)
    low, high = (_bound(values) for values in (space.low, space.high))
    return {"type": "box", "shape": list(space.shape), "dtype": str(space.dtype), "low": low, "high": high}


def _bound(values: Any) -> Any:
    """One number where all are equal; null for what is infinite."""
    finite = [float(value) if np.isfinite(value) else None for value in np.unique(values)]
    if len(finite) == 1:
        return finite[0]
    return [float(value) if np.isfinite(value) else None for value in np.ravel(values)]


def hello(game: AgentGame) -> dict[str, Any]:
    """Return the first message."""
    players = [
        {"agents": bodies, "observation": described(observation), "action": described(action)}
        for bodies, observation, action in zip(game.bodies, game.observation, game.action, strict=True)
    ]
    return {"type": "hello", "protocol": VERSION, "game": {"id": game.id, "players": players}}


def served(name: str, answer: Any) -> Serves:
    """Return what the answer to `hello` says. Raises PolicyError for an answer that is not `ready`."""
    if isinstance(answer, dict) and answer.get("type") == "error":
        raise PolicyError(f"agent {name!r} refuses the game: {answer.get('message', 'it does not say why')}")
    if not isinstance(answer, dict) or answer.get("type") != "ready":
        raise PolicyError(f'agent {name!r} answered {short_repr(answer)} to "hello"; {{"type": "ready"}} was expected.')
    serves = answer.get("serves", "one")
    if serves not in _SERVES:
        raise PolicyError(f'agent {name!r} says "serves": {serves!r}; one of {", ".join(_SERVES)} was expected.')
    return _SERVES[_SERVES.index(serves)]


class MessageWriter:
    """Writes what an agent is asked, by a game's spaces."""

    def __init__(self, game: AgentGame, *, text: bool) -> None:
        """text: whether what its player knows comes in words, too."""
        self._choices = [Choices.of(space) for space in game.action]
        self._single = [isinstance(space, Discrete) for space in game.action]
        self._text = text
        self._slots: dict[Any, int] = {}

    def slots(self, requests: AgentRequests) -> list[int]:
        """Return the number of each row's slot, as agents hear it."""
        return [self._slots.setdefault(slot, len(self._slots)) for slot in requests.slot]

    def rows(self, requests: AgentRequests) -> list[list[dict[str, Any]]]:
        """Return what is said for each row: that an episode begins, where it does, and the question."""
        out = []
        for k, (slot, seed) in enumerate(zip(self.slots(requests), requests.seed.tolist(), strict=True)):
            begin = {
                "type": "reset",
                "slot": slot,
                "player": requests.player,
                "agent": requests.body[k],
                "seed": seed,
            }
            out.append([*[begin] * (seed >= 0), {"type": "act", "slot": slot, **self._question(requests, k)}])
        return out

    def batch(self, requests: AgentRequests) -> dict[str, Any]:
        """Return the questions of all rows. A row that begins an episode has its seed."""
        rows = [
            {
                "slot": slot,
                "agent": requests.body[k],
                "seed": seed if seed >= 0 else None,
                **self._question(requests, k),
            }
            for k, (slot, seed) in enumerate(zip(self.slots(requests), requests.seed.tolist(), strict=True))
        ]
        return {"type": "act", "player": requests.player, "requests": rows}

    def _question(self, requests: AgentRequests, k: int) -> dict[str, Any]:
        question = {"observation": requests.observation[k].tolist(), "legal": self.legal(requests, k)}
        return question | ({"text": text_of(requests.states[k], requests.player)} if self._text else {})

    def legal(self, requests: AgentRequests, k: int) -> Any:
        """Return the legal actions of row k; of several numbers, those of each. None: all of the space are."""
        choices = self._choices[requests.player]
        if requests.mask is None or choices is None:
            return None
        values = choices.values(requests.mask[k])
        return values[0] if self._single[requests.player] else values


def action(reply: Any) -> Any:
    """Return the action in a reply."""
    if isinstance(reply, dict) and "action" in reply:
        return reply["action"]
    return NoAnswer("malformed", f'{short_repr(reply)}; {{"action": …}} was expected')


def actions(reply: Any, n: int) -> list[Any]:
    """Return the actions in a reply to `batch`."""
    if isinstance(reply, dict) and isinstance(reply.get("actions"), list) and len(reply["actions"]) == n:
        return list(reply["actions"])
    return [NoAnswer("malformed", f'{short_repr(reply)}; {{"actions": […]}} of {n} was expected')] * n


def move_name(state: Any, player: int, action: int) -> str:
    """Return the name of an action: of a `pyspiel.State`, or an environment's object with a list `move_names`."""
    names = getattr(state, "move_names", None)
    return str(state.action_to_string(player, action) if names is None else names[action])


def text_of(state: Any, player: int) -> str:
    """Return what a player knows, in words: of a `pyspiel.State`, or of an object with a method text(player). Raises PolicyError for
    others."""
    own = getattr(state, "text", None)
    if callable(own):
        return str(own(player))
    if not hasattr(state, "get_game"):
        raise PolicyError(
            f"the states of this game, {type(state).__name__}, have no method text(player), and are not OpenSpiel's: they have no words."
        )
    kind = state.get_game().get_type()
    if kind.provides_information_state_string:
        return str(state.information_state_string(player))
    return str(state.observation_string(player))
