"""`football/<scenario>`: Google Research Football. A side is one player with an agent for each footballer that it steers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from pydantic import Field

from ludus.contrib.football.encoders import CentralState, Encoder, encoder, legal
from ludus.contrib.football.frames import PIXELS, Frames
from ludus.contrib.football.match import COUNTED, Match, MatchConfig
from ludus.contrib.football.scenarios import (
    Formation,
    MatchRules,
    controls,
    formation,
    initial_view,
    names,
    role_names,
    with_rules,
)
from ludus.contrib.football.shaping import ZERO_SUM, Rewards
from ludus.contrib.football.view import LEFT, RIGHT, Action, SideView
from ludus.core.config import Config
from ludus.core.errors import ConfigError, UnknownName
from ludus.core.types import AgentSpec, EnvSpec
from ludus.envs.base import VectorEnv
from ludus.envs.python_vector import PythonVectorEnv

__all__ = ["FootballOptions", "make", "names"]

Level = float | tuple[float, float]


class FootballOptions(Config):
    """Options of the environments `football/…`. Rules that are None are the scenario's own.

    Attributes:
        sides: Whose agents there are: of the `left` side, of the `right`, of `both` (two players), or of the scenario's left side, which
            plays from left to right or from right to left by a fair draw for each match (`random`).
        agents: Number of agents of a side, or (left, right); None: one for each body.
        keepers: Whether goalkeepers are steered too.
        roles: Agents' roles: all the same (`one`), `keeper` or `field` (`keeper`), their positions (`position`).
        observation: A name of `ludus.contrib.football.encoders.ENCODERS`, or pixels.
        masks: Rules of `ludus.contrib.football.encoders.legal`; None: no masks.
        rewards: Weights of terms of `ludus.contrib.football.shaping.TERMS`.
        state: Whether timesteps carry the whole pitch, as player 0's side sees it.
        built_in: Difficulties at which the policy `football_built_in` leaves a side to the engine, one more action for each.
        statistics: What is counted, of `COUNTED`; None: all.
        render: What draws pictures: the pitch, from above, or the engine.
        difficulty: How well the engine plays, 0 to 1: of sides without agents, or of (left, right), which also holds for bodies without
            agents.
    """

    sides: Literal["left", "right", "both", "random"] = "left"
    agents: int | tuple[int, int] | None = None
    keepers: bool = False
    roles: Literal["one", "keeper", "position"] = "one"
    observation: str = "features"
    masks: Literal["meaningful", "tactical"] | None = "meaningful"
    rewards: dict[str, float] = Field(default_factory=lambda: {"score": 1.0})
    state: bool = True
    built_in: tuple[float, ...] = ()
    statistics: tuple[str, ...] | None = None
    render: Literal["pitch", "engine"] = "pitch"
    difficulty: Level | None = None
    duration: int | None = None
    second_half: int | None = None
    offsides: bool | None = None
    magnet: bool | None = None
    deterministic: bool | None = None
    end_on_score: bool | None = None
    end_on_out_of_play: bool | None = None
    end_on_possession_change: bool | None = None


_RULES = ("duration", "second_half", "offsides", "magnet", "deterministic")
_ENDS = ("end_on_score", "end_on_out_of_play", "end_on_possession_change")


def make(name: str, *, num_envs: int, restarts: int = 0, **options: Any) -> VectorEnv:
    """Make the vector of a scenario of Google Research Football.

    Args:
        name: A scenario: `5_vs_5`, `academy_3_vs_1_with_keeper`.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        options: Those of `FootballOptions`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such scenario; with the nearest names.
        ConfigError: An option is wrong.
    """
    id = f"football/{name}"
    chosen = FootballOptions(**options)
    formations = {kick_off: _formation(id, name, chosen, kick_off) for kick_off in (LEFT, RIGHT)}
    control = controls(id, formations[LEFT], sides=chosen.sides, agents=chosen.agents, keepers=chosen.keepers)
    players = {"right": (RIGHT,), "both": (LEFT, RIGHT)}.get(chosen.sides, (LEFT,))
    views = [initial_view(formations[LEFT], control, side=side) for side in players]
    encoders = _encoders(id, chosen, views, duration=formations[LEFT].rules.duration)
    config = MatchConfig(
        id=id,
        formation=formations.__getitem__,
        controls=control,
        players=players,
        random_sides=chosen.sides == "random",
        encode=tuple(item.encode for item in encoders),
        columns=tuple(item.names for item in encoders),
        legal=_legal(chosen),
        central=CentralState(views[0], duration=formations[LEFT].rules.duration) if chosen.state else None,
        pay=partial(Rewards, chosen.rewards),
        statistics=_statistics(chosen.statistics),
        frames=Frames(id),
        observation_kind="pixels" if chosen.observation == "pixels" else "numbers",
        renderer=chosen.render,
        built_in=chosen.built_in,
    )
    _check_built_in(id, chosen)
    spec = _spec(config, formations, views, chosen)
    masked = [config.legal is not None] * len(players)
    config.pay()  # which raises for unknown terms
    return PythonVectorEnv(partial(Match, config), num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


def _formation(id: str, name: str, chosen: FootballOptions, kick_off: int) -> Formation:
    scenario = formation(name, kick_off)
    changes = {key: value for key in (*_RULES, *_ENDS) if (value := getattr(chosen, key)) is not None}
    if chosen.difficulty is not None:
        changes["difficulty"] = _difficulty(scenario.rules.difficulty, chosen)
    return with_rules(id, scenario, changes)


def _difficulty(own: tuple[float, float], chosen: FootballOptions) -> tuple[float, float]:
    """Return (left, right). A number is that of sides without agents, or of both where there is no such side."""
    if isinstance(chosen.difficulty, tuple):
        return chosen.difficulty
    assert chosen.difficulty is not None
    level = chosen.difficulty
    left, right = own
    return (left if chosen.sides in ("left", "random") else level, right if chosen.sides == "right" else level)


def _legal(chosen: FootballOptions) -> Callable[[SideView], NDArray[np.bool_]] | None:
    if chosen.masks is None:
        return None
    return partial(legal, rules=chosen.masks)


def _check_built_in(id: str, chosen: FootballOptions) -> None:
    if not all(0 <= level <= 1 for level in chosen.built_in):
        raise ConfigError(f"{id}: built_in={chosen.built_in} was given; expected difficulties, numbers from 0 to 1.")
    if chosen.built_in and chosen.masks is None:
        raise ConfigError(
            f"{id}: built_in was given without masks, which say when it may be asked for. Leave masks out."
        )


def _statistics(chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    for name in chosen or ():
        if name not in COUNTED:
            raise UnknownName("football statistic", name, COUNTED)
    return COUNTED if chosen is None else tuple(dict.fromkeys(chosen))


def _encoders(id: str, chosen: FootballOptions, views: list[SideView], *, duration: int) -> tuple[Encoder, ...]:
    """Return one for each player; none where agents see pixels."""
    if chosen.observation == "pixels":
        if chosen.sides != "left":
            raise ConfigError(
                f"{id}: observation=pixels was given with sides={chosen.sides}; the engine draws what the left side sees. Use sides=left."
            )
        return ()
    return tuple(encoder(chosen.observation, view, duration=duration) for view in views)


# --------------------------------------------------------------------------------------------------------------------
# What is played.


def _spec(
    config: MatchConfig, formations: Mapping[int, Formation], views: list[SideView], chosen: FootballOptions
) -> EnvSpec:
    agents = []
    for p, (side, view) in enumerate(zip(config.players, views, strict=True)):
        if config.observation_kind == "pixels":
            observation: Box[Any] = Box(0, 255, PIXELS, np.uint8)
        else:
            observation = Box(-np.inf, np.inf, config.encode[p](view, None).shape[1:], np.float32)
        team = {"right": "right", "random": "team"}.get(chosen.sides, ("left", "right")[side])
        roles = role_names(formations[LEFT], config.controls, side, roles=chosen.roles)
        actions = Discrete(len(Action) + len(chosen.built_in))
        agents += [AgentSpec(f"{team}_{i}", p, observation, actions, role) for i, role in enumerate(roles)]
    alike = formations[LEFT].turned == formations[RIGHT] and config.controls == config.controls.turned
    symmetric = len(config.players) == 2 and alike
    return EnvSpec(
        id=config.id,
        agents=tuple(agents),
        utility_range=(_utility_range(formations[LEFT].rules, chosen.rewards),) * len(config.players),
        symmetry=((0, 1),) if symmetric else tuple((p,) for p in range(len(config.players))),
        zero_sum=len(config.players) == 2 and set(chosen.rewards) <= ZERO_SUM,
        state=None if config.central is None else Box(-np.inf, np.inf, config.central(views[0]).shape, np.float32),
        statistics=config.statistics,
        max_decisions=(formations[LEFT].rules.duration + 1) * max(config.controls.agents),
    )


def _utility_range(rules: MatchRules, rewards: Mapping[str, float]) -> tuple[float, float]:
    """Return the range of a match that its first goal ends, or that is only won or lost; others have no bounds."""
    bounded = {"win"} | ({"score"} if rules.end_on_score else set())
    most = sum(map(abs, rewards.values())) if set(rewards) <= bounded else np.inf
    return -most, most
