"""Who plays whom: the agents of an environment, grouped into players, each group with one space of observations and one of actions."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces

from ludus.envs.adapters.seats import Seat
from ludus.envs.choices import Choices
from ludus.envs.spaces import action_space, action_start, from_zero, observation_space
from ludus.errors import ConfigError, EnvError, nearest
from ludus.types import AgentSpec, Determinism, EnvSpec

AgentName: TypeAlias = Hashable
Teams: TypeAlias = Mapping[Any, Sequence[AgentName]] | Literal["prefix", "one"] | None

_MASK = "action_mask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What Ludus, not the environment, is told about the game's sides.

    teams: None: each agent is a player; "prefix": agents whose names agree before the trailing number are one player; "one": all are;
    {player: [agents]}: as listed. zero_sum: the players' returns sum to a constant. utility_range: (least, largest) return of every
    player, or one such pair for each. symmetry: groups of interchangeable players. state: whether timesteps carry `env.state()`.
    determinism: what the environment promises under a seed.
    """

    teams: Teams = None
    zero_sum: bool = False
    utility_range: Sequence[Any] | None = None
    symmetry: Sequence[Sequence[int]] | None = None
    state: bool = False
    determinism: Determinism = "environment"


def split_options(
    options: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
) -> tuple[Sides, dict[str, Any]]:
    """(what is ours among an id's options, what the environment is made with). Raises ConfigError for values that are none."""
    ours = {field.name for field in fields(Sides)}
    given = {key: value for key, value in options.items() if key in ours and value is not None}
    sides = Sides(**{**(defaults or {}), **given})
    for name in ("zero_sum", "state"):
        if not isinstance(getattr(sides, name), bool):
            raise ConfigError(f"{name}={getattr(sides, name)!r} was given; expected true or false.")
    if sides.determinism not in get_args(Determinism):
        raise ConfigError(f"determinism={sides.determinism!r} was given; allowed: {', '.join(get_args(Determinism))}.")
    return sides, {key: value for key, value in options.items() if key not in ours}


def role_of(name: AgentName) -> str:
    """What stands before the number at the end of an agent's name: "adversary" of "adversary_0"; "default" if nothing does."""
    return re.sub(r"[_\-. ]?\d+$", "", str(name)) or "default"


def players_of(agents: Sequence[AgentName], teams: Teams) -> list[list[AgentName]]:
    """The agents of each player, in the players' order. Raises ConfigError for teams that are not a partition of the agents."""
    if teams is None:
        return [[agent] for agent in agents]
    if teams == "one":
        return [list(agents)]
    if teams == "prefix":
        groups: dict[str, list[AgentName]] = {}
        for agent in agents:
            groups.setdefault(role_of(agent), []).append(agent)
        return list(groups.values())
    if not isinstance(teams, Mapping):
        raise ConfigError(
            f'teams={teams!r} was given; expected "prefix", "one", or a mapping of players to lists of agents.'
        )
    return _listed(agents, teams)


def _listed(agents: Sequence[AgentName], teams: Mapping[Any, Sequence[AgentName]]) -> list[list[AgentName]]:
    by_name = {str(agent): agent for agent in agents}
    taken: set[str] = set()
    out = []
    for player, members in teams.items():
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            raise ConfigError(f"teams: player {player!r} has {members!r}; expected a list of its agents.")
        for member in map(str, members):
            if member not in by_name:
                raise ConfigError(
                    f"teams: player {player!r} has the unknown agent {member!r}{nearest(member, by_name)}"
                )
            if member in taken:
                raise ConfigError(f"teams: agent {member!r} is listed twice; each agent belongs to one player.")
            taken.add(member)
        out.append([by_name[str(member)] for member in members])
    if left := [name for name in by_name if name not in taken]:
        raise ConfigError(f"teams: nobody plays {', '.join(left)}; list every agent.")
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
) -> tuple[EnvSpec, dict[AgentName, Seat], list[bool]]:
    """(what is played, the seat of each agent, whether each player has masks).

    spaces_of: (observation, action) space of each agent. masked: infos bring masks. clip: actions are clipped into Box spaces.
    Raises EnvError for spaces that Ludus does not play, or that do not go together within a player.
    """
    groups = players_of(agents, sides.teams)
    seats: dict[AgentName, Seat] = {}
    specs: list[AgentSpec] = []
    has_masks = []
    for player, members in enumerate(groups):
        team = [_seat(id, agent, *spaces_of[agent], masked=masked, clip=clip) for agent in members]
        observation = _one_observation(id, members, team)
        action = _one_action(id, members, team)
        for agent, seat in zip(members, team, strict=True):
            seat.index = len(specs)
            seats[agent] = seat
            specs.append(AgentSpec(str(agent), player, observation, action, role=role_of(agent)))
        has_masks.append(any(seat.masked or seat.legal is not None for seat in team))
    spec = EnvSpec(
        id=id,
        agents=tuple(specs),
        utility_range=_ranges(sides.utility_range, len(groups)),
        symmetry=_symmetry(sides.symmetry, len(groups)),
        zero_sum=sides.zero_sum,
        state=state,
        determinism=sides.determinism,
    )
    return spec, seats, has_masks


def _seat(id: str, agent: AgentName, seen: Space[Any], acts: Space[Any], *, masked: bool, clip: bool) -> Seat:
    what = f"agent {agent!r} of {id}"
    keyed = isinstance(seen, spaces.Dict) and _MASK in seen.spaces
    key = None
    if keyed and isinstance(seen, spaces.Dict):
        rest = {name: space for name, space in seen.spaces.items() if name != _MASK}
        if not rest:
            raise EnvError(f"observations of {what} hold nothing but {_MASK!r}; expected what it sees beside it.")
        key = next(iter(rest)) if len(rest) == 1 else None
        seen = rest[key] if key is not None else spaces.Dict(rest)
    box, encode = observation_space(seen, what=what)
    action = action_space(acts, what=what)
    if keyed and isinstance(action, spaces.Box):
        raise EnvError(f"{what} has action masks and the action space {action}; masks go with whole numbers only.")
    start = action_start(action)
    return Seat(
        name=str(agent),
        observation=box,
        action=from_zero(action),
        encode=encode,
        keyed=keyed,
        key=key,
        masked=keyed or (masked and not isinstance(action, spaces.Box)),
        start=start if np.any(start) else None,
        bounds=(action.low, action.high) if clip and isinstance(action, spaces.Box) else None,
        choices=Choices.of(action),
    )


def _one_observation(id: str, members: Sequence[AgentName], team: Sequence[Seat]) -> spaces.Box:
    """The space of a player's observations: its agents' own, padded with zeros at the end where lengths differ."""
    boxes = [seat.observation for seat in team]
    if all(box == boxes[0] for box in boxes[1:]):
        return boxes[0]
    dtypes, shapes = {box.dtype for box in boxes}, {box.shape for box in boxes}
    if len(dtypes) > 1 or (len(shapes) > 1 and (dtypes != {np.dtype(np.float32)} or any(len(s) != 1 for s in shapes))):
        raise EnvError(
            f"{id}: {_names(members)} are one player and have the observations {_shown(boxes)}; only float32 vectors can be padded to one "
            "length. Let them be players of their own (teams)."
        )
    size = max(boxes, key=lambda box: int(np.prod(box.shape))).shape
    for seat in team:
        if seat.observation.shape != size:
            seat.pad_to = size[0]
    low, high = (np.stack([_padded(getattr(box, end), size) for box in boxes]) for end in ("low", "high"))
    return spaces.Box(low.min(axis=0), high.max(axis=0), size, boxes[0].dtype.type)


def _padded(bound: Any, size: tuple[int, ...]) -> Any:
    return bound if bound.shape == size else np.pad(bound, (0, size[0] - bound.shape[0]))


def _one_action(id: str, members: Sequence[AgentName], team: Sequence[Seat]) -> Space[Any]:
    """The space of a player's actions: its agents' own, or the largest of Discrete ones, with masks."""
    actions = [seat.action for seat in team]
    if all(action == actions[0] for action in actions[1:]):
        return actions[0]
    counts = [int(action.n) for action in actions if isinstance(action, spaces.Discrete)]
    if len(counts) < len(actions):
        raise EnvError(
            f"{id}: {_names(members)} are one player and have the actions {_shown(actions)}; only Discrete ones can be brought to one "
            "count. Let them be players of their own (teams)."
        )
    most = max(counts)
    for seat, count in zip(team, counts, strict=True):
        if count < most:
            seat.legal = np.arange(most) < count
    return spaces.Discrete(most)


def _names(members: Sequence[AgentName]) -> str:
    return ", ".join(map(str, members))


def _shown(all_of: Sequence[Space[Any]]) -> str:
    return ", ".join(dict.fromkeys(map(str, all_of)))


def _ranges(given: Sequence[Any] | None, players: int) -> tuple[tuple[float, float], ...]:
    if given is None:
        return ((-np.inf, np.inf),) * players
    try:
        pairs = np.asarray(given, float)
        pairs = np.broadcast_to(pairs, (players, 2)) if pairs.ndim == 1 else pairs
        if pairs.shape == (players, 2) and (pairs[:, 0] <= pairs[:, 1]).all():
            return tuple((float(low), float(high)) for low, high in pairs)
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"utility_range={given!r} was given; expected [least, largest], or one such pair for each of {players} players."
    )


def _symmetry(given: Sequence[Sequence[int]] | None, players: int) -> tuple[tuple[int, ...], ...]:
    if given is None:
        return tuple((p,) for p in range(players))
    groups = tuple(tuple(group) for group in given)
    if sorted(p for group in groups for p in group) != list(range(players)):
        raise ConfigError(
            f"symmetry={given!r} was given; expected groups that hold each of the players 0 to {players - 1} once."
        )
    return groups
