"""Which matches can be played: the engine's scenario files, what an id may change of them, and who steers whom.

scenario file -> Formation -> (kick-off, half turn, seed) -> the engine's configuration of one match
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

from ludus.contrib.football.view import LEFT, NOBODY, RIGHT, ROLES, SideView, side_view
from ludus.core.errors import ConfigError, UnknownName

__all__ = [
    "Controls",
    "Formation",
    "MatchRules",
    "StartingPlayer",
    "controls",
    "engine",
    "engine_config",
    "formation",
    "initial_view",
    "names",
    "role_names",
    "with_rules",
]

KEEPER = 0  # among the engine's roles


def engine() -> Any:
    """Return the engine's module. Raises ImportError where the package is missing."""
    return importlib.import_module("gfootball_engine")


# --------------------------------------------------------------------------------------------------------------------
# Scenario files. They are functions that are given a builder; the package's own needs gym, and nothing here does.

_PACKAGE = "_ludus_football_scenarios"  # what the files' package is called here


def names() -> list[str]:
    """Return the scenarios that the package brings, sorted, without those that test the engine."""
    modules = [module.name for module in pkgutil.iter_modules([str(_folder())]) if not module.ispkg]
    return sorted(name for name in modules if not name.startswith("test_"))


def _folder() -> Path:
    spec = importlib.util.find_spec("gfootball")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'gfootball'", name="gfootball")
    return Path(spec.submodule_search_locations[0]) / "scenarios"


def _file(name: str) -> ModuleType:
    """Return the module of a scenario file, whose package is loaded without the one above it, which loads gym."""
    if _PACKAGE not in sys.modules:
        folder = _folder()
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
        sys.modules[_PACKAGE] = package
    return importlib.import_module(f"{_PACKAGE}.{name}")


@dataclass(frozen=True, slots=True)
class StartingPlayer:
    """A footballer at kick-off.

    Attributes:
        x: From its own side's view, whose goal is at x = -1; y likewise.
        role: An index into `ROLES`.
        lazy: Whether the engine leaves it standing.
        controllable: Whether an agent may steer it.
    """

    x: float
    y: float
    role: int
    lazy: bool
    controllable: bool


@dataclass(frozen=True, slots=True)
class MatchRules:
    """The rules of a match.

    Attributes:
        difficulty: How well the engine plays the left side's bodies without agents, and the right's, 0 to 1.
        duration: In steps.
        second_half: The step at which sides kick off again.
        offsides: Whether off-side is called.
        magnet: Whether the engine draws a steered body to a ball nearby.
        deterministic: Whether the engine has the same random numbers in every match.
        end_on_score: Whether a goal ends it; end_on_out_of_play and end_on_possession_change likewise.
    """

    difficulty: tuple[float, float]
    duration: int
    second_half: int
    offsides: bool
    magnet: bool
    deterministic: bool
    end_on_score: bool
    end_on_out_of_play: bool
    end_on_possession_change: bool


_SETTINGS = {
    "duration": "game_duration",
    "second_half": "second_half",
    "offsides": "offsides",
    "magnet": "use_magnet",
    "deterministic": "deterministic",
    "end_on_score": "end_episode_on_score",
    "end_on_out_of_play": "end_episode_on_out_of_play",
    "end_on_possession_change": "end_episode_on_possession_change",
}
"""What the engine's configuration calls the rules."""


@dataclass(frozen=True, slots=True)
class Formation:
    """A scenario as its file has it: who stands where, with the ball at `ball` (x, y), by which rules."""

    left: tuple[StartingPlayer, ...]
    right: tuple[StartingPlayer, ...]
    ball: tuple[float, float]
    rules: MatchRules

    @property
    def sides(self) -> tuple[tuple[StartingPlayer, ...], tuple[StartingPlayer, ...]]:
        return self.left, self.right

    @property
    def turned(self) -> Formation:
        """Return the same scenario played from right to left."""
        low, high = self.rules.difficulty
        return Formation(
            self.right, self.left, (-self.ball[0], -self.ball[1]), replace(self.rules, difficulty=(high, low))
        )


class _Builder:
    """The builder that the function in a scenario file is called with."""

    def __init__(self, kick_off: int) -> None:
        self._config = engine().ScenarioConfig.make()
        self._kick_off = kick_off
        self._side = LEFT
        self.bodies: tuple[list[StartingPlayer], list[StartingPlayer]] = ([], [])
        self.ball = (0.0, 0.0)

    def config(self) -> Any:
        return self._config

    def SetTeam(self, team: Any) -> None:
        self._side = LEFT if team == engine().e_Team.e_Left else RIGHT

    def AddPlayer(self, x: float, y: float, role: Any, lazy: bool = False, controllable: bool = True) -> None:
        self.bodies[self._side].append(StartingPlayer(x, y, int(role), lazy, controllable))

    def SetBallPosition(self, x: float, y: float) -> None:
        self.ball = (x, y)

    def EpisodeNumber(self) -> int:
        """Return an episode's number: files let the left side kick off in even episodes."""
        return 2 - self._kick_off


@cache
def formation(name: str, kick_off: int = LEFT) -> Formation:
    """Return a scenario in which side `kick_off` begins, where its file leaves that open. Raises UnknownName with the nearest names."""
    if name not in names():
        raise UnknownName("scenario of football", name, names())
    builder = _Builder(kick_off)
    _file(name).build_scenario(builder)
    config = builder.config()
    rules = MatchRules(
        difficulty=(round(config.left_team_difficulty, 6), round(config.right_team_difficulty, 6)),
        **{rule: getattr(config, setting) for rule, setting in _SETTINGS.items()},
    )
    left, right = map(tuple, builder.bodies)
    return Formation(left, right, builder.ball, rules)


# --------------------------------------------------------------------------------------------------------------------
# Who steers whom.

Steers: TypeAlias = Literal["left", "right", "both", "random"]


@dataclass(frozen=True, slots=True)
class Controls:
    """Which bodies agents steer.

    Attributes:
        agents: Number of agents of the left and the right side.
        steerable: For each side, the bodies that they may steer.
    """

    agents: tuple[int, int]
    steerable: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def turned(self) -> Controls:
        return Controls(self.agents[::-1], self.steerable[::-1])

    def fixed(self, side: int) -> bool:
        """Whether each agent of a side steers the same body from beginning to end; otherwise the engine hands bodies out."""
        dynamic = any(0 < n < len(bodies) for n, bodies in zip(self.agents, self.steerable, strict=True))
        return not dynamic and self.agents[side] > 0


def controls(
    id: str, formation: Formation, *, sides: Steers, agents: int | Sequence[int] | None, keepers: bool
) -> Controls:
    """Return how many agents each side has. agents: for every steered side, or of left and right; None: as many as there are bodies.
    keepers: whether they may be steered; the only body of a side always may. Raises ConfigError for more agents than bodies, or none."""
    steered = [sides in ("left", "both", "random"), sides in ("right", "both")]
    steerable = tuple(_steerable(bodies, keepers=keepers) for bodies in formation.sides)
    if agents is None:
        wanted = [len(bodies) for bodies in steerable]
    elif isinstance(agents, int):
        wanted = [agents, agents]
    else:
        wanted = list(agents)
    counts = [n if is_steered else 0 for n, is_steered in zip(wanted, steered, strict=True)]
    for n, bodies, is_steered, side in zip(counts, steerable, steered, ("left", "right"), strict=True):
        if is_steered and not 1 <= n <= len(bodies):
            more = "" if keepers else ", keepers not counted (keepers: true)"
            raise ConfigError(f"{id}: agents={agents!r} was given; the {side} side has 1 to {len(bodies)}{more}.")
    return Controls((counts[0], counts[1]), (steerable[0], steerable[1]))


def _steerable(bodies: Sequence[StartingPlayer], *, keepers: bool) -> tuple[int, ...]:
    field = tuple(i for i, body in enumerate(bodies) if body.role != KEEPER and body.controllable)
    return field if field and not keepers else tuple(range(len(bodies)))


def role_names(formation: Formation, control: Controls, side: int, *, roles: str) -> list[str]:
    """Return the role of each agent of a side: "default" for all (`roles` "one"), "keeper" and "field", or the engine's in small
    letters."""
    if roles == "one":
        return ["default"] * control.agents[side]
    if not control.fixed(side):
        raise ConfigError(
            f"roles={roles!r} was given with fewer agents than bodies; the engine then hands bodies out, and no agent has a role. "
            "Leave `agents` or `roles` out."
        )
    own = [formation.sides[side][i].role for i in control.steerable[side]]
    if roles == "keeper":
        return ["keeper" if role == KEEPER else "field" for role in own]
    return [ROLES[role].lower() for role in own]


# --------------------------------------------------------------------------------------------------------------------
# The engine's configuration of one match.


def engine_config(formation: Formation, control: Controls, *, seed: int, reverse: bool) -> Any:
    """Return a `ScenarioConfig`. seed: of the engine's random numbers, below 2³¹. reverse: whether the engine lets the right side think
    first."""
    lib = engine()
    config = lib.ScenarioConfig.make()
    config.left_agents, config.right_agents = control.agents
    config.left_team_difficulty, config.right_team_difficulty = formation.rules.difficulty
    for rule, setting in _SETTINGS.items():
        setattr(config, setting, getattr(formation.rules, rule))
    config.ball_position[0], config.ball_position[1] = formation.ball
    for side, (bodies, steerable) in enumerate(zip(formation.sides, control.steerable, strict=True)):
        team = config.right_team if side == RIGHT else config.left_team
        for i, body in enumerate(bodies):
            role = lib.e_PlayerRole(body.role)
            team.append(lib.FormationEntry(body.x, body.y, role, body.lazy, i in steerable))
    if not formation.rules.deterministic:
        config.game_engine_random_seed = seed
        config.reverse_team_processing = reverse
    return config


def with_rules(id: str, formation: Formation, changes: Mapping[str, Any]) -> Formation:
    """Return the formation with other rules, those fields of `MatchRules` that are in `changes`. Raises ConfigError for numbers that are
    none."""
    rules = replace(formation.rules, **changes)
    if not all(0 <= level <= 1 for level in rules.difficulty):
        raise ConfigError(f"{id}: difficulty={rules.difficulty} was given; expected numbers from 0 to 1.")
    if rules.duration < 1 or rules.second_half < 1:
        raise ConfigError(
            f"{id}: duration={rules.duration}, second_half={rules.second_half} were given; both are steps, at least 1."
        )
    return replace(formation, rules=rules)


def initial_view(formation: Formation, control: Controls, *, side: int) -> SideView:
    """Return what a side sees before the kick-off, where no body moves: for the numbers of bodies."""
    raw: dict[str, Any] = {
        "ball": [*formation.ball, 0.0],
        "ball_direction": [0.0] * 3,
        "ball_rotation": [0.0] * 3,
        "ball_owned_team": NOBODY,
        "ball_owned_player": -1,
        "game_mode": 0,
        "score": [0, 0],
        "steps_left": formation.rules.duration,
    }
    for which, name in enumerate(("left", "right")):
        bodies, agents = formation.sides[which], control.agents[which]
        sign = -1.0 if which == RIGHT else 1.0
        raw[f"{name}_team"] = [(sign * body.x, sign * body.y) for body in bodies]
        raw[f"{name}_team_direction"] = [(0.0, 0.0)] * len(bodies)
        raw[f"{name}_team_tired_factor"] = [0.0] * len(bodies)
        raw[f"{name}_team_yellow_card"] = [False] * len(bodies)
        raw[f"{name}_team_active"] = [True] * len(bodies)
        raw[f"{name}_team_roles"] = [body.role for body in bodies]
        raw[f"{name}_agent_controlled_player"] = list(control.steerable[which][:agents])
        raw[f"{name}_agent_sticky_actions"] = [[False] * 10] * agents
    return side_view(raw, side=side)
