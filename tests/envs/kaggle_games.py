"""A module that is found where kaggle-environments would be: its objects, statuses and shared fields, with games of a few lines.

What these do as the package's do: connectx calls an illegal column INVALID with reward None; rps pays running sums and 1 to whoever's
opponent fails; hungry_geese keeps dead players DONE and ends with one alive, and draws from the global generator; open_spiel_tic_tac_toe
needs a first step, asks for legal moves by a configuration, and pays None until its end; atlas has no encoder here and one module."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

SHARED: Mapping[str, Any] = {"shared": True}
HIDDEN: Mapping[str, Any] = {"shared": True, "hidden": True}


class Struct(dict):  # type: ignore[type-arg]
    """A mapping whose entries are attributes, as the package's states are."""

    __setattr__ = dict.__setitem__

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


class FakeEnvironment:
    """One object of the package."""

    def __init__(self, name: str, configuration: Mapping[str, Any]) -> None:
        rules = RULES[name]
        fields = {"step": SHARED, **rules.observation}
        self.name, self.rules = name, rules
        self.specification = Struct(
            agents=rules.agents, observation=fields, configuration=dict.fromkeys({"episodeSteps", *rules.configuration})
        )
        self.configuration = Struct({"episodeSteps": 100, **rules.configuration, **configuration})
        self.reset(rules.agents[0])

    def reset(self, players: int) -> None:
        self.state = [Struct(reward=0, status="ACTIVE", observation=Struct()) for _ in range(players)]
        self.rules.begin(self)
        self.state[0].observation["step"] = 0
        self.steps = [deepcopy(self.state)]

    def step(self, moves: Sequence[Any]) -> None:
        if len(moves) != len(self.state):
            raise ValueError("a move for each player was expected")
        assert all(move is not None for move, one in zip(moves, self.state, strict=True) if one.status == "ACTIVE")
        self.rules.play(self, moves)
        for one in self.state:
            if one.status in ("INVALID", "ERROR", "TIMEOUT"):
                one.reward = None
        if len(self.steps) >= self.configuration.episodeSteps - 1:
            for one in self.state:
                one.status = "DONE" if one.status in ("ACTIVE", "INACTIVE") else one.status
        self.state[0].observation["step"] = 0 if self.done else len(self.steps)
        self.steps.append(deepcopy(self.state))

    @property
    def done(self) -> bool:
        return all(one.status != "ACTIVE" for one in self.state)

    def render(self, *, mode: str) -> str:
        return f"{self.name} {mode} {len(self.steps)}"


class ConnectX:
    """Two columns of two cells by default; whoever fills a row wins."""

    agents = (2,)
    configuration: Mapping[str, Any] = {"rows": 2, "columns": 2, "inarow": 2, "seed": None}
    observation: Mapping[str, Any] = {"board": SHARED, "mark": {}, "secret": HIDDEN}

    def begin(self, env: FakeEnvironment) -> None:
        size = env.configuration.rows * env.configuration.columns
        env.state[0].observation.update(board=[0] * size, mark=1, secret="the seed")
        env.state[1].observation.update(mark=2)
        env.state[1].status = "INACTIVE"

    def play(self, env: FakeEnvironment, moves: Sequence[Any]) -> None:
        board, columns = env.state[0].observation.board, env.configuration.columns
        mover, other = sorted(env.state, key=lambda one: one.status)
        column = moves[env.state.index(mover)]
        if type(column) is not int or not 0 <= column < columns or board[column]:
            mover.status, other.status = "INVALID", "DONE"
            return
        cell = max(cell for cell in range(column, len(board), columns) if not board[cell])
        board[cell] = mover.observation.mark
        row = board[cell // columns * columns :][:columns]
        if len(set(row)) == 1:
            mover.reward, other.reward = 1, -1
        if len(set(row)) == 1 or all(board):
            mover.status = other.status = "DONE"
        else:
            mover.status, other.status = "INACTIVE", "ACTIVE"


class RockPaperScissors:
    agents = (2,)
    configuration: Mapping[str, Any] = {"signs": 3}
    observation: Mapping[str, Any] = {"lastOpponentAction": {}, "reward": {}}

    def begin(self, env: FakeEnvironment) -> None:
        for one in env.state:
            one.observation.update(reward=0)

    def play(self, env: FakeEnvironment, moves: Sequence[Any]) -> None:
        bad = [type(move) is not int or not 0 <= move < 3 for move in moves]
        if any(bad):
            for one, wrong in zip(env.state, bad, strict=True):
                one.status, one.reward = ("INVALID", None) if wrong else ("DONE", 1)
            return
        score = (0, 1, -1)[(moves[0] - moves[1]) % 3]
        for one, sign, other in zip(env.state, (1, -1), reversed(moves), strict=True):
            one.reward += sign * score
            one.observation.update(lastOpponentAction=other, reward=one.reward)
        if len(env.steps) >= env.configuration.episodeSteps - 1 and abs(env.state[0].reward) < 2:
            for one in env.state:
                one.status, one.reward = "DONE", 0


class HungryGeese:
    """On a board without collisions; a goose that turns back is out."""

    agents = (1, 2, 3, 4)
    configuration: Mapping[str, Any] = {"rows": 3, "columns": 3, "max_length": 9, "hunger_rate": 4}
    observation: Mapping[str, Any] = {"geese": SHARED, "food": SHARED, "index": {}}
    shifts: Mapping[str, tuple[int, int]] = {"NORTH": (-1, 0), "EAST": (0, 1), "SOUTH": (1, 0), "WEST": (0, -1)}

    def begin(self, env: FakeEnvironment) -> None:
        heads = random.sample(range(9), len(env.state))
        env.state[0].observation.update(geese=[[head] for head in heads], food=[random.randrange(9)])
        for i, one in enumerate(env.state):
            one.observation.update(index=i)
        env.last = [None] * len(env.state)

    def play(self, env: FakeEnvironment, moves: Sequence[Any]) -> None:
        names, seen = list(self.shifts), env.state[0].observation
        for i, (one, move) in enumerate(zip(env.state, moves, strict=True)):
            if one.status != "ACTIVE":
                continue
            back = env.last[i] is not None and names.index(move) == (names.index(env.last[i]) + 2) % 4
            if back or len(env.steps) > 2 * (i + 1):
                one.status, seen.geese[i] = "DONE", []
                continue
            env.last[i] = move
            row, column = divmod(seen.geese[i][0], 3)
            seen.geese[i] = [(row + self.shifts[move][0]) % 3 * 3 + (column + self.shifts[move][1]) % 3]
            one.reward = 10 * len(env.steps) + 1
        seen.food = [random.randrange(9)]
        alive = [one for one in env.state if one.status == "ACTIVE"]
        if len(alive) == 1:
            alive[0].status = "DONE"


class TicTacToe:
    """OpenSpiel's, played by OpenSpiel; a fault in its state is a step limit of the package."""

    agents = (2,)
    configuration: Mapping[str, Any] = {
        "seed": None,
        "includeLegalActions": False,
        "openSpielGameName": "tic_tac_toe",
        "openSpielGameParameters": {},
    }
    observation: Mapping[str, Any] = {}

    def begin(self, env: FakeEnvironment) -> None:
        import pyspiel

        env.state[1].status = "INACTIVE"
        env.game, env.board = pyspiel.load_game("tic_tac_toe"), None

    def play(self, env: FakeEnvironment, moves: Sequence[Any]) -> None:
        import pyspiel

        if env.board is None:
            env.board = env.game.new_initial_state()
        else:
            env.board.apply_action(moves[env.board.current_player()]["submission"])
        over, mover = env.board.is_terminal(), env.board.current_player()
        for i, one in enumerate(env.state):
            one.reward = env.board.returns()[i] if over else None
            one.status = "DONE" if over else "ACTIVE" if i == mover else "INACTIVE"
            one.observation.update(serializedGameAndState=pyspiel.serialize_game_and_state(env.game, env.board))
            one.observation.update(observationString=str(env.board))
            if env.configuration.includeLegalActions:
                one.observation.update(legalActions=env.board.legal_actions(i))


class Atlas:
    """Fails a player whose move is no mapping; the other one plays on alone, until the limit."""

    agents = (2,)
    configuration: Mapping[str, Any] = {"seed": None}
    observation: Mapping[str, Any] = {"map": {}}

    def begin(self, env: FakeEnvironment) -> None:
        for one in env.state:
            one.observation.update(map=str(env.configuration.seed))

    def play(self, env: FakeEnvironment, moves: Sequence[Any]) -> None:
        for one, move in zip(env.state, moves, strict=True):
            if one.status == "ACTIVE":
                one.status = "ACTIVE" if isinstance(move, dict) else "ERROR"
                one.reward = one.reward + 1 if isinstance(move, dict) else None


RULES: Mapping[str, Any] = {
    "atlas": Atlas(),
    "connectx": ConnectX(),
    "hungry_geese": HungryGeese(),
    "open_spiel_tic_tac_toe": TicTacToe(),
    "rps": RockPaperScissors(),
}


def install(patch: pytest.MonkeyPatch) -> None:
    """Let `import kaggle_environments` find this module."""
    package, core = ModuleType("kaggle_environments"), ModuleType("kaggle_environments.core")
    make: Callable[..., FakeEnvironment] = lambda name, configuration: FakeEnvironment(name, configuration)  # noqa: E731
    fields = {
        name: {
            "specification": {"configuration": {key: {"default": value} for key, value in rules.configuration.items()}}
        }
        for name, rules in RULES.items()
    }
    vars(package).update(make=make, environments=fields, core=core, __spec__=ModuleSpec("kaggle_environments", None))
    vars(core).update(_lazy_environments={}, __spec__=ModuleSpec("kaggle_environments.core", None))
    patch.setitem(sys.modules, "kaggle_environments", package)
    patch.setitem(sys.modules, "kaggle_environments.core", core)
