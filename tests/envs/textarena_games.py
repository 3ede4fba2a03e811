"""A module that is found where TextArena would be: its registry, its queues of messages and its two-player state, with three games.

As in the package, a reset of one object does not clear what was shown before, messages are taken from a queue, Python's global generator is
seeded, and a second invalid move in a row ends the game with +1 for the other player."""

from __future__ import annotations

import random
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class FakeGame:
    """Whoever says the highest of two cards wins; `names` are the moves that the game reads."""

    names = ("[low]", "[high]")

    def __init__(self, rounds: int = 1) -> None:
        self.rounds = rounds
        self.resets = 0

    def reset(self, *, num_players: int, seed: int) -> None:
        assert num_players == 2
        random.seed(seed)
        self.resets += 1
        self.state = SimpleNamespace(
            current_player_id=0,
            error_count=0,
            rewards=None,
            game_state={"current_legal_action_tree": {"check": 0, "bet": 0}},
            game_info={player: {"invalid_move": False} for player in range(2)},
            observations={
                player: [(-1, f"You are Player {player}, card {random.randrange(9)}.", 0)] for player in range(2)
            },
        )
        self.said: list[str] = []

    def say(self, player: int, message: str) -> None:
        self.state.observations[player].append((-1, message, 0))

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        state = self.state
        mover = state.current_player_id
        if action not in self.names:
            state.error_count += 1
            self.say(mover, "That was invalid.")
            if state.error_count > 1:
                state.game_info[mover]["invalid_move"] = True
                state.rewards = {mover: -1, 1 - mover: 1}
            return state.rewards is not None, {}
        state.error_count = 0
        self.said.append(action)
        state.observations[1 - mover].append((mover, action, 0))
        state.current_player_id = 1 - mover
        if len(self.said) == 2 * self.rounds:
            first, second = (self.said[k::2].count(self.names[1]) for k in range(2))
            state.rewards = {0: (first > second) - (first < second), 1: (second > first) - (second < first)}
        return state.rewards is not None, {}

    def get_board_str(self) -> str:
        return f"{len(self.said)} moves"


class FakeKuhn(FakeGame):
    names = ("[check]", "[bet]", "[call]", "[fold]")


class FakeDilemma(FakeGame):
    names = ("[Cooperate]", "[Defect]")

    def __init__(self, communication_turns: int = 3) -> None:
        super().__init__(communication_turns)


GAMES = {"KuhnPoker-v0": FakeKuhn, "IteratedPrisonersDilemma-v0": FakeDilemma, "Talk-v0": FakeGame}


def install(patch: pytest.MonkeyPatch) -> list[FakeGame]:
    """Let `import textarena` find this module. Returns the objects that will have been made."""
    made: list[FakeGame] = []

    def make(id: str, **options: Any) -> FakeGame:
        made.append(GAMES[id.removesuffix("-raw")](**options))
        return made[-1]

    registry = {f"{name}{end}": None for name in GAMES for end in ("", "-raw", "-train")}
    for name, content in {
        "textarena": {"make": make},
        "textarena.envs": {},
        "textarena.envs.registration": {"ENV_REGISTRY": registry},
    }.items():
        module = ModuleType(name)
        vars(module).update(content, __spec__=ModuleSpec(name, None), __path__=[])
        patch.setitem(sys.modules, name, module)
    return made
