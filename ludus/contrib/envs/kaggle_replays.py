"""Kaggle's replays, JSON files of episodes, as recorded trajectories: what each player saw by the game's encoder, and what it played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ludus.contrib.envs.kaggle import own_encoder, player_view
from ludus.contrib.envs.kaggle_encoders import OPENSPIEL, Encoder, encoder_of
from ludus.core.errors import ConfigError, DataError, one_line
from ludus.core.types import Array
from ludus.replay.parquet import Recorded, TrajectoryOrigin
from ludus.replay.trajectories import Trajectories, join

_FAMILY = "kaggle/"


def read_replays(path: Path, id: str, options: Mapping[str, Any]) -> Recorded:
    """Read replays as demonstrations. The package is not needed for it.

    Args:
        path: A JSON file, or a folder of them.
        id: Of the environment, `kaggle/NAME`.
        options: Of the environment; `encode` counts.

    Returns:
        The decisions of each team, under its name, or `player_0` … where the file has none. Of a player's episode, those before the first
        move that no action makes. Log-probabilities are 0, since none were recorded.

    Raises:
        ConfigError: Another environment, or a game without an encoder.
        DataError: A file is no replay of this game, or nothing in it can be learned from.
    """
    if not id.startswith(_FAMILY):
        raise ConfigError(f"replays of Kaggle were given; the scenario plays {id}. Name an environment {_FAMILY}….")
    name = id.removeprefix(_FAMILY)
    make = encoder_of(name, own_encoder(options.get("encode")))
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    pieces: dict[str, list[Trajectories]] = {}
    spaces: Encoder | None = None
    seats = 0
    for episode, file in enumerate(files):
        replay = _replay(file, name)
        steps = replay["steps"]
        seats = max(seats, len(steps[0]))
        for player, team in enumerate(_teams(replay, len(steps[0]))):
            spaces = make(replay["configuration"], len(steps[0]), player)
            segment = _segment(name, replay, spaces, player)
            if segment.actions:
                pieces.setdefault(team, []).append(segment.trajectories(team, player, episode))
    if spaces is None or not pieces:
        raise DataError(f"{str(path)!r} has no replay with a move to learn from; expected JSON files of kaggle/{name}.")
    origin = TrajectoryOrigin(
        env=id,
        players=seats,
        seats=tuple(range(seats)),
        observation=spaces.observation,
        action=spaces.action,
        policies=tuple(pieces),
        notes={"replays": len(files)},
    )
    return Recorded(origin, tuple(join(of_team) for of_team in pieces.values()))


def _replay(file: Path, name: str) -> dict[str, Any]:
    """Return a file's content. Raises DataError for what is no replay of the game."""
    try:
        replay = json.loads(file.read_text(encoding="utf-8"))
        game, steps = replay["name"], replay["steps"]
        whole = replay["configuration"] and replay["specification"]["observation"] and steps[0][0]["observation"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{str(file)!r} is no replay of Kaggle: {type(error).__name__}: {one_line(error)}.") from error
    if game != name or not whole:
        raise DataError(f"{str(file)!r} is a replay of {game!r}; the scenario plays kaggle/{name}.")
    content: dict[str, Any] = replay
    return content


def _teams(replay: Mapping[str, Any], players: int) -> list[str]:
    names = (replay.get("info") or {}).get("TeamNames")
    if isinstance(names, list) and len(names) == players:
        return [str(name) for name in names]
    return [f"player_{i}" for i in range(players)]


@dataclass(slots=True)
class _Segment:
    """The decisions of a player in an episode."""

    observations: list[Array] = field(default_factory=list)
    masks: list[Array | None] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    last: Array | None = None

    def trajectories(self, team: str, player: int, episode: int) -> Trajectories:
        """Return it as one segment."""
        n = len(self.actions)
        assert self.last is not None
        masks = [mask for mask in self.masks if mask is not None]
        return Trajectories(
            start=np.array([0, n], np.int64),
            observation=np.stack(self.observations),
            action=np.array(self.actions),
            logp=np.zeros(n, np.float32),
            reward=np.array(self.rewards, np.float32),
            mask=np.stack(masks) if masks else None,
            t=np.array(self.times, np.int32),
            tail=np.zeros(1, np.int8),
            bootstrap_observation=self.last[None],
            bootstrap_mask=np.ones((1, len(masks[0])), np.bool_) if masks else None,
            agent=np.zeros(1, np.int16),
            seat=np.full(1, player, np.int8),
            episode=np.full(1, episode, np.int64),
            version_lo=np.zeros(1, np.int32),
            version_hi=np.zeros(1, np.int32),
            policy=team,
        )


def _segment(name: str, replay: Mapping[str, Any], encoder: Encoder, player: int) -> _Segment:
    """Return what a player saw and did, up to a move that no action makes or that was illegal."""
    steps, fields = replay["steps"], replay["specification"]["observation"]
    out, paid = _Segment(), 0.0
    for t in range(1 if name.startswith(OPENSPIEL) else 0, len(steps) - 1):  # OpenSpiel's first step sets the game up
        if steps[t][player]["status"] == "ACTIVE":
            observation = player_view(steps[t], player, fields, t, whole=encoder.reads_state)
            array, mask = encoder.observe(observation), encoder.legal(observation)
            try:
                action = encoder.action_of(steps[t + 1][player]["action"])
            except (ValueError, TypeError, KeyError):
                break
            if mask is not None and not mask[action]:
                break
            encoder.move(action)
            out.observations.append(array)
            out.masks.append(mask)
            out.actions.append(action)
            out.times.append(t)
            out.rewards.append(0.0)
        reward = steps[t + 1][player]["reward"]
        if reward is not None and out.rewards:
            out.rewards[-1] += float(reward) - paid
            paid = float(reward)
    last = player_view(steps[-1], player, fields, len(steps) - 1, whole=encoder.reads_state)
    if out.actions:
        out.last = encoder.observe(last)
    return out
