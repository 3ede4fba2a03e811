"""Who plays whom: the agents of an environment, grouped into players, each group with one space of observations and one of actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, nearest, one_line
from ludus.core.parts import resolve_name
from ludus.core.types import AgentSpec, Array, Determinism, EnvSpec
from ludus.envs.python_vector import ContractViolation
from ludus.envs.spaces import (
    MASK,
    Choices,
    Encode,
    MaskedObservation,
    action_form,
    action_space,
    action_start,
    from_zero,
    observation_space,
    truths,
)

# --------------------------------------------------------------------------------------------------------------------
# One agent's seat: how what its environment shows it becomes a row, and how a row's action becomes what its
# environment takes.


@dataclass(slots=True, eq=False)
class AgentSeat:
    """An agent of an environment: how its observations become rows, and rows' actions become its actions.

    Attributes:
        name: Of the agent.
        observation: Its own space.
        action: Its own space, with actions counted from 0.
        encode: As of `spaces.observation_space`.
        beside: Of its observations, if they are mappings with its mask.
        masked: Whether masks are expected.
        start: Added to actions, if they do not count from 0.
        bounds: (low, high) that actions are clipped to.
        pad_to: Length of its player's observations, 0 if they are its own.
        legal: bool[n] over its player's actions, False for those that it does not have; None: it has all.
        index: Among the spec's agents.
        choices: Of its actions, None of a Box.
        cut: Number of numbers of its actions, where its player's have more; 0 if they are its own.
        form: As of `spaces.action_form`.
    """

    name: str
    observation: spaces.Box
    action: Space[Any]
    encode: Encode | None
    beside: MaskedObservation | None
    masked: bool
    start: Array | int | None
    bounds: tuple[Array, Array] | None
    pad_to: int = 0
    legal: NDArray[np.bool_] | None = None
    index: int = -1
    choices: Choices | None = None
    cut: int = 0
    form: tuple[tuple[int, ...], np.dtype[Any]] | None = None

    def see(self, observation: Any, info: Any) -> tuple[Any, Any]:
        """Return (observation, mask or None) of what the environment shows and tells it. Raises ContractViolation for a mask that was not
        announced."""
        mask = None
        if self.beside is not None:
            try:
                mask, observation = self.beside.parts(observation)
            except ValueError as error:
                raise ContractViolation(f"gave agent {self.name!r} {error}") from error
        elif info and MASK in info:
            mask = info[MASK]
            if not self.masked:
                raise ContractViolation(
                    f"gave agent {self.name!r} an action mask, and none after its first reset; give masks from the beginning, and none "
                    "of a Box"
                )
        if self.encode is not None:
            try:
                observation = self.encode(observation)
            except Exception as error:
                raise ContractViolation(
                    f"gave agent {self.name!r} an observation that is not of its space: {error}"
                ) from error
        if self.pad_to:
            observation = self._pad(observation)
        if self.legal is not None:
            mask = self._widen(mask)
        return observation, mask

    def says_nothing(self, mask: Any) -> bool:
        """Whether a mask that `see` gave leaves nothing to do, as that of an agent who is done may."""
        if self.legal is not None:
            return not mask.any()
        return self.choices is None or self.choices.says_nothing(mask)

    def act(self, action: Any) -> Any:
        """Return the action as the environment takes it."""
        if self.cut:
            action = action[: self.cut]
        if self.bounds is not None:
            return np.clip(action, *self.bounds).astype(self.action.dtype, copy=False)
        if isinstance(action, np.ndarray) and action.dtype != self.action.dtype:
            action = action.astype(self.action.dtype)
        action = action if self.start is None else action + self.start
        return action if self.form is None else np.reshape(action, self.form[0]).astype(self.form[1])

    def _pad(self, observation: Any) -> Array:
        own = np.asarray(observation)
        if own.shape != self.observation.shape:
            raise ContractViolation(
                f"gave agent {self.name!r} an observation of shape {own.shape}; its space has {self.observation.shape}"
            )
        row = np.zeros(self.pad_to, np.float32)
        row[: len(own)] = own
        return row

    def _widen(self, mask: Any) -> NDArray[np.bool_] | None:
        assert self.legal is not None
        if mask is None:
            return self.legal
        own = np.asarray(mask)
        count = int(self.legal.sum())
        if own.shape != (count,):
            raise ContractViolation(f"gave agent {self.name!r} a mask of shape {own.shape}; it has {count} actions")
        wide = self.legal.copy()
        try:
            wide[:count] = truths(own)
        except ValueError as error:
            raise ContractViolation(f"gave agent {self.name!r} {error}") from None
        return wide


class AgentSeats(dict[Any, AgentSeat]):
    """Seats by agent; asking for one that there is not says so."""

    def __missing__(self, agent: Any) -> AgentSeat:
        raise ContractViolation(
            f"named the agent {agent!r}, which is not among its possible_agents ({', '.join(map(str, self))})"
        )


AgentName: TypeAlias = Hashable
PlayerOf: TypeAlias = Callable[[str], Any]
"""An agent's name -> its player: a number, counted from 0, or a name."""
Teams: TypeAlias = Mapping[Any, Sequence[AgentName]] | PlayerOf | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What the user, not the environment, specifies about the game's sides.

    Attributes:
        teams: None: each agent is a player; "prefix": agents whose names agree before the trailing number are one player; "one": all are
            one player; {player: [agents]}: as listed; a function, or `module:function`: the player of each agent's name.
        zero_sum: Whether the players' returns sum to a constant.
        utility_range: (least, largest) return of every player, or one such pair for each.
        symmetry: Groups of interchangeable players.
        state: Whether timesteps carry `env.state()`.
        determinism: What the environment promises under a seed.
        statistics: Names of what it counts (`EpisodeStatistics`).
    """

    teams: Teams = None
    zero_sum: bool = False
    utility_range: Sequence[Any] | None = None
    symmetry: Sequence[Sequence[int]] | None = None
    state: bool = False
    determinism: Determinism = "environment"
    statistics: Sequence[str] = ()


class EpisodeStatistics:
    """The statistics in agents' last infos: info["statistics"], name -> number. A player's are the sums of its agents';
    a name that no agent has is not known."""

    def __init__(self, names: Sequence[str], players: Sequence[int]) -> None:
        """Begin without counts. players: the player of each agent of the spec."""
        self.names, self._players = tuple(names), players
        self._totals = np.empty((max(players) + 1, len(self.names)))
        self.begin()

    def begin(self) -> None:
        """Begin an episode."""
        self._totals.fill(np.nan)

    def add(self, agent: int, info: Any) -> None:
        """Add the statistics in an agent's last info. Raises ContractViolation for what is no mapping of the names to numbers."""
        counts = info.get(_STATISTICS) if info else None
        if counts is None:
            return
        if not isinstance(counts, Mapping) or not set(counts) <= set(self.names):
            raise ContractViolation(
                f"told the statistics {counts!r}; expected a mapping with some of {', '.join(self.names)}"
            )
        totals = self._totals[self._players[agent]]
        for name, value in counts.items():
            k = self.names.index(name)
            try:
                totals[k] = float(value) + (0.0 if np.isnan(totals[k]) else totals[k])
            except (TypeError, ValueError):
                raise ContractViolation(f"told the statistics {counts!r}; expected numbers") from None

    def totals(self) -> NDArray[np.float64] | None:
        """Return float64[P, S], so far; None without names."""
        return self._totals.copy() if self.names else None


_STATISTICS = "statistics"  # in `info`


def check_statistics(value: Any) -> tuple[str, ...]:
    """Return the option `statistics`. Raises ConfigError for what is no list of different names."""
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if len(names) != len({name for name in names if isinstance(name, str) and name}) or (value and not names):
        raise ConfigError(
            f"statistics={value!r} was given; expected a list of different names, such as [goals, shots]."
        )
    return names


def split_options(
    options: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
) -> tuple[Sides, dict[str, Any]]:
    """Return (what is ours among an id's options, what the environment is made with). None stands for the default, but of `teams`, where
    it says that each agent is a player (of MAgent2, each army). Raises ConfigError for values that are none."""
    side_names = {field.name for field in fields(Sides)}
    side_values = {
        key: value for key, value in options.items() if key in side_names and (value is not None or key == "teams")
    }
    sides = Sides(**{**(defaults or {}), **side_values})
    for name in ("zero_sum", "state"):
        if not isinstance(getattr(sides, name), bool):
            raise ConfigError(f"{name}={getattr(sides, name)!r} was given; expected true or false.")
    if sides.determinism not in get_args(Determinism):
        raise ConfigError(f"determinism={sides.determinism!r} was given; allowed: {', '.join(get_args(Determinism))}.")
    check_statistics(sides.statistics)
    return sides, {key: value for key, value in options.items() if key not in side_names}


def check_limit(name: str, value: Any, *, unit: str = "steps", whole: bool = True, none: bool = True) -> None:
    """Raise ConfigError unless an option that bounds an episode leaves room for a step. none: whether null stands for no bound."""
    if value is None and none:
        return
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not number or not (value >= 1 if whole else value > 0):
        least = f"a number of {unit} from 1" if whole else f"a number of {unit} above 0"
        raise ConfigError(f"{name}={value!r} was given; expected {least}{', or null' if none else ''}.")


def agent_role(name: AgentName) -> str:
    """Return what stands before the number at the end of an agent's name: "adversary" of "adversary_0"; "default" if nothing does."""
    return re.sub(r"[_\-. ]?\d+$", "", str(name)) or "default"


def group_agents(agents: Sequence[AgentName], teams: Teams) -> list[list[AgentName]]:
    """Return the agents of each player, in the players' order: as listed, by their numbers where a function gives numbers, otherwise in
    the order of their first agents. Raises ConfigError for teams that are not a partition of the agents."""
    if teams is None:
        return [[agent] for agent in agents]
    if teams == "one":
        return [list(agents)]
    if teams == "prefix":
        groups: dict[str, list[AgentName]] = {}
        for agent in agents:
            groups.setdefault(agent_role(agent), []).append(agent)
        return list(groups.values())
    if isinstance(teams, Mapping):
        return _teams_from_mapping(agents, teams)
    function = (
        resolve_name("function of teams", teams, {}, expected=(), functions=True)
        if isinstance(teams, str) and ":" in teams
        else teams
    )
    if not callable(function):
        raise ConfigError(
            f'teams={teams!r} was given; expected "prefix", "one", a mapping of players to lists of agents, or a function of an '
            "agent's name (module:function in a file)."
        )
    return _teams_from_function(
        agents, function, teams if isinstance(teams, str) else getattr(function, "__qualname__", "function")
    )


def _teams_from_function(agents: Sequence[AgentName], function: PlayerOf, name: str) -> list[list[AgentName]]:
    """Return the teams that a function of an agent's name gives."""
    groups: dict[Any, list[AgentName]] = {}
    for agent in agents:
        try:
            player = function(str(agent))
        except Exception as error:
            raise ConfigError(f"teams={name} raised {one_line(error)}, asked for the agent {str(agent)!r}.") from error
        if isinstance(player, np.integer):
            player = int(player)
        if isinstance(player, bool) or not isinstance(player, str | int):
            raise ConfigError(
                f"teams={name} answered {player!r} for the agent {str(agent)!r}; expected its player, a number or a name."
            )
        groups.setdefault(player, []).append(agent)
    kinds = {type(player) for player in groups}
    if kinds == {str}:
        return list(groups.values())
    if kinds != {int} or sorted(groups) != list(range(len(groups))):
        raise ConfigError(
            f"teams={name} answered the players {', '.join(map(repr, groups))}; expected names, or the numbers 0 to {len(groups) - 1}, "
            "each at least once."
        )
    return [groups[player] for player in range(len(groups))]


def _teams_from_mapping(agents: Sequence[AgentName], teams: Mapping[Any, Sequence[AgentName]]) -> list[list[AgentName]]:
    by_name = {str(agent): agent for agent in agents}
    listed_names: set[str] = set()
    out = []
    for player, members in teams.items():
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            raise ConfigError(f"teams: player {player!r} has {members!r}; expected a list of its agents.")
        for member in map(str, members):
            if member not in by_name:
                raise ConfigError(
                    f"teams: player {player!r} has the unknown agent {member!r}{nearest(member, by_name)}"
                )
            if member in listed_names:
                raise ConfigError(f"teams: agent {member!r} is listed twice; each agent belongs to one player.")
            listed_names.add(member)
        out.append([by_name[str(member)] for member in members])
    if left := [name for name in by_name if name not in listed_names]:
        raise ConfigError(f"teams: no player has {', '.join(left)}; list every agent.")
    return out


def seat_agents(
    id: str,
    agents: Sequence[AgentName],
    spaces_of: Mapping[AgentName, tuple[Space[Any], Space[Any]]],
    *,
    sides: Sides,
    masked: bool,
    clip: bool,
    state: Space[Any] | None,
    pad_actions: bool = False,
    counts: bool = False,
) -> tuple[EnvSpec, dict[AgentName, AgentSeat], list[bool]]:
    """Return (what is played, the seat of each agent, whether each player has masks).

    spaces_of: (observation, action) space of each agent. masked: infos bring masks. clip: actions are clipped into Box spaces. pad_actions:
    Boxes of unlike lengths within a player become the longest; who has fewer numbers leaves the rest (`AgentSeat.act`). counts:
    whether agents may be told statistics. Raises EnvError for spaces that Ludus does not play, or that do not go together within a player;
    ConfigError for names of statistics where there are none.
    """
    if sides.statistics and not counts:
        raise ConfigError(f"{id} counts nothing by name; leave out statistics.")
    groups = group_agents(agents, sides.teams)
    seats: dict[AgentName, AgentSeat] = {}
    specs: list[AgentSpec] = []
    has_masks = []
    for player, members in enumerate(groups):
        team = [_seat(id, agent, *spaces_of[agent], masked=masked, clip=clip) for agent in members]
        observation = _one_observation(id, members, team)
        action = _one_action(id, members, team, pad=pad_actions)
        for agent, seat in zip(members, team, strict=True):
            seat.index = len(specs)
            seats[agent] = seat
            specs.append(AgentSpec(str(agent), player, observation, action, role=agent_role(agent)))
        has_masks.append(any(seat.masked or seat.legal is not None for seat in team))
    spec = EnvSpec(
        id=id,
        agents=tuple(specs),
        utility_range=utility_ranges(sides.utility_range, len(groups)),
        symmetry=_symmetry(sides.symmetry, len(groups)),
        zero_sum=sides.zero_sum,
        state=state,
        determinism=sides.determinism,
        statistics=check_statistics(sides.statistics),
    )
    return spec, seats, has_masks


def _seat(
    id: str, agent: AgentName, own_observation: Space[Any], own_action: Space[Any], *, masked: bool, clip: bool
) -> AgentSeat:
    what = f"agent {agent!r} of {id}"
    beside = MaskedObservation.of(own_observation, own_action, what=what)
    box, encode = observation_space(own_observation if beside is None else beside.space, what=what)
    start = action_start(action_space(own_action, what=what))
    action = from_zero(own_action)
    return AgentSeat(
        name=str(agent),
        observation=box,
        action=action,
        encode=encode,
        beside=beside,
        masked=beside is not None or (masked and not isinstance(own_action, spaces.Box)),
        start=start if np.any(start) else None,
        bounds=(action.low, action.high) if clip and isinstance(action, spaces.Box) else None,
        choices=Choices.of(action),
        form=action_form(own_action),
    )


def _one_observation(id: str, members: Sequence[AgentName], team: Sequence[AgentSeat]) -> spaces.Box:
    """Return the space of a player's observations: its agents' own, padded with zeros at the end where lengths differ."""
    boxes = [seat.observation for seat in team]
    if all(box == boxes[0] for box in boxes[1:]):
        return boxes[0]
    dtypes, shapes = {box.dtype for box in boxes}, {box.shape for box in boxes}
    if len(dtypes) > 1 or (len(shapes) > 1 and (dtypes != {np.dtype(np.float32)} or any(len(s) != 1 for s in shapes))):
        raise EnvError(
            f"{id}: {_names(members)} are one player and have the observations {_format_spaces(boxes)}; only float32 vectors can "
            f"be padded to one "
            "length. Let them be players of their own (teams)."
        )
    size = max(boxes, key=lambda box: int(np.prod(box.shape))).shape
    for seat in team:
        if seat.observation.shape != size:
            seat.pad_to = size[0]
    low, high = (np.stack([_pad(getattr(box, end), size) for box in boxes]) for end in ("low", "high"))
    return spaces.Box(low.min(axis=0), high.max(axis=0), size, boxes[0].dtype.type)


def _pad(bound: Any, size: tuple[int, ...]) -> Any:
    return bound if bound.shape == size else np.pad(bound, (0, size[0] - bound.shape[0]))


def _one_action(id: str, members: Sequence[AgentName], team: Sequence[AgentSeat], *, pad: bool) -> Space[Any]:
    """Return the space of a player's actions: its agents' own; or the largest of Discrete ones, with masks; or, to pad, the longest of
    Boxes."""
    actions = [seat.action for seat in team]
    if all(action == actions[0] for action in actions[1:]):
        return actions[0]
    boxes = [action for action in actions if isinstance(action, spaces.Box)]
    if pad and len(boxes) == len(actions) and (longest := _longest(boxes)) is not None:
        for seat in team:
            length = seat.action.shape[0]  # type: ignore[index]
            seat.cut = length if length < longest.shape[0] else 0
        return longest
    counts = [int(action.n) for action in actions if isinstance(action, spaces.Discrete)]
    if len(counts) < len(actions):
        raise EnvError(
            f"{id}: {_names(members)} are one player and have the actions {_format_spaces(actions)}; only Discrete ones can be "
            f"brought to one "
            "count. Let them be players of their own (teams)."
        )
    most = max(counts)
    for seat, count in zip(team, counts, strict=True):
        if count < most:
            seat.legal = np.arange(most) < count
    return spaces.Discrete(most)


def _longest(boxes: Sequence[spaces.Box]) -> spaces.Box | None:
    """Return the longest of vectors that agree in their bounds as far as they go; None if they do not."""
    if any(len(box.shape) != 1 for box in boxes):
        return None
    longest = max(boxes, key=lambda box: box.shape[0])
    agree = all(
        box == spaces.Box(longest.low[: len(box.low)], longest.high[: len(box.low)], dtype=box.dtype.type)
        for box in boxes
    )
    return longest if agree and len({box.dtype for box in boxes}) == 1 else None


def _names(members: Sequence[AgentName]) -> str:
    return ", ".join(map(str, members))


def _format_spaces(all_spaces: Sequence[Space[Any]]) -> str:
    return ", ".join(dict.fromkeys(map(str, all_spaces)))


def utility_ranges(value: Sequence[Any] | None, players: int) -> tuple[tuple[float, float], ...]:
    """Return [players] (least, largest) of the option `utility_range`; infinities for None. Raises ConfigError for anything else."""
    if value is None:
        return ((-np.inf, np.inf),) * players
    try:
        pairs = np.asarray(value, float)
        pairs = np.tile(pairs, (players, 1)) if pairs.shape == (2,) else pairs
        if pairs.shape == (players, 2) and (pairs[:, 0] <= pairs[:, 1]).all():
            return tuple((float(low), float(high)) for low, high in pairs)
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"utility_range={value!r} was given; expected [least, largest], or one such pair for each of {players} players."
    )


def _symmetry(value: Sequence[Sequence[int]] | None, players: int) -> tuple[tuple[int, ...], ...]:
    if value is None:
        return tuple((p,) for p in range(players))
    try:
        groups = tuple(tuple(group) for group in value)
        fit = sorted(p for group in groups for p in group) == list(range(players))
    except TypeError:  # true, say, or one list of players
        fit = False
    if not fit:
        raise ConfigError(
            f"symmetry={value!r} was given; expected groups of players that may change places, which hold each of the players 0 to "
            f"{players - 1} once, such as {[list(range(players))]}."
        )
    return groups
