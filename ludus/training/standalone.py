"""A learner in a program of one's own: no run, no scenario, no store. Rows in, numbers out, a policy file at the end.

learner = ludus.learner("ppo", env="gymnasium/CartPole-v1", batch=2048)
for _ in range(50):
    metrics = learner.update(learner.collect())      # or rows of one's own: arrays, a file of `ludus record`
learner.save("pole.safetensors")                     # `ludus evaluate RUN --policies pole.safetensors`, ludus.load_policy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.algorithms.common.base import Algorithm, Learner, LearnerContext
from ludus.algorithms.common.defaults import complete_algorithm
from ludus.algorithms.common.registry import ALGORITHMS, check_fits
from ludus.backend.device import parse_device, placement_for_table
from ludus.core import seeding
from ludus.core.errors import ConfigError, DataError, ScenarioError, TrainingError, nearest
from ludus.core.parts import build_part, registered_name, require
from ludus.core.process_settings import standard_settings
from ludus.core.types import (
    AgentSpec,
    Array,
    DeviceChoice,
    EnvSpec,
    Metrics,
    Mixture,
    PolicyRef,
    PolicySpec,
    SegmentEnd,
    State,
    Weights,
)
from ludus.envs.config import Environment
from ludus.envs.families import closed_on_error
from ludus.envs.spaces import Choices
from ludus.policies.base import Policy, Teams, team_size_of
from ludus.policies.file import load_policy, save_policy
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.parquet import check_spaces
from ludus.replay.prefetcher import ToDevice
from ludus.replay.trajectories import Trajectories, join, select
from ludus.rollout.host import LocalRollouts
from ludus.training.trainer import Trainer, TrainerSpec

_TASK: Final = "by-hand"
_ENVS = 16  # that `collect` plays at once, where nobody says how many
_MINE = PolicyRef(0, "mine")
_NONE = -1
_GIVEN: Final = 1 << 40  # episodes of arrays are numbered from here: what is played in one session does not come so far


class StandaloneLearner:
    """Learner of one policy, for a training loop of your own. Created by `learner`.

    Attributes:
        env: Spec of the environment.
        players: Whom the policy plays.
        algorithm: What trains it, its options completed for the environment.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        environment: Environment,
        *,
        players: tuple[int, ...],
        start: Weights | None,
        seed: int,
        total: int | None,
        device: DeviceChoice,
    ) -> None:
        env = environment.make()
        self._rollouts = LocalRollouts.around(env)
        with closed_on_error(env):
            self.env: EnvSpec = env.spec
            self.players = players or tuple(range(self.env.num_players))
            algorithm = complete_algorithm(algorithm, self.env, self.players)
            check_fits(algorithm, self.env, self.players)
            context = LearnerContext(self.env, self.players, seed, total=total, device=device)
            self._trainer = Trainer(TrainerSpec(_TASK, algorithm, context, start), EpisodeServer(seed))
        self.algorithm, self._seed = algorithm, seed
        self._version = 0  # of the weights: a new one after each call that learns
        self._trainer.announce(version=self._version)
        self._collected = self._episode = self._acted = 0
        self._given = _GIVEN  # number of the next episode of arrays
        self._open = _NONE  # and of the one that the arrays given last left open
        self._goes_on = False  # whether the next `collect` may go on with the episodes that the last one left open
        self._others: Mapping[int, Policy] = {}  # who played the other players then
        self._others_version = self._loads = 0  # so that no ref names two policies: banks keep what they know by it
        self._policy: Policy | None = None

    def __repr__(self) -> str:
        return f"<StandaloneLearner {registered_name(self.algorithm, ALGORITHMS)} in {self.env.id}>"

    # ------------------------------------------------------------------------------------------ learning

    @standard_settings()
    def update(self, batch: Batch) -> Metrics:
        """Do one update from exactly these rows, and return its metrics. Nothing is replayed.

        Args:
            batch: `Trajectories`; the name of a file that `ludus record --trajectories` wrote; or a mapping of arrays, as
                `rows_from_columns` takes it.

        Returns:
            The learner's metrics by name.

        Raises:
            DataError: For rows that do not fit.
            TrainingError: Where a loss is not finite: then the weights stay as they were.
        """
        metrics: Metrics = {}
        for table, items in self._learner.items(self._counted(batch)):
            rows = len(next(iter(items.values())))
            sample = Sample(items, np.arange(rows), np.ones(rows))
            place = placement_for_table(self._learner, table)
            if place is not None and place.device != "cpu":
                sample = ToDevice(place.torch)(sample)
            metrics = {**metrics, **self._learner.update(sample)}
        self._learned()
        return metrics

    @standard_settings()
    def learn(self, batch: Batch) -> Metrics:
        """Insert the rows into the learner's tables and do every update that is due, as in a run.

        Args:
            batch: As of `update`.

        Returns:
            Metrics of the last update; empty if none was due.

        Raises:
            LudusError: As `update`.
        """
        learned = self._trainer.learn([self._counted(batch)], version=self._version)
        self._learned()
        if learned.failure is not None:
            raise TrainingError(learned.failure)
        return learned.metrics

    def rows(self, batch: Batch) -> Trajectories:
        """Return a batch as trajectories; of a file the decisions of `players`. Episodes of arrays are numbered on from those of earlier
        updates, apart from what is played; the last one continues if it was left open."""
        if isinstance(batch, Trajectories):
            check_rows(batch, self.env, self.players)
            return batch
        if isinstance(batch, str | PathLike):
            return self._rows_of_file(Path(batch))
        about = getattr(self.algorithm, "about", None)
        needs_logp = about is not None and about.data == "on-policy"
        rows = rows_from_columns(batch, self.env, player=self.players[0], players=self.players, needs_logp=needs_logp)
        goes_on = self._open != _NONE
        episode = rows.episode + self._given - goes_on
        episode[0] = self._open if goes_on else episode[0]
        return replace(rows, episode=episode)

    def _counted(self, batch: Batch) -> Trajectories:
        """Return its rows, which are learned from now."""
        rows = self.rows(batch)
        if isinstance(batch, Mapping):
            last = int(rows.episode[-1])
            self._given = max(self._given, last + 1)
            self._open = last if rows.tail[-1] == SegmentEnd.CUT else _NONE
        return rows

    def _rows_of_file(self, path: Path) -> Trajectories:
        from ludus.replay.parquet import read_trajectories  # pyarrow is an extra

        recorded = read_trajectories(path)
        origin, players = recorded.origin, list(self.players)
        if origin.env != self.env.id:
            raise DataError(
                f"the file {path} has decisions of {origin.env!r}, and this learner plays {self.env.id!r}; give it a file of that, or make "
                f"one with env={origin.env!r}."
            )
        own_rows = [(piece, np.isin(piece.seat, players)) for piece in recorded.trajectories]
        pieces = [piece if own.all() else select(piece, np.flatnonzero(own)) for piece, own in own_rows if own.any()]
        if not pieces:
            raise DataError(
                f"the file {path} has decisions of the players {list(origin.seats)}, and this learner plays {players}; record "
                "those (`ludus record --trajectories FILE --players …`), or name the file's as the learner's players."
            )
        seats = np.unique(np.concatenate([piece.seat for piece in pieces])).tolist()
        agent = self.env.agents_of(seats[0])[0]
        check_spaces(pieces, origin, self.env, agent.observation, agent.action)
        rows = join(pieces)
        check_rows(rows, self.env, seats, legal=True)
        return rows

    # ------------------------------------------------------------------------------------------ acting

    @standard_settings()
    def collect(self, amount: int | None = None, *, others: Mapping[int, Policy] | None = None) -> Trajectories:
        """Play in the environment with the newest weights, and return the learner's decisions.

        Of decisions, episodes that are still open continue in the next call, as in a run: the newest weights play on. New ones begin where
        `others` are not the same objects as in the last call, and after `state_dict` or `load_state_dict`.

        Args:
            amount: Of what the algorithm collects, episodes or decisions; None: as much as in a run.
            others: Policies of the other players; by default the learner itself plays them, and learns from all that it plays if it plays
                several.

        Returns:
            Trajectories, as `update` and `learn` take them.

        Raises:
            ScenarioError: For players without a policy, and for players that do not exist.
        """
        others = dict(others or {})
        if strange := sorted(set(others) - set(range(self.env.num_players))):
            raise ScenarioError(f"others play {strange}; the game has the players 0 to {self.env.num_players - 1}.")
        same = others.keys() == self._others.keys() and all(self._others[p] is policy for p, policy in others.items())
        others_version = self._others_version + (not same)
        refs = {
            p: PolicyRef(1 + p, "other", others_version) if p in others else _MINE for p in range(self.env.num_players)
        }
        lacking = [p for p, ref in refs.items() if ref == _MINE and p not in self.players]
        if lacking:
            raise ScenarioError(f"nobody plays the players {lacking}: give others={{{lacking[0]}: policy, …}}.")
        collect = self.algorithm.collect()
        seats = tuple(p for p in self.players if p not in others)
        if not seats:
            raise ScenarioError(
                f"others play {sorted(others)}, and nobody is left for the learner, which plays {self.players}."
            )
        learner_ref = _MINE._replace(population=self._loads, version=self._version)
        factors = {p: ([learner_ref if ref == _MINE else ref], [1.0]) for p, ref in refs.items()}
        request = replace(collect, amount=collect.amount if amount is None else amount).request(
            learner_ref,
            Mixture.product(factors),
            seats=seats,
            seed=seeding.key(self._seed, "by hand", self._collected),
            modes_seed=self._seed,
            first_episode=self._episode,
            together=len(seats) > 1,
            carry_on=self._goes_on and same and collect.unit == "decisions",
        )
        self._collected += 1
        self._others, self._others_version = others, others_version
        self._goes_on = False  # if this raises
        policies = [(learner_ref, self.policy), *((refs[p], policy) for p, policy in others.items())]
        modes = [(learner_ref._replace(mode=mode), self.policy) for mode, _ in collect.modes]
        rollout = self._rollouts.run(request, [*policies, *modes])
        self._goes_on = True
        self._episode = max(self._episode, rollout.next_episode)  # a carried one may have been left behind
        if rollout.trajectories is None:
            raise ScenarioError(f"the learner had nothing to decide in {request.amount} {request.unit}; collect more.")
        return rollout.trajectories

    @standard_settings()
    def act(self, observation: Array, mask: NDArray[np.bool_] | None = None) -> tuple[Array, NDArray[np.float32]]:
        """Return actions of the newest policy, which explores.

        Args:
            observation: [n, …]; those of whole teams, agent after agent, where it plays a team together.
            mask: bool[n, A] legal actions; None: all.

        Returns:
            (actions [n, …], their log-probabilities float32[n]).

        Raises:
            ConfigError: For a policy with memory: `collect` plays those.
        """
        policy = self.policy
        if policy.memory_shape is not None:
            raise ConfigError("act decides row by row, and this policy remembers; use collect.")
        rng = seeding.generator(self._seed, "by hand", "act", self._acted)
        self._acted += 1
        rows = np.asarray(observation)
        rows = rows.astype(np.float32) if rows.dtype == np.float64 else rows
        team = team_size_of(policy)
        whole: dict[str, Any] = {"teams": Teams.whole(len(rows), team)} if team else {}
        done = policy.act(rows, mask, None, rng.random((len(rows), policy.noise_width), dtype=np.float32), **whole)
        return done.action, done.logp

    # ------------------------------------------------------------------------------------------ what comes of it

    @property
    def policy(self) -> Policy:
        """Policy with the newest weights."""
        if self._policy is None:
            self._policy = build_policy(self.spec, self.weights())
        return self._policy

    @property
    def spec(self) -> PolicySpec:
        """Description of the policy."""
        return self._learner.spec

    def weights(self) -> Weights:
        """Return copies of the weights by name."""
        return self._learner.weights()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy as a file, which every command and `ludus.load_policy` read. Raises PolicyError for non-finite weights."""
        save_policy(path, self.spec, self.weights())

    def state_dict(self) -> State:
        """Return all that the next update and the next `collect` depend on. Episodes that `collect` left open are not included: its next
        call begins new ones, of this learner too, so that both continue equally."""
        self._goes_on = False
        counts = [self._version, self._collected, self._episode, self._given, self._acted, self._open]
        return {**self._trainer.state_dict(), "counts": counts}

    def load_state_dict(self, state: State) -> None:
        """Load a state into a learner that was created with the same arguments: what follows is bitwise equal."""
        self._trainer.load_state_dict(state)
        self._version, self._collected, self._episode, self._given, self._acted, self._open = map(int, state["counts"])
        self._trainer.announce(version=self._version)
        self._policy, self._goes_on = None, False
        self._loads += 1

    def close(self) -> None:
        """Close the environment and free the tables."""
        self._trainer.close()
        self._rollouts.close()

    def _learned(self) -> None:
        self._version += 1
        self._trainer.announce(version=self._version)
        self._policy = None

    @property
    def _learner(self) -> Learner:
        return self._trainer.learner


@standard_settings()
def learner(
    algorithm: Any,
    env: Any,
    *,
    players: Sequence[int] = (),
    start: Policy | str | PathLike[str] | None = None,
    seed: int = 0,
    total: int | None = None,
    device: str = "auto",
    **options: Any,
) -> StandaloneLearner:
    """Return a learner for a training loop of your own.

    Args:
        algorithm: A name, `module:Class`, a class, or an object.
        env: An id, an `Environment`, or what makes one.
        players: Whom the policy plays; default: all, who must be alike.
        start: Policy to start from, or its file.
        seed: Of all random streams.
        total: Length that schedules follow, in the unit that the algorithm collects.
        device: auto, cpu, cuda or cuda:N.
        options: Of the algorithm, unless it is an object; those left out follow from the environment (`ludus.algorithms.common.defaults`).

    Returns:
        The learner.

    Raises:
        ConfigError: For options that do not fit.
        ScenarioError: For an environment that does not fit.
        PolicyError: For a start of another kind.
    """
    if isinstance(algorithm, str | type) or not options:
        kind = f"{algorithm.__module__}:{algorithm.__qualname__}" if isinstance(algorithm, type) else algorithm
        part = build_part(
            "algorithm", {"kind": kind, **options} if isinstance(kind, str) else kind, ALGORITHMS, (Algorithm,)
        )
    else:
        raise ConfigError(
            f"an object was given as algorithm, and the options {sorted(options)} beside it; put them into the object."
        )
    require(part, "algorithm", (Algorithm,), ALGORITHMS)
    source = Environment.of(env)
    environment = source if isinstance(source, Environment) else Environment(**{"num_envs": _ENVS, **source})
    weights = None
    if start is not None:
        policy = load_policy(start) if isinstance(start, str | PathLike) else start
        weights = policy.weights()
    return StandaloneLearner(
        part,
        environment,
        players=tuple(players),
        start=weights,
        seed=seed,
        total=total,
        device=DeviceChoice(parse_device(device)),
    )


# --------------------------------------------------------------------------------------------------------------------
# Rows of one's own.

Batch = Trajectories | str | PathLike[str] | Mapping[str, Any]

_NEEDED = ("observation", "action", "reward", "terminated")
_KNOWN = (*_NEEDED, "truncated", "next_observation", "logp", "mask", "next_mask")


def rows_from_columns(
    columns: Mapping[str, Any],
    env: EnvSpec,
    *,
    player: int = 0,
    players: Sequence[int] = (),
    needs_logp: bool = False,
) -> Trajectories:
    """Return N decisions of one agent of `player`, in order of time, as trajectories.

    An episode ends where terminated or truncated says so; the last row's episode continues. Rows in no order are one-step episodes:
    truncated where not terminated, with a next_observation each.

    Args:
        columns: observation [N, …], action [N, …], reward float[N] and terminated bool[N] are required; truncated bool[N], next_observation
            [N, …], logp float[N] of the policy that acted, mask and next_mask bool[N, A] are optional (next_mask is required next to a
            mask, where something is bootstrapped). Actions are as policies return them, numbers counted from 0.
        env: The environment.
        player: Whose decisions they are.
        players: Whose information states these may be, in a compiled game; default: the player's.
        needs_logp: Whether logp is required.

    Raises:
        DataError: For columns that are missing, unknown or of other shapes, and for actions and information states that do not exist, or
            that are not legal there.
    """
    unknown = [name for name in columns if name not in _KNOWN]
    missing = [name for name in (*_NEEDED, *(("logp",) if needs_logp else ())) if columns.get(name) is None]
    if unknown:
        raise DataError(f"a column {unknown[0]!r} was given{nearest(unknown[0], _KNOWN)} Known: {', '.join(_KNOWN)}.")
    if missing:
        more = "; `act` answers the log-probabilities of what it chose" if missing == ["logp"] else ""
        raise DataError(f"the columns {', '.join(missing)} are missing{more}. Given: {', '.join(columns)}.")
    arrays = {name: _array(name, column) for name, column in columns.items() if column is not None}
    agent = env.agents_of(player)[0]
    _check_shapes(arrays, env, agent)
    _check_values(arrays, env, agent, players=players or (player,))
    return _segments(arrays, env, player)


def _array(name: str, column: Any) -> Array:
    try:
        array = np.asarray(column)
    except ValueError:
        raise DataError(f"column {name!r} has rows of several shapes; give one array.") from None
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"column {name!r} holds {array.dtype}; expected numbers or truth values. Leave out columns that you lack."
        )
    return array


def _check_shapes(arrays: Mapping[str, Array], env: EnvSpec, agent: AgentSpec) -> None:
    shape = () if env.enumeration is not None else tuple(agent.observation.shape or ())
    rows = len(arrays["reward"]) if arrays["reward"].ndim else 0
    wanted = {"observation": shape, "next_observation": shape, "action": tuple(agent.action.shape or ())}
    choices = Choices.of(agent.action)
    if choices is not None:
        wanted |= {"mask": (choices.width,), "next_mask": (choices.width,)}
    for name, column in arrays.items():
        if name.endswith("mask") and choices is None:
            raise DataError(
                f"column {name!r} was given; actions of {env.id} are {agent.action}, all legal. Leave it out."
            )
        if column.shape != (rows, *wanted.get(name, ())) or not rows:
            raise DataError(
                f"column {name!r} has shape {list(column.shape)}; expected {[rows or 'n', *wanted.get(name, ())]}: one entry for each row, "
                f"as {env.id} shows it to {agent.name}."
            )


def _check_values(arrays: Mapping[str, Array], env: EnvSpec, agent: AgentSpec, *, players: Sequence[int]) -> None:
    """Columns of the right shapes."""
    goes_on = (
        np.zeros(len(arrays["reward"]), np.bool_) if "truncated" not in arrays else arrays["truncated"].astype(np.bool_)
    )
    goes_on[-1] = True
    goes_on &= ~arrays["terminated"].astype(np.bool_)  # where what follows the row is bootstrapped
    ids = None
    if env.enumeration is not None:
        ids = arrays["observation"]
        _check_ids("column 'observation'", ids, env, players)
        if "next_observation" in arrays:
            _check_ids("column 'next_observation'", arrays["next_observation"], env, players, none=~goes_on)
    mask = arrays["mask"].astype(np.bool_) if "mask" in arrays else None
    _check_actions("column 'action'", arrays["action"], env, agent.action, mask=mask, ids=ids)
    choices = Choices.of(agent.action)
    if choices is not None and "next_mask" in arrays:
        possible = choices.possible(arrays["next_mask"].astype(np.bool_)) | ~goes_on
        wanted = "a legal action wherever an episode goes on after the row, or ends otherwise than by terminated"
        _refuse("column 'next_mask'", arrays["next_mask"], possible, wanted=f"{wanted}. Give what is legal there.")


def check_rows(rows: Trajectories, env: EnvSpec, players: Sequence[int], *, legal: bool = False) -> None:
    """Raise DataError for trajectories that policies of `players` cannot have produced, by shapes, actions and information states. legal:
    also for illegal actions. Players that are not alike are not checked."""
    agents = [agent for player in players for agent in env.agents_of(player)]
    agent = agents[0]
    if len({(other.observation.shape, str(other.action)) for other in agents}) > 1:
        return
    shape = () if env.enumeration is not None else agent.observation.shape
    choices = Choices.of(agent.action)
    masks = None if choices is None else (choices.width,)
    for name, column, wanted in (
        ("observations", rows.observation, shape),
        ("final observations", rows.bootstrap_observation, shape),
        ("actions", rows.action, agent.action.shape),
        ("masks", rows.mask, masks),
        ("final masks", rows.bootstrap_mask, masks),
    ):
        if column is not None and wanted is not None and column.shape[1:] != wanted:
            raise DataError(
                f"the batch's {name} have the shape {column.shape[1:]}; expected {wanted}, as in {env.id}. Give rows of that."
            )
    ids = None
    if env.enumeration is not None:
        ids, end = rows.observation, rows.bootstrap_observation
        _check_ids("the batch's observations", ids, env, players)
        _check_ids("the batch's final observations", end, env, players, none=np.ones(len(end), np.bool_))
    mask = rows.mask if legal else None
    _check_actions("the batch's actions", rows.action, env, agent.action, mask=mask, ids=ids if legal else None)


def _check_ids(
    what: str, ids: Array, env: EnvSpec, players: Sequence[int], *, none: NDArray[np.bool_] | None = None
) -> None:
    """ids [n] of information states. none: bool[n], where -1 says that there is none."""
    assert env.enumeration is not None
    ranges = [env.enumeration.ids(player) for player in players]
    is_known = np.zeros(len(ids), np.bool_) if none is None else none & (ids == -1)
    for part in ranges:
        is_known |= (ids >= part.start) & (ids < part.stop)
    states = " and ".join(f"{part.start} to {part.stop - 1}" for part in ranges)
    wanted = f"information states of {env.id} that the players {list(players)} decide in: {states}"
    less = "" if none is None else "; -1 where there is none"
    _refuse(what, ids, is_known & _whole(ids), wanted=f"{wanted}{less}. Give the numbers that it shows them.")


def _check_actions(
    what: str,
    action: Array,
    env: EnvSpec,
    space: Space[Any],
    *,
    mask: NDArray[np.bool_] | None = None,
    ids: Array | None = None,
) -> None:
    """action [n, …]. mask: bool[n, A], what was legal. ids: [n], the information states that say it, which there are."""
    choices, flat = Choices.of(space), action.reshape(len(action), -1)
    if choices is None:
        finite = np.all(np.abs(flat) <= np.finfo(np.float32).max, axis=1)
        _refuse(what, action, finite, wanted="finite numbers. Leave out rows without.")
        return
    inside = np.all((flat >= 0) & (flat < choices.counts) & _whole(flat), axis=1)
    counts = choices.counts.tolist()
    if len(set(counts)) == 1:
        most = f"whole numbers from 0 to {counts[0] - 1}"
    else:
        most = f"whole numbers from 0, below {counts}"
    _refuse(what, action, inside, wanted=f"{most}, as `act` answers them for {env.id}. Count them from 0.")
    legal = np.ones(len(action), np.bool_)
    if mask is not None:
        legal &= choices.legal(mask, flat).all(axis=1)
    if env.enumeration is not None and ids is not None:
        legal &= choices.legal(env.enumeration.mask, flat, ids.astype(np.int64)).all(axis=1)
    says = "the row's mask" if mask is not None else env.id
    _refuse(what, action, legal, wanted=f"actions that are legal, as {says} has it. Give those that were played.")


def _whole(array: Array) -> NDArray[np.bool_]:
    return np.asarray(array == np.floor(array)) if array.dtype.kind == "f" else np.ones(array.shape, np.bool_)


def _refuse(what: str, column: Array, right: NDArray[np.bool_], *, wanted: str) -> None:
    """Raise DataError unless all rows bool[n] are right."""
    wrong = np.flatnonzero(~right)
    if len(wrong):
        first = column[wrong[0]].tolist()
        raise DataError(f"{what}, {len(wrong)} of {len(right)} rows: row {wrong[0]} has {first}; expected {wanted}")


def _segments(arrays: Mapping[str, Array], env: EnvSpec, player: int) -> Trajectories:
    rows, terminated = len(arrays["reward"]), arrays["terminated"].astype(np.bool_)
    truncated = arrays.get("truncated", np.zeros(rows, np.bool_)).astype(np.bool_)
    ends = terminated | truncated
    last = np.flatnonzero(np.append(ends[:-1], True))
    tail = np.where(
        terminated[last], SegmentEnd.TERMINATED, np.where(truncated[last], SegmentEnd.TRUNCATED, SegmentEnd.CUT)
    ).astype(np.int8)
    ids = None if env.enumeration is None else np.dtype(np.int32)
    observation = _plain(arrays["observation"], whole=ids)
    if "next_observation" in arrays:
        after = _plain(arrays["next_observation"], whole=ids)[last]
    elif (tail == SegmentEnd.TERMINATED).all():
        after = np.full_like(observation[last], -1 if env.enumeration is not None else 0)
    else:
        raise DataError(
            "next_observation is missing, and some rows end without having terminated: what follows them is bootstrapped. Give it."
        )
    mask, bootstrap_mask = arrays.get("mask"), None
    if mask is not None:
        mask = mask.astype(np.bool_)
        if "next_mask" not in arrays and env.enumeration is None and not (tail == SegmentEnd.TERMINATED).all():
            raise DataError(
                "next_mask is missing, and some rows end without having terminated: what follows them is bootstrapped, over the actions "
                "that are legal there. Give it, as you gave mask."
            )
        bootstrap_mask = (
            arrays["next_mask"].astype(np.bool_)[last] if "next_mask" in arrays else np.ones_like(mask[last])
        )
    start = np.concatenate([[0], last + 1])
    segments, space = len(last), env.agents_of(player)[0].action
    real = isinstance(space, Box) and space.dtype.kind == "f"
    return Trajectories(
        start=start,
        observation=observation,
        action=_plain(arrays["action"], whole=np.dtype(np.float32 if real else np.int32)),
        logp=arrays.get("logp", np.zeros(rows)).astype(np.float32),
        reward=arrays["reward"].astype(np.float32),
        mask=mask,
        t=(np.arange(rows) - np.repeat(start[:-1], np.diff(start))).astype(np.int32),
        tail=tail,
        bootstrap_observation=after,
        bootstrap_mask=bootstrap_mask,
        agent=np.full(segments, env.agents.index(env.agents_of(player)[0]), np.int16),
        seat=np.full(segments, player, np.int8),
        episode=np.arange(segments),
        version_lo=np.zeros(segments, np.int32),
        version_hi=np.zeros(segments, np.int32),
        policy=_MINE.policy,
    )


def _plain(column: Array, *, whole: np.dtype[Any] | None = None) -> Array:
    """Of this kind; None: floats as float32, whole numbers as they are."""
    if whole is not None:
        return column.astype(whole)
    return column.astype(np.float32) if column.dtype.kind == "f" else column
