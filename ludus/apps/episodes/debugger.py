"""Episodes step by step, forwards and back: what every policy saw, answered and was paid.

`EpisodeDebugger` walks through an episode, whoever has it: one that is being played (`ludus.apps.episodes.played_episode`), or one that was
written to a file (below).
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.apps.episodes.breakpoints import Breakpoint, Known, StepScope, parse_breakpoint
from ludus.apps.episodes.recording import SUFFIXES, Film, StoredArray, check_target, episode_key, save_film
from ludus.core.errors import ConfigError, DataError, EnvError, LudusError, join_or
from ludus.core.jsonable import parse_json
from ludus.core.machine import replace_file
from ludus.core.types import AgentSpec, Array, EnvSpec
from ludus.envs.spaces import Choices
from ludus.replay.parquet import space_from_json, space_to_json
from ludus.rollout.base import whole

LINES = ".jsonl"
_OPENSPIEL = "openspiel/"

# --------------------------------------------------------------------------------------------------------------------
# What is kept of a step.


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """Those of one player in a step, n rows, one for each of its agents that was due.

    agent: int32[n], index within the player. mask: bool[n, A] legal actions; None: all are. action [n, …]. logp float32[n], of what was
    chosen; NaN of a bot's. memory: float32[n, M] that the answers started from; None without. reward: float32[n], paid from the decision to
    the agent's next one; NaN until that is known. stored: the observations.
    """

    agent: NDArray[np.int32]
    mask: NDArray[np.bool_] | None
    action: Array
    logp: NDArray[np.float32]
    memory: NDArray[np.float32] | None
    reward: NDArray[np.float32]
    stored: StoredArray

    @property
    def observation(self) -> Array:
        """Return [n, *shape], what the policy saw, or int32[n] ids of information states where the environment enumerates them."""
        return self.stored.array

    def __len__(self) -> int:
        return len(self.agent)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of an episode. due: [P]. paid: float64[P], what came with it, summed over a player's agents, for this decision or earlier
    ones. returns: float64[P], paid so far. closed: (player, agent, terminated) of each agent whose part ended with it. over: how the
    episode ended with it, "terminated" or "truncated"; "". state: the central state before it; None without. statistics: float64[P, S] of
    the whole episode, with its last step; None else, and where the environment names none."""

    number: int
    due: tuple[Decisions, ...]
    paid: NDArray[np.float64]
    returns: NDArray[np.float64]
    closed: tuple[tuple[int, int, bool], ...] = ()
    over: str = ""
    state: Array | None = None
    statistics: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """A policy's evaluation of n decisions. probs: float64[n, A] of the actions, as it plays; NaN of those that are too rare to be seen;
    None where actions are vectors, and of bots. explored: the same, as it would play in the mode "explore"; None where it does play so.
    value: float32[n], action_values: float32[n, A], in the units that the learner scaled rewards to; None where the policy has none."""

    probs: NDArray[np.float64] | None = None
    explored: NDArray[np.float64] | None = None
    value: NDArray[np.float32] | None = None
    action_values: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """An episode as far as it was played. number: which one of the seed's, from 0. policy: [P] names, and mode: [P], of who plays."""

    spec: EnvSpec
    seed: int
    number: int
    policy: tuple[str, ...]
    mode: tuple[str, ...]
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One agent's decision, ready to be shown. agent: index within the player; name: the environment's; several: whether the
    player has more than one. policy, mode: who answered.

    observation: array, and its columns' names or (). information: the state's text that the game gives its player; "". legal: numbers of
    the legal actions; None where actions are vectors. names: of actions, by number, where they are known. probs, explored, value,
    action_values, logp, reward: as in `Answers` and `Decisions`.
    """

    player: int
    agent: int
    name: str
    several: bool
    policy: str
    mode: str
    observation: Array
    columns: tuple[str, ...]
    information: str
    legal: tuple[int, ...] | None
    names: Mapping[int, str]
    action: Array
    logp: float
    probs: NDArray[np.float64] | None
    explored: NDArray[np.float64] | None
    value: float
    action_values: NDArray[np.float32] | None
    reward: float

    @property
    def action_name(self) -> str:
        """Return the action's name, or its number, or numbers."""
        if self.action.ndim == 0:
            return self.names.get(int(self.action), str(self.action.item()))
        return " ".join(f"{x:.3g}" for x in self.action.reshape(-1).tolist())


class _Scope:
    """A row of `Decisions` for conditions."""

    __slots__ = ("_debugger", "_row", "_rows", "_step", "action", "agent", "observation", "player")

    def __init__(self, debugger: EpisodeDebugger, step: Step, player: int, row: int, observations: Array) -> None:
        self._debugger, self._step, self._row, self._rows = debugger, step, row, step.due[player]
        self.player, self.agent = player, int(self._rows.agent[row])
        self.action, self.observation = np.asarray(self._rows.action[row]), observations[row]

    @property
    def logp(self) -> float:
        return float(self._rows.logp[self._row])

    @property
    def prob(self) -> float:
        return float(np.exp(self._rows.logp[self._row]))

    @property
    def value(self) -> float:
        value = self._debugger.answers(self._step.number, self.player).value
        return np.nan if value is None else float(value[self._row])

    @property
    def legal(self) -> int:
        legal = self._debugger.legal(self._step.number, self.player)
        return 0 if legal is None else int(legal[self._row].sum())


class OpenSpielWalk:
    """An episode of an OpenSpiel game. states: the `pyspiel.State` before every step, and the last one."""

    def __init__(self, game: str, seed: int) -> None:
        """game: its id. seed: of the environment."""
        from ludus.envs.openspiel.games import load_game
        from ludus.envs.openspiel.states import ChanceStream, OpenSpielGame

        self._chance = ChanceStream(seed)
        self.states = [OpenSpielGame(load_game(game)).new_state(self._chance)]
        self._chance.play(self.states[0])

    def step(self, actions: Sequence[Array], *, checked: bool = False) -> None:
        """Make a step. actions: [P], of each player's agent that is due. checked: illegal ones raise what pyspiel raises."""
        state = self.states[-1].clone()
        moves = [int(action[0]) if len(action) else -1 for action in actions]
        if state.is_simultaneous_node():
            state.apply_actions(moves)
        elif checked:
            state.apply_action_with_legality_check(moves[state.current_player()])
        else:
            state.apply_action(moves[state.current_player()])
        self._chance.play(state)
        self.states.append(state)


# --------------------------------------------------------------------------------------------------------------------


class EpisodeDebugger(ABC):
    """An episode that is walked through, forwards and back.

    episode: what is known of it so far. position: the step that is looked at, from 0; when the episode is over there is one position more,
    behind its last step. breakpoints: conditions at which `resume` stops. cut: why the episode could not go on, "" if it could: what the
    environment or a policy raised, or more steps than are kept.
    """

    episode: Episode

    def __init__(self) -> None:
        self.position, self.cut = 0, ""
        self.breakpoints: list[Breakpoint] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ what kinds of it do

    @property
    @abstractmethod
    def over(self) -> bool:
        """Return whether the episode is known to its end, or to where it could not go on."""

    @abstractmethod
    def reach(self, number: int) -> bool:
        """Go on with the episode as far as step `number`, without looking there; whether there is one."""

    @abstractmethod
    def restart(self, seed: int | None = None) -> None:
        """From the first step again, of the same episode, or of the first one of another seed. Breakpoints stay."""

    @abstractmethod
    def answers(self, number: int, player: int) -> Answers:
        """Return what the player's policy says of its decisions in a step."""

    @abstractmethod
    def columns(self, player: int) -> tuple[str, ...]:
        """Return names of the numbers of the player's observations, where the environment gives them and no wrapper changes them; else
        ()."""

    @abstractmethod
    def information(self, number: int, player: int, row: int) -> str:
        """Return what the game writes for the player who decides: its information state, say; ""."""

    @abstractmethod
    def action_names(self, number: int, player: int, row: int, legal: Sequence[int]) -> Mapping[int, str]:
        """Return names of a decision's legal actions, those that have some."""

    @abstractmethod
    def picture(self, number: int) -> NDArray[np.uint8] | str:
        """Return the state before step `number`, or behind the last one: an image uint8[height, width, 3], or text. Raises EnvError if
        there is none."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds."""

    def state(self, number: int) -> Any | None:
        """Return the `pyspiel.State` before step `number`, or behind the last one; None of other games, and where it is not known."""
        del number
        return None

    def own_players(self, player: int) -> tuple[int, ...]:
        """Return the environment's own players that are this one, where wrappers have put several of them together."""
        return (player,)

    # ------------------------------------------------------------------------------------------ going

    @property
    def step(self) -> Step | None:
        """Return the one at `position`; None behind the last one."""
        return self.episode.steps[self.position] if self.position < len(self.episode.steps) else None

    def go(self, number: int) -> int:
        """Look at step `number`, or, if the episode ends before, behind its last one; the position."""
        if number < 0:
            raise ConfigError(f"step {number} was asked for; the first one is 0.")
        self.reach(number)
        self.position = min(number, len(self.episode.steps))
        return self.position

    def resume(self, stopped: Callable[[], bool] = lambda: False) -> Breakpoint | None:
        """On to the next step at which a breakpoint's condition holds; which one, or None: the episode ended before, or somebody
        stopped it."""
        while self.go(self.position + 1) < len(self.episode.steps) and not stopped():
            scope = self.scope(self.position)
            for condition in self.breakpoints:
                if condition.holds(scope):
                    return condition
        return None

    def stop_at(self, text: str) -> Breakpoint:
        """Add a breakpoint. Raises ConfigError as `parse_breakpoint`."""
        condition = parse_breakpoint(text, self.known)
        self.breakpoints.append(condition)
        return condition

    # ------------------------------------------------------------------------------------------ looking

    @cached_property
    def known(self) -> Known:
        """Return what conditions may ask for."""
        spec = self.episode.spec
        shapes = [a.observation.shape or () for a in spec.agents]
        if spec.enumeration is not None:
            shapes.append(spec.enumeration.observation.shape[1:])
        columns = {self.columns(p) for p in range(spec.num_players)}
        return Known(
            players=spec.num_players,
            observation=max(int(np.prod(shape)) for shape in shapes),
            action=max(int(np.prod(a.action.shape or ())) for a in spec.agents),
            columns=columns.pop() if len(columns) == 1 else (),
            statistics=spec.statistics,
        )

    def scope(self, number: int) -> StepScope:
        """Return a step, for conditions."""
        step = self.episode.steps[number]
        decisions = [
            _Scope(self, step, p, row, observations)
            for p, rows in enumerate(step.due)
            if len(rows)
            for observations in [self.tensors(rows)]
            for row in range(len(rows))
        ]
        due = np.array([len(rows) > 0 for rows in step.due])
        return StepScope(
            number,
            step.paid,
            step.returns,
            due,
            step.over == "terminated",
            step.over == "truncated",
            decisions,
            step.statistics,
        )

    def legal(self, number: int, player: int) -> NDArray[np.bool_] | None:
        """Return which actions were legal, bool[n, A]; None where they are vectors without a mask."""
        return self._legal(self.episode.steps[number], player)

    def _legal(self, step: Step, player: int) -> NDArray[np.bool_] | None:
        rows, spec = step.due[player], self.episode.spec
        if rows.mask is not None:
            return rows.mask
        if spec.enumeration is not None:
            return spec.enumeration.mask[rows.observation]
        choices = Choices.of(spec.agents_of(player)[0].action)
        return None if choices is None else np.ones((len(rows), choices.width), np.bool_)

    def decisions(self, number: int, player: int | None = None) -> list[Decision]:
        """Return all decisions of a step, or those of one player."""
        step = self.episode.steps[number]
        players = range(len(step.due)) if player is None else [player]
        return [
            decision
            for p in players
            if len(step.due[p])
            for decision in self._decisions(step, p, self.answers(number, p))
        ]

    def _decisions(self, step: Step, player: int, answers: Answers) -> Iterator[Decision]:
        rows, spec = step.due[player], self.episode.spec
        agents, observations = spec.agents_of(player), self.tensors(rows)
        legal = self._legal(step, player)
        discrete = isinstance(agents[0].action, Discrete)
        values, q = answers.value, answers.action_values
        for row in range(len(rows)):
            agent = int(rows.agent[row])
            allowed = tuple(np.flatnonzero(legal[row]).tolist()) if discrete and legal is not None else None
            yield Decision(
                player=player,
                agent=agent,
                name=agents[agent].name,
                several=len(agents) > 1,
                policy=self.episode.policy[player],
                mode=self.episode.mode[player],
                observation=observations[row],
                columns=self.columns(player),
                information=self.information(step.number, player, row),
                legal=allowed,
                names=self.action_names(step.number, player, row, allowed or ()),
                action=np.asarray(rows.action[row]),
                logp=float(rows.logp[row]),
                probs=None if answers.probs is None else answers.probs[row],
                explored=None if answers.explored is None else answers.explored[row],
                value=np.nan if values is None else float(values[row]),
                action_values=None if q is None else q[row],
                reward=float(rows.reward[row]),
            )

    def tensors(self, rows: Decisions) -> Array:
        """Return their observations, [n, *shape]."""
        enumeration = self.episode.spec.enumeration
        return rows.observation if enumeration is None else enumeration.observation[rows.observation]

    # ------------------------------------------------------------------------------------------ files

    def save(self, path: Path, *, fps: int = 15) -> None:
        """Go on to the end of the episode and write all of it, in the place of a file of that name: what it shows, as
        `ludus.apps.episodes.recording.save` does, or, with a name that ends in .jsonl, every step as a line of JSON. Raises what that and
        `picture` raise; OSError if the file cannot be written."""
        lines = path.suffix.lower() == LINES
        if not lines and path.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"{str(path)!r} was given; a name that ends in {join_or((*SUFFIXES, LINES))} is needed.")
        if not lines:
            check_target(path, fps=fps)
        elif not path.parent.is_dir() or path.is_dir():
            raise ConfigError(f"{str(path)!r} was given; a file in a folder that there is is needed.")
        while not self.over:
            self.reach(len(self.episode.steps))
        if lines:
            replace_file(path, "".join(f"{json.dumps(line)}\n" for line in _lines(self)).encode())
            return
        film = Film()
        for number in range(len(self.episode.steps) + 1):
            if not film.full:
                film.take(self.picture(number), f"step {number}")
        save_film(film.frames, "\n".join(film.texts), path, fps=fps)


# --------------------------------------------------------------------------------------------------------------------
# Episodes as lines of JSON: the first one says who plays what, then comes one for each step, and one for the end.

_FORMAT = "ludus-episode-1"
_LONG = 1024  # numbers from which an array is written compressed


def _lines(debugger: EpisodeDebugger) -> Iterator[dict[str, Any]]:
    episode, spec = debugger.episode, debugger.episode.spec
    players = [
        {"policy": policy, "mode": mode, "columns": debugger.columns(p)}
        for p, (policy, mode) in enumerate(zip(episode.policy, episode.mode, strict=True))
    ]
    agents = []
    for agent in spec.agents:
        spaces = {"observation": space_to_json(agent.observation), "action": space_to_json(agent.action)}
        agents.append({"name": agent.name, "player": agent.player, **spaces})
    yield {
        "format": _FORMAT,
        "environment": spec.id,
        "seed": episode.seed,
        "episode": episode.number,
        "players": players,
        "agents": agents,
        "statistics": spec.statistics,
    }
    texts = _texts(debugger)
    for step in episode.steps:
        yield {
            "step": step.number,
            "paid": step.paid.tolist(),
            "returns": step.returns.tolist(),
            "closed": step.closed,
            "over": step.over,
            "state": None if step.state is None else _to_json(step.state),
            "statistics": None if step.statistics is None else _to_json(step.statistics),
            "text": texts[step.number],
            "decisions": [_decision_to_json(one) for one in debugger.decisions(step.number)],
        }
    yield {"end": debugger.cut, "text": texts[-1]}


def _texts(debugger: EpisodeDebugger) -> list[str | None]:
    """Return what the environment shows before each step, and in the end, where that is text."""
    positions = range(len(debugger.episode.steps) + 1)
    try:
        first = debugger.picture(0)
    except EnvError:
        return [None for _ in positions]
    return [str(debugger.picture(k)) if isinstance(first, str) else None for k in positions]


def _decision_to_json(d: Decision) -> dict[str, Any]:
    return {
        "player": d.player,
        "agent": d.agent,
        "observation": _to_json(d.observation),
        "information": d.information,
        "legal": d.legal,
        "names": {str(action): name for action, name in d.names.items()},
        "action": _to_json(d.action),
        "logp": _or_null(d.logp),
        "probs": None if d.probs is None else _to_json(d.probs),
        "explored": None if d.explored is None else _to_json(d.explored),
        "value": _or_null(d.value),
        "action_values": None if d.action_values is None else _to_json(d.action_values),
        "reward": _or_null(d.reward),
    }


def _or_null(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _to_json(array: Array) -> dict[str, Any]:
    kind: dict[str, Any] = {"dtype": array.dtype.str, "shape": list(array.shape)}
    if array.size >= _LONG:
        packed = zlib.compress(np.ascontiguousarray(array).data, 6)
        return {**kind, "zlib": base64.b64encode(packed).decode()}
    numbers = array.reshape(-1).tolist()
    return {**kind, "values": [_or_null(x) for x in numbers] if array.dtype.kind == "f" else numbers}


def _of_json(packed: Mapping[str, Any]) -> Array:
    dtype, shape = np.dtype(packed["dtype"]), tuple(packed["shape"])
    if "zlib" in packed:
        size = dtype.itemsize * math.prod(shape)  # no more is unpacked, whatever is packed
        content = zlib.decompressobj().decompress(base64.b64decode(packed["zlib"]), size + 1)
        return np.frombuffer(content, dtype).reshape(shape)
    numbers = [np.nan if x is None else x for x in packed["values"]]
    with np.errstate(over="raise"):  # a number that the type does not have
        return np.array(numbers, dtype).reshape(shape)


class RecordedEpisode(EpisodeDebugger):
    """An episode that `EpisodeDebugger.save` wrote as lines of JSON. It has the text that the environment showed itself as, no images."""

    def __init__(self, path: Path) -> None:
        """Raise ConfigError for a file that is none of these, or cannot be read."""
        super().__init__()
        try:
            lines = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
            head, *steps, end = lines
            if head["format"] != _FORMAT or "end" not in end:
                raise ValueError(f"it is not of the format {_FORMAT}, or was cut")
            self.episode = _episode(head)
            self._columns = [tuple(player["columns"]) for player in head["players"]]
            self._lines = [_by_player(line, self.episode.spec.num_players) for line in steps]
            self.episode.steps.extend(
                _step(line, by_player) for line, by_player in zip(steps, self._lines, strict=True)
            )
            self._texts: list[str | None] = [*(line["text"] for line in steps), end["text"]]
            self.cut = str(end["end"])
        except (
            OSError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            zlib.error,
            DataError,
        ) as error:
            raise ConfigError(
                f"{str(path)!r} cannot be read as an episode that `save` wrote as .jsonl: {type(error).__name__}: {error}."
            ) from error
        if not self.episode.steps:
            raise ConfigError(f"{str(path)!r} has no step.")

    @property
    def over(self) -> bool:
        """Return true."""
        return True

    def reach(self, number: int) -> bool:
        """See `EpisodeDebugger.reach`."""
        return number < len(self.episode.steps)

    def restart(self, seed: int | None = None) -> None:
        """See `EpisodeDebugger.restart`. Raises ConfigError for another seed: there is one episode."""
        if seed is not None and seed != self.episode.seed:
            raise ConfigError(f"seed {seed} was asked for; the file has one episode, of seed {self.episode.seed}.")
        self.position = 0

    def answers(self, number: int, player: int) -> Answers:
        """See `EpisodeDebugger.answers`."""
        decisions = self._lines[number][player]
        value = np.array([np.nan if one["value"] is None else one["value"] for one in decisions], np.float32)
        probs, explored, q = (_stacked(decisions, name) for name in ("probs", "explored", "action_values"))
        return Answers(probs, explored, value, q)

    def columns(self, player: int) -> tuple[str, ...]:
        """See `EpisodeDebugger.columns`."""
        return self._columns[player]

    def information(self, number: int, player: int, row: int) -> str:
        """See `EpisodeDebugger.information`."""
        return str(self._lines[number][player][row]["information"])

    def action_names(self, number: int, player: int, row: int, legal: Sequence[int]) -> Mapping[int, str]:
        """See `EpisodeDebugger.action_names`."""
        names = {int(action): str(name) for action, name in self._lines[number][player][row]["names"].items()}
        return {action: names[action] for action in legal if action in names}

    def picture(self, number: int) -> str:
        """See `EpisodeDebugger.picture`."""
        text = self._texts[number]
        if text is None:
            raise EnvError(
                "the file has no pictures. `ludus debug RUN` plays the episode again, with the seed and the number that `where` tells, "
                "and draws them."
            )
        return text

    def state(self, number: int) -> Any | None:
        """See `EpisodeDebugger.state`: made again from the seed and the moves, and checked against what the file shows."""
        return None if self._states is None else self._states[number]

    @cached_property
    def _states(self) -> list[Any] | None:
        """Return None of another game, and where moves do not lead to what was written (through wrappers, say)."""
        if not self.episode.spec.id.startswith(_OPENSPIEL):
            return None
        from ludus.envs.openspiel.games import silenced

        try:
            with silenced():
                states = _states_again(self.episode)
        except (LudusError, ValueError, TypeError, RuntimeError, LookupError):  # pyspiel's own errors are RuntimeErrors
            return None
        return states if [str(state) for state in states] == self._texts else None

    def close(self) -> None:
        """Nothing is held."""


def _states_again(episode: Episode) -> list[Any]:
    """Return the states of an OpenSpiel game before each step, and behind the last one. Raises whatever moves that do not fit raise."""
    key = episode_key(episode.seed, episode.number)
    walk = OpenSpielWalk(episode.spec.id, int(whole(1).keys(key, "environment")[0]))
    for step in episode.steps:
        walk.step([rows.action for rows in step.due], checked=True)
    return walk.states


def _episode(head: Mapping[str, Any]) -> Episode:
    agents = tuple(
        AgentSpec(a["name"], int(a["player"]), space_from_json(a["observation"]), space_from_json(a["action"]))
        for a in head["agents"]
    )
    players = head["players"]
    spec = EnvSpec(
        id=str(head["environment"]),
        agents=agents,
        utility_range=((-np.inf, np.inf),) * len(players),
        symmetry=tuple((p,) for p in range(len(players))),
        statistics=tuple(map(str, head["statistics"])),
    )
    policies, modes = (tuple(str(player[key]) for player in players) for key in ("policy", "mode"))
    return Episode(spec, int(head["seed"]), int(head["episode"]), policies, modes)


def _by_player(line: Mapping[str, Any], players: int) -> list[list[dict[str, Any]]]:
    return [[one for one in line["decisions"] if one["player"] == p] for p in range(players)]


def _step(line: Mapping[str, Any], by_player: Sequence[Sequence[Mapping[str, Any]]]) -> Step:
    return Step(
        number=int(line["step"]),
        due=tuple(_rows(decisions) for decisions in by_player),
        paid=np.array(line["paid"], np.float64),
        returns=np.array(line["returns"], np.float64),
        closed=tuple((int(p), int(agent), bool(how)) for p, agent, how in line["closed"]),
        over=str(line["over"]),
        state=None if line["state"] is None else _of_json(line["state"]),
        statistics=None if line["statistics"] is None else _of_json(line["statistics"]),
    )


def _rows(decisions: Sequence[Mapping[str, Any]]) -> Decisions:
    def column(name: str) -> NDArray[np.float32]:
        return np.array([np.nan if one[name] is None else one[name] for one in decisions], np.float32)

    observations, actions = (
        [_of_json(one["observation"]) for one in decisions],
        [_of_json(one["action"]) for one in decisions],
    )
    return Decisions(
        agent=np.array([one["agent"] for one in decisions], np.int32),
        mask=_masks([one["legal"] for one in decisions]),
        action=np.stack(actions) if actions else np.empty(0, np.int32),
        logp=column("logp"),
        memory=None,
        reward=column("reward"),
        stored=StoredArray(np.stack(observations) if observations else np.empty(0, np.float32)),
    )


def _masks(legal: Sequence[Sequence[int] | None]) -> NDArray[np.bool_] | None:
    """Return None where actions are vectors."""
    known = [actions for actions in legal if actions is not None]
    if not known:
        return None
    mask = np.zeros((len(known), 1 + max(max(actions) for actions in known)), np.bool_)
    for row, actions in enumerate(known):
        mask[row, list(actions)] = True
    return mask


def _stacked(decisions: Sequence[Mapping[str, Any]], name: str) -> Any:
    arrays = [_of_json(one[name]) for one in decisions if one[name] is not None]
    return np.stack(arrays) if arrays else None
