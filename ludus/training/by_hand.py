"""A learner in a program of one's own: no run, no scenario, no store. Rows in, numbers out, a policy file at the end.

learner = ludus.learner("ppo", env="gymnasium/CartPole-v1", batch=20)
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
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.device import parse_device, placement_of
from ludus.core.errors import ConfigError, DataError, ScenarioError, TrainingError, nearest
from ludus.core.parts import build_part, kind_of, require
from ludus.core.types import Array, DeviceChoice, EnvSpec, Metrics, Mixture, PolicyRef, PolicySpec, State, Tail, Weights
from ludus.envs.base import closed_on_error
from ludus.envs.options import Environment
from ludus.learners.base import Algorithm, Learner, LearnerContext
from ludus.learners.registry import ALGORITHMS, check_fits
from ludus.policies.base import Policy, Teams, team_size_of
from ludus.policies.file import load_policy, save_policy
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.prefetcher import ToDevice
from ludus.replay.trajectories import Trajectories, join
from ludus.rollout.manager import RolloutManager, manage
from ludus.runtime.inprocess import build_runtime
from ludus.training.trainer import Trainer, TrainerSpec

_TASK: Final = "by-hand"
_ENVS = 16  # that `collect` plays at once, where nobody says how many
_MINE = PolicyRef(0, "mine")
_NONE = -1


class HandLearner:
    """A learner of one policy, which the caller feeds. Made by `learner`."""

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
        self._rollouts: RolloutManager = manage(build_runtime("inprocess"), env)
        with closed_on_error(env):
            self.env: EnvSpec = env.spec
            self.players = players or tuple(range(self.env.num_players))
            check_fits(algorithm, self.env, self.players)
            context = LearnerContext(self.env, self.players, seed, total=total, device=device)
            self._trainer = Trainer(TrainerSpec(_TASK, algorithm, context, start), EpisodeServer(seed))
        self.algorithm, self._seed = algorithm, seed
        self._version = 0  # of the weights: a new one after each call that learns
        self._collected = self._episode = self._acted = 0
        self._open = _NONE  # number of the episode that the arrays given last left open
        self._policy: Policy | None = None

    def __repr__(self) -> str:
        return f"<HandLearner {kind_of(self.algorithm, ALGORITHMS)} in {self.env.id}>"

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Batch) -> Metrics:
        """One update from exactly these rows; its metrics. Nothing is replayed.

        batch: `Trajectories`; the name of a file that `ludus record --trajectories` wrote; or a mapping of arrays, as `rows_of` takes
        it. Raises DataError for rows that do not fit, TrainingError where a loss is not finite: then the weights stay as they were.
        """
        metrics: Metrics = {}
        for table, items in self._learner.items(self._counted(batch)):
            rows = len(next(iter(items.values())))
            sample = Sample(items, np.arange(rows), np.ones(rows))
            place = placement_of(self._learner, table)
            if place is not None and place.device != "cpu":
                sample = ToDevice(place.torch)(sample)
            metrics = {**metrics, **self._learner.update(sample)}
        self._learned()
        return metrics

    def learn(self, batch: Batch) -> Metrics:
        """As in a run: the rows go into the learner's tables, and every update that is due is done. The metrics of the last one; empty if
        none was due. batch, and what it raises: as of `update`."""
        learned = self._trainer.learn([self._counted(batch)], version=self._version)
        self._learned()
        if learned.failure is not None:
            raise TrainingError(learned.failure)
        return learned.metrics

    def rows(self, batch: Batch) -> Trajectories:
        """What `update` makes of a batch. Episodes of arrays are numbered on from those of earlier updates, the last of which goes on if it
        was left open."""
        if isinstance(batch, Trajectories):
            return batch
        if isinstance(batch, str | PathLike):
            from ludus.replay.parquet import read_trajectories  # pyarrow is an extra

            return join(read_trajectories(Path(batch)).trajectories)
        about = getattr(self.algorithm, "about", None)
        needs_logp = about is not None and about.data == "on-policy"
        rows = rows_of(batch, self.env, player=self.players[0], needs_logp=needs_logp)
        goes_on = self._open != _NONE
        episode = rows.episode + self._episode - goes_on
        episode[0] = self._open if goes_on else episode[0]
        return replace(rows, episode=episode)

    def _counted(self, batch: Batch) -> Trajectories:
        """Its rows, which are learned from now."""
        rows = self.rows(batch)
        if isinstance(batch, Mapping):
            last = int(rows.episode[-1])
            self._episode = max(self._episode, last + 1)
            self._open = last if rows.tail[-1] == Tail.CUT else _NONE
        return rows

    # ------------------------------------------------------------------------------------------ acting

    def collect(self, amount: int | None = None, *, others: Mapping[int, Policy] | None = None) -> Trajectories:
        """Play in the environment with the newest weights, and answer what the learner did.

        amount: of what the algorithm collects, episodes or decisions; default: as much as it does in a run. others: who plays the other
        players; by default the learner itself does, and learns from all that it plays if it plays several. Raises ScenarioError for players
        whom nobody plays, and for some that there are not.
        """
        others = others or {}
        if strange := sorted(set(others) - set(range(self.env.num_players))):
            raise ScenarioError(f"others play {strange}; the game has the players 0 to {self.env.num_players - 1}.")
        refs = {p: PolicyRef(1 + p, "other") if p in others else _MINE for p in range(self.env.num_players)}
        lacking = [p for p, ref in refs.items() if ref == _MINE and p not in self.players]
        if lacking:
            raise ScenarioError(f"nobody plays the players {lacking}: give others={{{lacking[0]}: policy, …}}.")
        collect = self.algorithm.collect()
        seats = tuple(p for p in self.players if p not in others)
        if not seats:
            raise ScenarioError(
                f"others play {sorted(others)}, and nobody is left for the learner, which plays {self.players}."
            )
        mine = _MINE._replace(version=self._version)
        factors = {p: ([mine if ref == _MINE else ref], [1.0]) for p, ref in refs.items()}
        request = replace(collect, amount=collect.amount if amount is None else amount).request(
            mine,
            Mixture.product(factors),
            seats=seats,
            seed=seeding.key(self._seed, "by hand", self._collected),
            modes_seed=self._seed,
            first_episode=self._episode,
            together=len(seats) > 1,
        )
        self._collected += 1
        policies = [(mine, self.policy), *((refs[p], policy) for p, policy in others.items())]
        modes = [(mine._replace(mode=mode), self.policy) for mode, _ in collect.modes]
        rollout = self._rollouts.run(request, [*policies, *modes])
        self._episode = rollout.next_episode
        if rollout.trajectories is None:
            raise ScenarioError(f"the learner had nothing to decide in {request.amount} {request.unit}; collect more.")
        return rollout.trajectories

    def act(self, observation: Array, mask: NDArray[np.bool_] | None = None) -> tuple[Array, NDArray[np.float32]]:
        """(actions [n, …], their log-probabilities float32[n]) of the newest policy, which explores, for observations [n, …] and legal
        actions bool[n, A]; those of whole teams, agent after agent, where it plays a team together. Raises ConfigError for one that
        remembers: `collect` plays those."""
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
        """With the newest weights."""
        if self._policy is None:
            self._policy = build_policy(self.spec, self.weights())
        return self._policy

    @property
    def spec(self) -> PolicySpec:
        """Of the policy."""
        return self._learner.spec

    def weights(self) -> Weights:
        """Copies."""
        return self._learner.weights()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy as a file, which every command takes, and `ludus.load_policy`. Raises PolicyError for weights that are no
        numbers."""
        save_policy(path, self.spec, self.weights())

    def state_dict(self) -> State:
        """All that the next update and the next `collect` depend on."""
        counts = [self._version, self._collected, self._episode, self._acted, self._open]
        return {**self._trainer.state_dict(), "counts": counts}

    def load_state_dict(self, state: State) -> None:
        """Into one that was made equally: what follows is equal to the bit."""
        self._trainer.load_state_dict(state)
        self._version, self._collected, self._episode, self._acted, self._open = map(int, state["counts"])
        self._policy = None

    def close(self) -> None:
        """Close the environment and free the tables."""
        self._trainer.close()
        self._rollouts.close()

    def _learned(self) -> None:
        self._version += 1
        self._policy = None

    @property
    def _learner(self) -> Learner:
        return self._trainer.learner


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
) -> HandLearner:
    """A learner to be fed by hand.

    algorithm: a name, `module:Class`, a class, or an object; options: its own, of the first three. env: an id, an
    `Environment`, or what makes one. players: whom the policy plays; default: all, who must be alike. start: a policy to go on from,
    or its file. total: what schedules run over, in what the algorithm collects. Raises ConfigError and ScenarioError for what does not fit,
    PolicyError for a start of another kind.
    """
    if isinstance(algorithm, str | type) or not options:
        kind = f"{algorithm.__module__}:{algorithm.__qualname__}" if isinstance(algorithm, type) else algorithm
        part = build_part("algorithm", {"kind": kind, **options} if isinstance(kind, str) else kind, ALGORITHMS)
    else:
        raise ConfigError(
            f"an object was given as algorithm, and the options {sorted(options)} beside it; put them into the object."
        )
    require(part, "algorithm", (Algorithm,), ALGORITHMS)
    given = Environment.of(env)
    environment = given if isinstance(given, Environment) else Environment(**{"num_envs": _ENVS, **given})
    weights = None
    if start is not None:
        policy = load_policy(start) if isinstance(start, str | PathLike) else start
        weights = policy.weights()
    return HandLearner(
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


def rows_of(columns: Mapping[str, Any], env: EnvSpec, *, player: int = 0, needs_logp: bool = False) -> Trajectories:
    """N decisions of one agent of `player`, in order of time, as trajectories.

    observation [N, …], action [N, …], reward float[N] and terminated bool[N] are needed; truncated bool[N], next_observation [N, …],
    logp float[N] of who acted, mask and next_mask bool[N, A] may be left out (next_mask not beside a mask, where something is
    bootstrapped). An episode ends where one of the two says so; what follows the last row goes on. Rows in no order are one-step
    episodes: truncated where not terminated, with a next_observation each. Raises DataError for columns that are missing, unknown or of
    other shapes.
    """
    unknown = [name for name in columns if name not in _KNOWN]
    missing = [name for name in (*_NEEDED, *(("logp",) if needs_logp else ())) if columns.get(name) is None]
    if unknown:
        raise DataError(f"a column {unknown[0]!r} was given{nearest(unknown[0], _KNOWN)} Known: {', '.join(_KNOWN)}.")
    if missing:
        more = "; `act` answers the log-probabilities of what it chose" if missing == ["logp"] else ""
        raise DataError(f"the columns {', '.join(missing)} are missing{more}. Given: {', '.join(columns)}.")
    agent = env.agents_of(player)[0]
    shape = () if env.enumeration is not None else tuple(agent.observation.shape or ())
    given = {name: np.asarray(column) for name, column in columns.items() if column is not None}
    rows = len(given["reward"])
    wanted = {"observation": shape, "next_observation": shape, "action": tuple(agent.action.shape or ())}
    if isinstance(agent.action, Discrete):
        wanted |= {"mask": (int(agent.action.n),), "next_mask": (int(agent.action.n),)}
    for name, column in given.items():
        free = name.endswith("mask") and name not in wanted and column.shape[:1] == (rows,)
        right = column.shape == (rows, *wanted.get(name, ())) or free
        if not right or not rows:
            raise DataError(
                f"column {name!r} has shape {list(column.shape)}; expected {[rows or 'n', *wanted.get(name, ())]}: one entry for each row, "
                f"as {env.id} shows it to {agent.name}."
            )
    return _segments(given, env, player)


def _segments(given: Mapping[str, Array], env: EnvSpec, player: int) -> Trajectories:
    rows, terminated = len(given["reward"]), given["terminated"].astype(np.bool_)
    truncated = given.get("truncated", np.zeros(rows, np.bool_)).astype(np.bool_)
    ends = terminated | truncated
    last = np.flatnonzero(np.append(ends[:-1], True))
    tail = np.where(terminated[last], Tail.TERMINATED, np.where(truncated[last], Tail.TRUNCATED, Tail.CUT)).astype(
        np.int8
    )
    observation = _plain(given["observation"])
    if "next_observation" in given:
        after = _plain(given["next_observation"])[last]
    elif (tail == Tail.TERMINATED).all():
        after = np.full_like(observation[last], -1 if env.enumeration is not None else 0)
    else:
        raise DataError(
            "next_observation is missing, and some rows end without having terminated: what follows them is bootstrapped. Give it."
        )
    mask, bootstrap_mask = given.get("mask"), None
    if mask is not None:
        mask = mask.astype(np.bool_)
        if "next_mask" not in given and env.enumeration is None and not (tail == Tail.TERMINATED).all():
            raise DataError(
                "next_mask is missing, and some rows end without having terminated: what follows them is bootstrapped, over the actions "
                "that are legal there. Give it, as you gave mask."
            )
        bootstrap_mask = given["next_mask"].astype(np.bool_)[last] if "next_mask" in given else np.ones_like(mask[last])
    start = np.concatenate([[0], last + 1])
    segments = len(last)
    return Trajectories(
        start=start,
        observation=observation,
        action=_plain(given["action"], whole=np.dtype(np.int32)),
        logp=given.get("logp", np.zeros(rows)).astype(np.float32),
        reward=given["reward"].astype(np.float32),
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
    """Floats as float32; whole numbers as they are, or of this kind."""
    if column.dtype.kind == "f":
        return column.astype(np.float32)
    return column if whole is None else column.astype(whole)
