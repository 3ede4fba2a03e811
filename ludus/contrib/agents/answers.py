"""What agents answer: legal actions are played, and a rule says what is played instead of others."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, PolicyError, one_line
from ludus.core.user_code import short_repr
from ludus.envs.spaces import Choices
from ludus.policies.agents import FAULTS, AgentContext, AgentGame, AgentRequests
from ludus.rollout.bot_players import LegalMoves

Rule = Literal["random", "error"]
Fault = Literal["budget", "illegal", "late", "malformed"]
_SHOWN = 200  # characters of an answer in the log
_TOLD = 3  # faults of one process that standard error has where there is no log


@dataclass(slots=True)
class NoAnswer:
    """Stands for an answer that did not come, or was none. text: what came, or why nothing did."""

    fault: Fault
    text: str


@dataclass(slots=True)
class Episode:
    """An open episode: its seed, and the number of the decision that is to be made."""

    seed: int
    decision: int = -1


class Episodes:
    """The open episodes of an agent, by slot."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Episode] = {}

    def of(self, requests: AgentRequests) -> list[Episode]:
        """Return the episode of each row, and count the decision. Raises PolicyError for one whose beginning was not seen."""
        episodes = []
        for slot, seed in zip(requests.slot, requests.seed.tolist(), strict=True):
            if seed >= 0:
                self._open[slot] = Episode(seed)
            elif slot not in self._open:
                raise PolicyError("an agent was lost, with what it knew of the episodes that it played.")
            self._open[slot].decision += 1
            episodes.append(self._open[slot])
        return episodes

    def forget(self) -> None:
        """Forget all."""
        self._open.clear()


class Judge:
    """Lets legal answers through. Instead of others it plays a legal action, drawn by the episode's seed and the decision's number, and
    writes a line into the folder's `faults.jsonl`; or it raises."""

    def __init__(self, game: AgentGame, context: AgentContext, *, rule: Rule, most: int | None) -> None:
        """rule: for answers that cannot be played. most: faults in one process after which it raises all the same; None: never."""
        self._game, self._context, self._rule, self._most = game, context, rule, most
        self._moves = [LegalMoves(game, player) for player in range(len(game.action))]
        self._choices = [Choices.of(space) for space in game.action]
        self.faults = 0

    def actions(
        self, requests: AgentRequests, episodes: Sequence[Episode], answers: Sequence[Any], *, strays: int = 0
    ) -> list[Any]:
        """Return what is played. strays: answers that came unasked before. Raises PolicyError by the rule."""
        played = [
            self._one(requests, k, episode, answer)
            for k, (episode, answer) in enumerate(zip(episodes, answers, strict=True))
        ]
        if strays:
            why = f"{strays} answers came unasked, and were dropped: one for each decision was expected"
            self._count("malformed", requests.player, why)
            self._write(requests, -1, episodes[0], "malformed", None, why, None)
        return played

    def _one(self, requests: AgentRequests, k: int, episode: Episode, answer: Any) -> Any:
        player, mask = requests.player, None if requests.mask is None else requests.mask[k : k + 1]
        fault: Fault = "illegal"
        if isinstance(answer, NoAnswer):
            fault, why, answer = answer.fault, answer.text, None
        else:
            try:
                return self._moves[player].checked([answer], mask, [self._context.name])[0]
            except PolicyError as error:
                wanted = one_line(error).rpartition(f" as player {player}; ")[2].rstrip(".")
                why = f"{short_repr(answer)}; {wanted}"
        self._count(fault, player, why)
        action = self._random(player, mask, episode)
        self._write(requests, k, episode, fault, answer, why, action)
        return action

    def _count(self, fault: Fault, player: int, why: str) -> None:
        """Count a fault. Raises PolicyError by the rule."""
        self.faults += 1
        if self._rule == "error" or (self._most is not None and self.faults > self._most):
            limit = "" if self._rule == "error" else f" It had {self._most} such answers before, which `faults` allows."
            raise PolicyError(
                f"agent {self._context.name!r}: {fault} answer as player {player}: {why.rstrip('.')}.{limit} With illegal=random a legal "
                "action is played instead, and counted."
            )

    def _random(self, player: int, mask: NDArray[np.bool_] | None, episode: Episode) -> Any:
        """Return a legal action, uniformly."""
        rng = np.random.default_rng((episode.seed, episode.decision, 0xFA17))
        space, choices = self._game.action[player], self._choices[player]
        if choices is None:
            assert isinstance(space, Box)
            low, high = np.maximum(space.low, -1e6), np.minimum(space.high, 1e6)
            return rng.uniform(low, high).astype(space.dtype)
        legal = choices.values(np.ones(choices.width, np.bool_) if mask is None else mask[0])
        chosen = np.array([values[int(rng.integers(len(values)))] for values in legal], np.int64)
        chosen = chosen.reshape(space.shape or ())
        return chosen if mask is not None else chosen + getattr(space, "start", 0)  # values in masks begin at 0

    def _write(
        self, requests: AgentRequests, k: int, episode: Episode, fault: Fault, answer: Any, why: str, action: Any
    ) -> None:
        """k: the row; -1: of none."""
        if not self._context.folder:
            if self.faults <= _TOLD:
                last = " More are not told." if self.faults == _TOLD else ""
                instead = "" if action is None else f"; {action} is played"
                text = f"agent {self._context.name}: {fault} answer as player {requests.player}: {why[:_SHOWN]}{instead}.{last}"
                sys.stderr.write(f"{text}\n")
            return
        line = {
            "time": round(time.time(), 3),
            "agent": self._context.name,
            "player": requests.player,
            "body": -1 if k < 0 else requests.body[k],
            "seed": episode.seed,
            "decision": episode.decision,
            "fault": fault,
            "answer": short_repr(answer) if k >= 0 and answer is not None else None,
            "why": why[:_SHOWN],
            "played": None if action is None else np.asarray(action).tolist(),
        }
        append_line(Path(self._context.folder) / FAULTS, json.dumps(line))


def append_line(path: Path, line: str) -> None:
    """Append a line to a file that several processes write, in one piece."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode(errors="replace"))
    finally:
        os.close(descriptor)


def log_name(name: str) -> str:
    """Return the name of an agent's log: command:./agent.py -> command-agent.py.log."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name.replace('./', '')).strip('.-')[:80] or 'agent'}.log"


def require_positive(**seconds: float) -> None:
    """Raise ConfigError for an option that is not positive."""
    for option, value in seconds.items():
        if not value > 0:
            raise ConfigError(f"{option} is {value}; a positive number of seconds was expected.")
