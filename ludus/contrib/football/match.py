"""One football match as a `PythonEnv`: the engine itself is driven here, without the package's gym environment around it.

actions -> turned for a side that plays from right to left -> the engine's steps to the next moment in play -> Views -> rows, rewards
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.frames import PIXELS, Frames, small
from ludus.contrib.football.match_statistics import NAMES, MatchStatistics
from ludus.contrib.football.pitch import draw
from ludus.contrib.football.scenarios import Controls, Formation, engine, engine_config
from ludus.contrib.football.view import LEFT, NOBODY, RIGHT, Action, Mode, SideView, side_view
from ludus.core import seeding
from ludus.core.types import Array
from ludus.envs.publisher import GOES_ON, TERMINATED
from ludus.envs.python_vector import EnvStepResult

__all__ = ["COUNTED", "TURNED", "Engine", "Match", "MatchConfig"]

TURNED: tuple[int, ...] = (0, 5, 6, 7, 8, 1, 2, 3, 4, *range(9, len(Action)))
"""What an action is called by who sees the pitch turned by half a turn."""

# --------------------------------------------------------------------------------------------------------------------
# The engine: a match at a time. What it holds is never freed, so an engine that is not needed now waits for the next match.

_idle: list[Any] = []
_HELD = (
    20  # moments in a row out of play (a free kick, say, that is not taken) after which the engine's package takes it
)


class Engine:
    """The engine, and what its package does between a step and the next: restarts that are not taken are taken, and matches come to their
    end by their rules. Equal to `gfootball.env.football_env_core`, which the tests compare it with."""

    def __init__(self) -> None:
        lib = engine()
        self._states = lib.GameState
        self._actions = [int(getattr(lib.e_BackendAction, action.name.lower())) for action in Action]
        self._sticky = [int(getattr(lib.e_BackendAction, name)) for name in _STICKY]
        self._engine = _idle.pop() if _idle else _start_engine(lib)
        self._config: Any = None
        self.raw: dict[str, Any] = {}
        self.step_number = 0
        self._agents = (0, 0)
        self._mode = -1  # at the step before
        self._owner = NOBODY  # the last side that had the ball
        self._roles: list[NDArray[np.int64]] = []
        self._active: list[int] = []  # bodies of each side when its roles were read

    def reset(self, config: Any, agents: tuple[int, int]) -> None:
        """Begin a match. config: a `ScenarioConfig`, which the engine changes."""
        self._engine.state = self._states.game_running
        self._engine.reset(config, False)
        self._config, self._agents = config, agents
        self._mode, self._owner = -1, NOBODY
        self._roles, self._active = [np.empty(0, np.int64)] * 2, [-1, -1]
        self._to_next_moment()

    def step(self, actions: Sequence[Sequence[int]]) -> bool:
        """Step. actions: of the left side's agents, and of the right's, as seen from left to right by both. Returns whether the match is
        over."""
        waited = self._engine.waiting_for_game_count
        perform, numbers = self._engine.perform_action, self._actions
        for side, side_actions in enumerate(actions):
            for i, action in enumerate(side_actions if waited < _HELD else self._restart(side, waited)):
                perform(numbers[action], side == LEFT, i)
        self._engine.step()
        self._to_next_moment()
        return self._over()

    def state(self) -> bytes:
        """Return the engine's whole state, for an engine in a match with the same configuration."""
        saved: bytes = self._engine.get_state("")
        return saved

    def close(self) -> None:
        """Leave the engine to the next match."""
        if self._engine is not None:
            _idle.append(self._engine)
            self._engine = None

    def _to_next_moment(self) -> None:
        info = self._engine.get_info()
        while not info.is_in_play:
            self._engine.step()
            info = self._engine.get_info()
        self.step_number = info.step
        self.raw = self._observe(info)

    def _restart(self, side: int, waited: int) -> list[int]:
        """Return what the package lets a side's agents do when a restart is not taken: a pass, then the owner of the ball walks."""
        count = self._agents[side]
        if waited == _HELD:
            return [Action.SHORT_PASS] * count
        actions: list[int] = [Action.IDLE] * count
        if self.raw["ball_owned_team"] == side:
            walk = Action.LEFT if (waited < 30) != (side == LEFT) else Action.RIGHT
            bodies = self.raw[f"{_NAMES[side]}_agent_controlled_player"]
            actions = [walk if body == self.raw["ball_owned_player"] else Action.IDLE for body in bodies]
        return actions

    def _over(self) -> bool:
        raw, config = self.raw, self._config
        over = config.end_episode_on_score and max(raw["score"]) > 0
        normal = raw["game_mode"] == Mode.NORMAL
        over |= config.end_episode_on_out_of_play and not normal and self._mode == Mode.NORMAL
        self._mode = raw["game_mode"]
        owner = raw["ball_owned_team"]
        over |= config.end_episode_on_possession_change and NOBODY not in (owner, self._owner) and owner != self._owner
        if owner != NOBODY:
            self._owner = owner
        self._engine.waiting_for_game_count = 0 if normal else self._engine.waiting_for_game_count + 1
        return bool(over or self.step_number >= config.game_duration)

    def _observe(self, info: Any) -> dict[str, Any]:
        """Return what the package calls the observation of its core."""
        ball, moves, turns = info.ball_position, info.ball_direction, info.ball_rotation
        raw = {
            "ball": np.array([ball[0], ball[1], ball[2]]),
            "ball_direction": np.array([moves[0], moves[1], moves[2]]),
            "ball_rotation": np.array([turns[0], turns[1], turns[2]]),
            "ball_owned_team": info.ball_owned_team,
            "ball_owned_player": info.ball_owned_player,
            "game_mode": int(info.game_mode),
            "score": [info.left_goals, info.right_goals],
            "steps_left": self._config.game_duration - info.step,
        }
        for side, team in ((LEFT, info.left_team), (RIGHT, info.right_team)):
            name = _NAMES[side]
            _put_team(raw, name, team)
            if (active := int(raw[f"{name}_team_active"].sum())) != self._active[side]:
                # Roles change only where a goalkeeper is sent off, whose part another body takes over.
                self._active[side], self._roles[side] = active, np.array([int(body.role) for body in team], np.int64)
            raw[f"{name}_team_roles"] = self._roles[side]
        held = self._engine.sticky_action_state
        for side, controllers in ((LEFT, info.left_controllers), (RIGHT, info.right_controllers)):
            name, agents = _NAMES[side], range(self._agents[side])
            raw[f"{name}_agent_controlled_player"] = [controllers[i].controlled_player for i in agents]
            raw[f"{name}_agent_sticky_actions"] = [
                [held(action, side == LEFT, i) for action in self._sticky] for i in agents
            ]
        return raw


_NAMES = ("left", "right")
_STICKY = (
    *("left", "top_left", "top", "top_right", "right", "bottom_right", "bottom", "bottom_left"),
    *("sprint", "dribble"),
)


def _start_engine(lib: Any) -> Any:
    game = lib.GameEnv()
    game.start_game()
    return game


def _put_team(raw: dict[str, Any], name: str, bodies: Sequence[Any]) -> None:
    rows, active, cards, designated = [], [], [], -1
    for i, body in enumerate(bodies):
        at, moves = body.position, body.direction
        rows.append((at[0], at[1], moves[0], moves[1], body.tired_factor))
        active.append(body.is_active)
        cards.append(body.has_card)
        if body.designated_player:
            designated = i
    table = np.array(rows)
    raw[f"{name}_team"] = table[:, 0:2]
    raw[f"{name}_team_direction"] = table[:, 2:4]
    raw[f"{name}_team_tired_factor"] = table[:, 4]
    raw[f"{name}_team_active"] = np.array(active)
    raw[f"{name}_team_yellow_card"] = np.array(cards)
    raw[f"{name}_team_designated_player"] = designated


# --------------------------------------------------------------------------------------------------------------------
# A match: who plays where, what they see and earn.

_COLUMNS = (*NAMES, "goals_against")
_FIRST = ("goals", "goals_against", "possession", "shots")
COUNTED = (*_FIRST, *(name for name in NAMES if name not in _FIRST))
"""What can be counted of each player; the first are what short lines show."""

Encode = Callable[[SideView, SideView | None], NDArray[np.float32]]
"""(what a side sees, what it saw a step before) -> float32[k, F] of its k agents."""


class Pay(Protocol):
    """The rewards of a side."""

    def begin(self, view: SideView) -> None:
        """Begin a match."""
        ...

    def __call__(self, before: SideView, after: SideView) -> NDArray[np.float64]:
        """Return float64[k]: what each of the side's agents earned by a step."""
        ...


@dataclass(frozen=True, slots=True)
class MatchConfig:
    """What all matches of a vector have in common.

    Attributes:
        formation: formation(kick_off) is the scenario.
        players: The side that each player plays where sides are not swapped.
        random_sides: Whether a fair draw swaps the sides, players included.
        encode: Of observations; legal of masks, central of the state.
        pay: Makes what rewards a player.
        statistics: Names of what is counted.
        frames: The engine's pictures.
        observation_kind: Whether agents see those.
        renderer: What draws what `render` shows.
        columns: Names of each player's observations.
        built_in: Difficulties at which a side can be left to the engine.
    """

    id: str
    formation: Callable[[int], Formation]
    controls: Controls
    players: tuple[int, ...]
    random_sides: bool
    encode: tuple[Encode, ...]
    legal: Callable[[SideView], NDArray[np.bool_]] | None
    central: Callable[[SideView], Array] | None
    pay: Callable[[], Pay]
    statistics: tuple[str, ...]
    frames: Frames
    observation_kind: Literal["numbers", "pixels"]
    renderer: Literal["pitch", "engine"]
    columns: tuple[tuple[str, ...], ...] = ()
    built_in: tuple[float, ...] = ()


class MatchSeed(NamedTuple):
    """What the seed of a match decides.

    Attributes:
        kick_off: The side that begins, where the scenario leaves it open.
        turned: Whether sides are swapped.
        seed: Of the engine; reverse likewise.
    """

    kick_off: int
    turned: bool
    seed: int
    reverse: bool

    @staticmethod
    def of(seed: int, *, random_sides: bool) -> MatchSeed:
        bits = seeding.key(seed, "football")
        return MatchSeed(bits >> 63, random_sides and bool(bits >> 62 & 1), bits & 0x7FFFFFFF, bool(bits >> 61 & 1))


class Match:
    """A `PythonEnv`. Players are seats, sides are where they play: `side_of[p]`, which `random_sides` draws for each match.

    An agent whose body was sent off decides nothing any more; its last decision stays open, and earns its part of what its team earns.

    Where `plan.built_in` names difficulties, action len(Action) + i of all of a side's agents, at their first decision of a match, leaves
    the side to the engine at difficulty i: the match begins again, as one in which that side has no agents. From then on its agents see
    what it sees, and have that one legal action. What only some of them ask for is Action.IDLE.
    """

    def __init__(self, config: MatchConfig) -> None:
        self._config = config
        self._engine: Engine | None = None
        self._pay = [config.pay() for _ in config.players]
        self._statistics = MatchStatistics() if config.statistics else None
        self._columns = [_COLUMNS.index(name) for name in config.statistics]
        counts = [config.controls.agents[side] for side in config.players]
        self._first = [sum(counts[:p]) for p in range(len(counts))]
        self._counts = counts
        self.side_of: tuple[int, ...] = config.players
        self.views: tuple[SideView, ...] = ()
        self._current: tuple[Formation, Controls, MatchSeed] | None = None
        # Difficulties of the sides that it plays in place of their agents, by player.
        self._built_in_levels: dict[int, int] = {}
        self._first_step = False

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes."""
        config, match_seed = self._config, MatchSeed.of(seed, random_sides=self._config.random_sides)
        formation, control = config.formation(match_seed.kick_off), config.controls
        if match_seed.turned:
            formation, control = formation.turned, control.turned
        self.side_of = tuple(1 - side if match_seed.turned else side for side in config.players)
        if self._engine is None:
            self._engine = Engine()
        self._built_in_levels, self._first_step = {}, True
        self._begin(formation, control, match_seed)
        result = EnvStepResult()
        self._show(result, None)
        while not result.due and not result.over:  # the engine has not handed out bodies yet
            self._advance(result, [Action.IDLE] * sum(self._counts))
        result.reward = []
        return result

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        result = EnvStepResult()
        if self._first_step and self._config.built_in:
            self._hand_over(actions)
        self._first_step = False
        self._advance(result, actions)
        while not result.due and not result.over:  # no agent has a body to steer
            self._advance(result, [Action.IDLE] * sum(self._counts))
        return result

    def observation_names(self, player: int) -> Sequence[str]:
        """Return the names of an observation's numbers as `HasColumnNames.observation_names` describes."""
        return self._config.columns[player] if self._config.columns else ()

    def action_names(self, player: int) -> Sequence[str]:
        """Return the names of actions as `HasColumnNames.action_names` describes."""
        del player  # all have the same
        return [action.name.lower() for action in Action]

    @property
    def game(self) -> Match:
        """Return itself: `views[p]` is what player p's side sees now."""
        return self

    def render(self) -> NDArray[np.uint8] | str:
        """Render as `PythonEnv.render` describes."""
        return self._frame() if self._config.renderer == "engine" else draw(self.views)

    def close(self) -> None:
        """Close as `PythonEnv.close` describes."""
        self._config.frames.close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # ------------------------------------------------------------------------------------------ a step

    def _begin(self, formation: Formation, control: Controls, match_seed: MatchSeed) -> None:
        """Begin a match."""
        assert self._engine is not None
        config = engine_config(formation, control, seed=match_seed.seed, reverse=match_seed.reverse)
        self._engine.reset(config, control.agents)
        self._current = formation, control, match_seed
        self.views = self._side_views()
        for pay, view in zip(self._pay, self.views, strict=True):
            pay.begin(view)
        if self._statistics is not None:
            self._statistics.begin(self.views[0])

    def _hand_over(self, actions: Sequence[Any]) -> None:
        """Leave those sides to the engine whose agents all ask for the same level: the match begins again."""
        assert self._current is not None
        formation, control, match_seed = self._current
        agents, levels = list(control.agents), list(formation.rules.difficulty)
        for p, side in enumerate(self.side_of):
            requests = set(actions[self._first[p] : self._first[p] + self._counts[p]])
            level = requests.pop() - len(Action)
            if level >= 0 and not requests:
                self._built_in_levels[p] = level
                agents[side], levels[side] = 0, self._config.built_in[level]
        if self._built_in_levels:
            rules = replace(formation.rules, difficulty=(levels[LEFT], levels[RIGHT]))
            self._begin(
                replace(formation, rules=rules), replace(control, agents=(agents[LEFT], agents[RIGHT])), match_seed
            )

    def _advance(self, result: EnvStepResult, actions: Sequence[Any]) -> None:
        """Step the engine and add its results."""
        assert self._engine is not None
        side_actions: list[list[int]] = [[], []]
        for p, (side, view) in enumerate(zip(self.side_of, self.views, strict=True)):
            own = actions[self._first[p] : self._first[p] + self._counts[p]]
            bodies = view.controlled.tolist()
            own = [Action.IDLE if body < 0 or a >= len(Action) else a for a, body in zip(own, bodies, strict=True)]
            side_actions[side] = (
                [] if p in self._built_in_levels else [TURNED[a] for a in own] if side == RIGHT else own
            )
        over = self._engine.step(side_actions)
        before, self.views = self.views, self._side_views()
        for p, pay in enumerate(self._pay):
            earned = pay(before[p], self.views[p]).tolist()
            result.reward += [(self._first[p] + i, reward) for i, reward in enumerate(earned) if reward]
        if self._statistics is not None:
            self._statistics.see(before[0], self.views[0])
            result.statistics = self._totals(self._statistics.totals())  # so far: the match may be cut off
        result.over = TERMINATED if over else GOES_ON
        self._show(result, before)

    def _totals(self, sides: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[P, S] of what each side did, float64[2, len(NAMES)]."""
        with_against = np.column_stack((sides, sides[::-1, NAMES.index("goals")]))
        return np.asarray(with_against[np.ix_(self.side_of, self._columns)])

    def _side_views(self) -> tuple[SideView, ...]:
        assert self._engine is not None
        views = [side_view(self._engine.raw, side=side) for side in self.side_of]
        for p in self._built_in_levels:  # its agents still observe
            bodies = np.array(self._config.controls.steerable[self._config.players[p]][: self._counts[p]])
            held = np.zeros((len(bodies), len(_STICKY)), np.bool_)
            views[p] = replace(views[p], controlled=bodies, sticky=held)
        return tuple(views)

    def _frame(self) -> NDArray[np.uint8]:
        assert self._engine is not None
        assert self._current is not None
        formation, control, match_seed = self._current
        state = self._engine.state()
        return self._config.frames.frame(
            formation, control, seed=match_seed.seed, reverse=match_seed.reverse, state=state
        )

    def _rows(self, p: int, before: SideView | None) -> Array:
        """Return [k, …]: what player p's agents see."""
        view = self.views[p]
        if self._config.observation_kind == "pixels":
            return np.broadcast_to(small(self._frame()), (len(view.controlled), *PIXELS))
        return self._config.encode[p](view, before)

    def _legal(self, p: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool[k, 19 + built-in sides], from bool[k, 19]."""
        if not self._config.built_in:
            return mask
        asking = np.full((len(mask), len(self._config.built_in)), self._first_step)
        mask = np.concatenate([mask, asking], axis=1)
        if p in self._built_in_levels:
            mask[:] = False
            mask[:, len(Action) + self._built_in_levels[p]] = True
        return mask

    def _show(self, result: EnvStepResult, before: tuple[SideView, ...] | None) -> None:
        """Write the rows of agents that must act now, or of all where the match is over; and the state, which player 0 sees."""
        config = self._config
        for p, view in enumerate(self.views):
            rows, first = self._rows(p, None if before is None else before[p]), self._first[p]
            if result.over:
                result.gone += [(first + i, row, TERMINATED) for i, row in enumerate(rows)]
                continue
            masks: Sequence[Any] = [None] * len(rows) if config.legal is None else self._legal(p, config.legal(view))  # type: ignore[assignment]
            result.due += [
                (first + i, rows[i], masks[i]) for i, body in enumerate(view.controlled.tolist()) if body >= 0
            ]
        if config.central is not None:
            result.state = config.central(self.views[0])
