"""Games and requests for tests of agents, without environments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from ludus.policies.agents import AgentContext, AgentGame, AgentRequests, ExternalAgent
from ludus.policies.bots import parse_bot

STUB = Path(__file__).parent / "agent_stub.py"
EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"


def game(observation: spaces.Space[Any] | None = None, action: spaces.Space[Any] | None = None) -> AgentGame:
    """Two players, who observe four numbers and have three actions, if nothing else is said."""
    box = spaces.Box(-1, 1, (4,), np.float32) if observation is None else observation
    discrete = spaces.Discrete(3) if action is None else action
    return AgentGame("test/game", (1, 1), (box, box), (discrete, discrete))


def requests(
    seeds: list[int], *, player: int = 0, mask: Any = ..., value: float = 0.0, of: AgentGame | None = None
) -> AgentRequests:
    """A row for each seed, of the slots 0, 1, …"""
    n, space = len(seeds), (of or game()).observation[player]
    rows = np.full((n, *(space.shape or ())), value, space.dtype)
    legal = np.array([[True, False, True]] * n) if mask is ... else mask
    slots = [("w", player, k) for k in range(n)]
    return AgentRequests(player, slots, [0] * n, np.array(seeds, np.int64), rows, legal, [None] * n)


@contextmanager
def begun(text: str, folder: Path, of: AgentGame | None = None) -> Iterator[Any]:
    """An agent that has begun, with logs in `folder`."""
    agent = parse_bot(text).make()
    assert isinstance(agent, ExternalAgent)
    try:
        agent.begin(of or game(), AgentContext(text, str(folder)))
        yield agent
    finally:
        agent.close()


def stub(serves: str, how: str, *rest: object, options: str = "") -> str:
    """The name of a stub that behaves so."""
    words = " ".join([sys.executable, str(STUB), serves, how, *map(str, rest)])
    return f"command:{words}{options}"
