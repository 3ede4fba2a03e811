"""Episodes that are played as far as somebody wants to look.

The rollout worker plays them, as `ludus.apps.episodes.recording` has it play, a step at a time, and every step is kept. What is behind
can be looked at again: what policies answer is asked of them anew (they are pure), and pictures are drawn by an equal environment that
makes the same moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.algorithms.common.space_checks import state_features, state_width
from ludus.apps.episodes.debugger import Answers, Decision, Decisions, Episode, EpisodeDebugger, OpenSpielWalk, Step
from ludus.apps.episodes.human_policy import HumanPolicy
from ludus.apps.episodes.recording import (
    Film,
    StoredArray,
    episode_key,
    one_environment,
    picture_of,
    policies_of_players,
    strategies_of,
)
from ludus.core.errors import EnvError, LudusError, RunError, ScenarioError
from ludus.core.types import ActionRequests, Array, EnvSpec, Mixture, PolicyOutput, PolicyRef, Timestep
from ludus.envs.base import HasColumnNames, VectorEnv
from ludus.envs.wrappers.base import Wrapper
from ludus.envs.wrappers.registry import wrap
from ludus.evaluation.policies import META
from ludus.metagame.population.base import populations_of, seats_of
from ludus.policies.agents import conversation
from ludus.policies.base import JointPolicy, Policy, SupportsValues, team_size_of, teams_for
from ludus.policies.bots import BotPolicy, BotSettings, what_raised
from ludus.policies.categorical import CategoricalPolicy, full_mask
from ludus.rollout.base import Rollout, RolloutRequest, whole
from ludus.rollout.bot_process import bot_players
from ludus.rollout.inference.groups import decode
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.opponents import OpponentSampler, mixture_refs
from ludus.rollout.worker import RolloutWorker
from ludus.storage.stored_run import StoredRun, open_run

MOST_STEPS = 100_000
MOST_BYTES = 2**30  # of all steps together
EXPLORE = "explore"
_OPENSPIEL = "openspiel/"

# --------------------------------------------------------------------------------------------------------------------
# Playing: the rollout worker plays a vector that keeps what it sees, and asks a bank that keeps what it answered.


class _Bank(LocalBank):
    """Keeps, of each answer since `taken`, its slots, log-probabilities and what it remembered. playing: [P] index of the policy."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec, 1)
        self.playing: Sequence[int] = ()
        self._answered: dict[int, tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32] | None]] = {}

    def act(self, player: int, due: ActionRequests, noise: NDArray[np.float32]) -> PolicyOutput:
        """See `PolicyBank.act`."""
        act = super().act(player, due, noise)
        slots = due.slot.copy()
        memory = self.memory(player, slots, self.playing[player]) if self.recurrent else None
        self._answered[player] = slots, act.logp.copy(), memory
        return act

    def pop_answer(self, player: int) -> tuple[NDArray[np.float32], NDArray[np.float32] | None] | None:
        """Return (log-probabilities, memory) of the player's last answer, once; None if it was a bot that answered."""
        entry = self._answered.pop(player, None)
        return None if entry is None else entry[1:]


class _StepRecorder(Wrapper):
    """A vector of one environment that keeps every step of its episode."""

    def __init__(self, env: VectorEnv, bank: _Bank) -> None:
        super().__init__(env, env.spec)
        self._bank = bank
        self.begin()

    def begin(self) -> None:
        """Forget what was played."""
        self.seeds = np.zeros(1, np.uint64)
        self.steps: list[Step] = []
        self.moves: list[tuple[Array, ...]] = []  # as the environment was given them
        self.size = 0  # in bytes
        self.due: tuple[ActionRequests, ...] = ()  # now
        self.state: Array | None = None  # the central one, now
        self._returns = np.zeros(self.spec.num_players)
        self._pending_decisions: tuple[Decisions, ...] = ()
        self._open: dict[tuple[int, int], tuple[NDArray[np.float32], int]] = {}  # where a slot's reward belongs

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        self.begin()
        self.seeds = np.array(seeds, np.uint64)
        return super().reset(seeds, episodes=episodes)

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        self.moves.append(tuple(np.array(action) for action in actions))
        self._pending_decisions = tuple(self._decided(p, due, actions[p]) for p, due in enumerate(self.due))
        return actions

    def _decided(self, player: int, due: ActionRequests, action: Array) -> Decisions:
        answered = self._bank.pop_answer(player) if len(due.slot) else None
        logp, memory = (np.full(len(due.slot), np.nan, np.float32), None) if answered is None else answered
        storage = StoredArray(due.observation)
        decisions = Decisions(
            agent=due.slot.copy(),
            mask=None if due.mask is None else due.mask.copy(),
            action=np.array(action),
            logp=logp,
            memory=memory,
            reward=np.full(len(due.slot), np.nan, np.float32),
            stored=storage,
        )
        for row, slot in enumerate(due.slot.tolist()):
            self._open[player, slot] = decisions.reward, row
        self.size += storage.size + sum(a.nbytes for a in (decisions.mask, memory, action) if a is not None) + 600
        return decisions

    def _see(self, timestep: Timestep) -> Timestep:
        if self._pending_decisions:
            self.steps.append(self._step(timestep))
            self._pending_decisions = ()
        self.due = timestep.due
        self.state = None if timestep.state is None else np.array(timestep.state[0])
        return timestep

    def _step(self, timestep: Timestep) -> Step:
        paid, closed = np.zeros(self.spec.num_players), list[tuple[int, int, bool]]()
        over = len(timestep.finished.environment) > 0
        for p, (due, ended) in enumerate(zip(timestep.due, timestep.ended, strict=True)):
            rows = [*zip(ended.slot.tolist(), ended.reward.tolist(), strict=True)]
            rows += [] if over else [*zip(due.slot.tolist(), due.reward.tolist(), strict=True)]
            for slot, reward in rows:
                paid[p] += reward
                if (place := self._open.pop((p, slot), None)) is not None:
                    place[0][place[1]] = reward
            closed += [(p, *pair) for pair in zip(ended.slot.tolist(), ended.terminated.tolist(), strict=True)]
        self._returns = timestep.finished.returns[0].copy() if over else self._returns + paid
        how = ("terminated" if timestep.finished.terminated[0] else "truncated") if over else ""
        counted = timestep.finished.statistics
        return Step(
            number=len(self.steps),
            due=self._pending_decisions,
            paid=paid,
            returns=self._returns,
            closed=tuple(closed),
            over=how,
            state=self.state,
            statistics=None if counted is None or not over else counted[0].copy(),
        )


class _OpenSpielStates(Wrapper):
    """Around an OpenSpiel game, compiled or not: the `pyspiel.State` before every step, and the last one."""

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        self._walk = OpenSpielWalk(self.spec.id, int(seeds[0]))
        return super().reset(seeds, episodes=episodes)

    @property
    def states(self) -> list[Any]:
        """Return those of `OpenSpielWalk`."""
        return self._walk.states

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        self._walk.step(actions)
        return actions


class _Replica:
    """An environment that makes the moves of an episode again, to be looked at on the way."""

    def __init__(self, env: VectorEnv, wrappers: Sequence[Mapping[str, object]]) -> None:
        self._env = Wrapper(env, env.spec)
        try:
            self._played = wrap(self._env, wrappers)
        except LudusError:
            env.close()
            raise
        self._at = -1  # step before which it is; -1: none

    def forget(self) -> None:
        """Another episode is going to be shown."""
        self._at = -1

    def show(self, watched: _StepRecorder, number: int) -> NDArray[np.uint8] | str:
        """Return the state before a step. Raises EnvError if it cannot be rendered, or the same moves lead elsewhere."""
        if self._at < 0 or self._at > number:
            timestep = self._played.reset(watched.seeds, episodes=1)
            self._at = 0
            self._check(timestep, watched)
        while self._at < number:
            timestep = self._played.step(watched.moves[self._at])
            self._at += 1
            self._check(timestep, watched)
        return picture_of(self._env)

    def _check(self, timestep: Timestep, watched: _StepRecorder) -> None:
        if self._at < len(watched.steps):
            known = watched.steps[self._at].due
            same = all(
                np.array_equal(due.slot, rows.agent) and _same(due.observation, rows.observation)
                for due, rows in zip(timestep.due, known, strict=True)
            )
            if not same:
                at, self._at = self._at, -1
                raise EnvError(
                    f"{self._env.spec.id} does not repeat its episodes: the same seed and moves lead elsewhere at step {at}, so no picture "
                    "of what was played can be drawn. Say determinism: none where that is known (`ludus check-env` tells)."
                )

    def close(self) -> None:
        """Close the environment."""
        self._played.close()


def _same(now: Array, stored: Array) -> bool:
    return np.array_equal(now.astype(stored.dtype), stored, equal_nan=stored.dtype.kind == "f")


class _FilmAsPlayed:
    """Pictures of an environment that does not repeat its episodes, drawn as they are played."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = Wrapper(env, env.spec)
        self.forget()

    def forget(self) -> None:
        """Another episode is going to be played."""
        self._film, self._wrong = Film(), ""

    def take(self) -> None:
        """Keep what it shows now."""
        if self._wrong:
            return
        if self._film.full:
            self._wrong = f"only the first {len(self._film.frames)} pictures of an episode are kept"
            return
        try:
            self._film.take(picture_of(self._env))
        except EnvError as error:
            self._wrong = str(error)

    def show(self, number: int) -> NDArray[np.uint8] | str:
        """Return the state before a step. Raises EnvError if it was not kept."""
        pictures: Sequence[NDArray[np.uint8] | str] = self._film.texts or self._film.frames
        if number < len(pictures):
            return pictures[number]
        raise EnvError(self._wrong or f"step {number} was not shown.")


# --------------------------------------------------------------------------------------------------------------------
# What policies answer.

_LOGGED = 4096  # bytes of an agent's log, of a step, that are shown
_ANSWERS = 256  # of a player in a step, that are kept
_ROUNDING = 1e-5
_LADDER = 512  # uniforms by which a policy that has no table is asked for its probabilities


def answers_of(policy: Policy, step: Step, spec: EnvSpec, player: int, *, mode: str) -> Answers:
    """Return what a policy says of the decisions that it made in a step. A policy without a table of probabilities (it remembers, say) is
    asked with 512 uniforms: each answer brings the probability of its action."""
    if isinstance(policy, BotPolicy | HumanPolicy):
        return Answers()
    decisions = step.due[player]
    observation, mask = decisions.observation, decisions.mask
    if spec.enumeration is not None:
        observation, mask = decode(spec.enumeration, observation, mask, takes_ids=policy.takes_ids)
    value = q = None
    if isinstance(policy, SupportsValues):
        state = _critic_state(policy, step, spec, player)
        value, q = policy.values(observation, mask, decisions.memory, state, **teams_for(policy, decisions.agent))
    space = spec.agents_of(player)[0].action
    if not isinstance(space, Discrete):
        return Answers(value=value, action_values=q)
    rows = observation, mask, decisions.memory
    also = mode != EXPLORE and EXPLORE in policy.modes
    if team_size_of(policy):

        def chances(mode: str) -> NDArray[np.float64] | None:
            joint = cast(JointPolicy, policy)
            return joint.chances(observation, mask, decisions.action, mode=mode, **teams_for(policy, decisions.agent))

        return Answers(chances(mode), chances(EXPLORE) if also else None, value, q)
    return Answers(
        _probabilities(policy, rows, int(space.n), mode),
        _probabilities(policy, rows, int(space.n), EXPLORE) if also else None,
        value,
        q,
    )


def _critic_state(policy: Policy, step: Step, spec: EnvSpec, player: int) -> NDArray[np.float32] | None:
    """Return float32[n, S], what a central critic sees with each decision of a player, as its learner showed it; None without a state, or
    where the critic saw another one."""
    width = int(policy.spec.config.get("state", 0))
    if step.state is None or not width:
        return None
    n = len(step.due[player])
    state = np.broadcast_to(step.state, (n, *np.shape(step.state)))
    for seats in ((player,), next(group for group in seats_of(populations_of(spec)) if player in group)):
        if state_width(spec, seats) == width:
            return state_features(state, np.full(n, player), seats)
    return None


_Rows: TypeAlias = tuple[Array, NDArray[np.bool_] | None, Array | None]
"""Observations, masks, memory."""


def _probabilities(policy: Policy, rows: _Rows, actions: int, mode: str) -> NDArray[np.float64]:
    """Return float64[n, A]."""
    if policy.memory_shape is None and isinstance(policy, CategoricalPolicy) and policy.noise_width == 1:
        legal = full_mask(rows[1], len(rows[0]), policy.actions)
        return np.array(policy.probabilities(rows[0], legal, mode=mode)[0], np.float64)
    return _observed_probabilities(policy, rows, actions, mode)


def _observed_probabilities(policy: Policy, rows: _Rows, actions: int, mode: str) -> NDArray[np.float64]:
    observation, mask, memory = rows
    n, width = len(observation), policy.noise_width
    noise = np.random.default_rng(0).random((_LADDER, width), np.float32)
    noise[:, 0] = (np.arange(_LADDER) + 0.5) / _LADDER
    probs = np.full((n, actions), np.nan) if mask is None else np.where(mask, np.nan, 0.0)
    for row in range(n):
        repeated = [
            None if a is None else np.repeat(a[row : row + 1], _LADDER, axis=0) for a in (observation, mask, memory)
        ]
        assert repeated[0] is not None
        act = policy.act(repeated[0], repeated[1], repeated[2], noise, mode=mode)
        probs[row, act.action] = np.exp(act.logp.astype(np.float64))
        if np.nansum(probs[row]) > 1 - _ROUNDING:
            probs[row] = np.nan_to_num(probs[row])
    return probs


# --------------------------------------------------------------------------------------------------------------------


class PlayedEpisode(EpisodeDebugger):
    """An episode that is played as far as it is looked at.

    Args:
        make: Makes a vector of one environment.
        players: As in `record`.
        policy: As in `record`.
        episode: The episode is the same as this one of `record`, counted from 0.
        seed: As in `record`.
        steps: Maximum length of the episode.
        size: Maximum size in bytes; default: `MOST_BYTES`.
        wrappers: As in `record`.
        shown: Makes an environment that can render, for pictures; default: `make`.
        name: Names the policies.
        waits: Called with the players who are to move; True: one of them has not answered yet, and the episode waits.
        bots: Where bots play, and their time limits.

    Raises:
        ScenarioError: For numbers that are too small.
    """

    def __init__(
        self,
        make: Callable[[], VectorEnv],
        players: Mixture | Sequence[Policy],
        policy: Callable[[PolicyRef], Policy] | None = None,
        *,
        episode: int = 0,
        seed: int = 0,
        steps: int = MOST_STEPS,
        size: int | None = None,
        wrappers: Sequence[Mapping[str, object]] = (),
        shown: Callable[[], VectorEnv] | None = None,
        name: Callable[[PolicyRef], str] = lambda ref: ref.policy,
        waits: Callable[[Sequence[int]], bool] | None = None,
        bots: BotSettings | None = None,
    ) -> None:
        if episode < 0 or steps < 1:
            raise ScenarioError(f"episode={episode}, steps={steps} were given; at least 0 and 1 are needed.")
        super().__init__()
        self._make_rendering, self._wrappers, self._max_steps, self._name = shown or make, wrappers, steps, name
        self._size, self._waits_for = MOST_BYTES if size is None else size, waits
        self._mixture, self._find = policies_of_players(players, policy)
        self._pictures: _Replica | None = None
        env = make()
        repeats = env.spec.determinism != "none" or env.spec.id.startswith(_OPENSPIEL)
        if not repeats and shown is not None:
            env.close()
            env = shown()
        self._filmed = None if repeats else _FilmAsPlayed(env)
        try:
            self._states = _OpenSpielStates(env, env.spec) if env.spec.id.startswith(_OPENSPIEL) else None
            self._inner = env
            played = wrap(self._states or env, wrappers)
            if played.num_envs != 1:
                raise EnvError(f"{played.num_envs} environments were given to be debugged; one is needed.")
        except LudusError:
            env.close()
            raise
        self._bank = _Bank(played.spec)
        self._watched = _StepRecorder(played, self._bank)
        self._transcripts: TemporaryDirectory[str] | None = None
        self._log_ends: dict[Path, int] = {}
        bots = bots or BotSettings()
        if any(isinstance(p := self._find(ref), BotPolicy) and p.bot.external for ref in mixture_refs(self._mixture)):
            self._transcripts = TemporaryDirectory("ludus-agents")
            bots = bots.in_folder(self._transcripts.name)
        self._bots = own_bots = bot_players(bots)
        self._worker = RolloutWorker(self._watched, self._bank, bots=lambda: own_bots)
        self._begin(seed, episode)

    def restart(self, seed: int | None = None) -> None:
        """See `EpisodeDebugger.restart`."""
        self._begin(*((self.episode.seed, self.episode.number) if seed is None else (seed, 0)))

    def _begin(self, seed: int, episode: int) -> None:
        request = RolloutRequest.evaluation(self._mixture, 1, seed=episode_key(seed, episode))
        refs = mixture_refs(self._mixture)
        spec = self._watched.spec
        sampler = OpponentSampler(request, shard=whole(1), num_players=spec.num_players, refs=refs)
        sampler.draw(np.zeros(1, np.int32), np.zeros(1, np.int64))
        sampled = [refs[int(k)] for k in sampler.policy[:, 0]]
        policies = [(ref, self._find(ref)) for ref in refs]
        self._policies = [self._find(ref) for ref in sampled]
        evaluated = [ref for ref, policy in policies if not isinstance(policy, BotPolicy)]
        self._bank.playing = [evaluated.index(ref) if ref in evaluated else -1 for ref in sampled]
        self._playing: Iterator[Rollout | None] | None = self._worker.stepwise(request, policies)
        self._watched.begin()
        self._answers: dict[tuple[int, int], Answers] = {}
        self._logged: list[str] = []  # of each step, what agents wrote on standard error
        self.position, self.cut = 0, ""
        self._pending = False  # whether decisions are due
        names, modes = tuple(map(self._name, sampled)), tuple(ref.mode for ref in sampled)
        self.episode = Episode(spec, seed, episode, names, modes)
        for pictures in (self._pictures, self._filmed):
            if pictures is not None:
                pictures.forget()
        self.reach(0)
        if self.cut and not self.episode.steps:
            raise EnvError(f"the episode's first step cannot be made: {self.cut}")

    def close(self) -> None:
        """Close the environments."""
        self._bots.close()
        self._watched.close()
        if self._transcripts is not None:
            self._transcripts.cleanup()
        if self._pictures is not None:
            self._pictures.close()

    @property
    def over(self) -> bool:
        """See `EpisodeDebugger.over`."""
        return self._playing is None

    @property
    def has_bots(self) -> bool:
        """Return whether bots may play, which have a process of their own."""
        return any(isinstance(self._find(ref), BotPolicy) for ref in mixture_refs(self._mixture))

    def reach(self, number: int) -> bool:
        """See `EpisodeDebugger.reach`."""
        steps = self.episode.steps
        while len(steps) <= number and self._playing is not None and self._advance(self._playing):
            pass
        return number < len(steps)

    def _advance(self, playing: Iterator[Rollout | None]) -> bool:
        """Make a step more; the first time, reset first. Whether anything was done: else somebody is waited for."""
        steps, watched = self.episode.steps, self._watched
        if len(steps) >= self._max_steps or watched.size > self._size:
            limit = f"{self._max_steps} steps" if len(steps) >= self._max_steps else f"{watched.size / 2**30:.1f} GiB"
            self.cut, self._playing = f"cut after {len(steps)} steps; {limit} are kept", None
            return True
        try:
            if not self._pending:
                next(playing)
                self._pending = True
                self._film()
            if self._waits_for is not None and self._waits_for(
                [player for player, due in enumerate(watched.due) if len(due.slot)]
            ):
                return False
            rollout = next(playing)
        except LudusError as error:
            self.cut, self._playing = " ".join(str(error).split()), None
            return True
        except StopIteration:
            self.cut, self._playing = "it was interrupted in the middle of a step", None
            return True
        except Exception as error:  # noqa: BLE001  a policy's own code; an environment's is a LudusError
            self.cut, self._playing = f"{what_raised(error)}.", None
            return True
        steps += watched.steps[len(steps) :]
        self._logged += [self._read_logs() for _ in steps[len(self._logged) :]]
        self._film()
        if rollout is not None:
            self._playing = None
        return True

    @property
    def open_step(self) -> Step | None:
        """Return the decisions that are due now, of which nothing is known yet (action -1, or NaN); None if the episode is over."""
        if self._playing is None or not self._pending:
            return None
        due = tuple(_not_made(rows) for rows in self._watched.due)
        return Step(
            number=len(self.episode.steps),
            due=due,
            paid=np.zeros(self.episode.spec.num_players),
            returns=np.zeros(self.episode.spec.num_players)
            if not self.episode.steps
            else self.episode.steps[-1].returns,
            state=self._watched.state,
        )

    def open_decisions(self, player: int) -> list[Decision]:
        """Those of `open_step` that a player has to make."""
        step = self.open_step
        return [] if step is None or not len(step.due[player]) else [*self._decisions(step, player, Answers())]

    def _film(self) -> None:
        if self._filmed is not None:
            self._filmed.take()

    # ------------------------------------------------------------------------------------------ looking

    def answers(self, number: int, player: int) -> Answers:
        """See `EpisodeDebugger.answers`."""
        key = number, player
        if key not in self._answers:
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            step, mode = self.episode.steps[number], self.episode.mode[player]
            self._answers[key] = answers_of(self._policies[player], step, self.episode.spec, player, mode=mode)
        return self._answers[key]

    def information(self, number: int, player: int, row: int) -> str:
        """See `EpisodeDebugger.information`. Of an agent that is asked in words, also what it was asked, and answered."""
        agent = int(self.episode.steps[number].due[player].agent[row]) if number < len(self.episode.steps) else -1
        return "\n\n".join(filter(None, (self._written(number, player, row), self.output(number, player, agent))))

    def output(self, number: int, player: int, agent: int) -> str:
        """Return what an agent from elsewhere wrote at a step: of one that is asked in words the question and its answer, and what came on
        its standard error; "" of others, and of steps that are still to come."""
        policy, steps = self._policies[player], self.episode.steps
        external = isinstance(policy, BotPolicy) and policy.bot.external
        if self._transcripts is None or not external or number >= len(steps):
            return ""
        earlier = sum(int((step.due[player].agent == agent).sum()) for step in steps[:number])
        spoken = conversation(Path(self._transcripts.name), player, agent, earlier)
        return "\n\n".join(filter(None, (spoken, self._logged[number] if number < len(self._logged) else "")))

    def _read_logs(self) -> str:
        """Return what agents have written on standard error since the last look."""
        if self._transcripts is None:
            return ""
        new = []
        for path in sorted(Path(self._transcripts.name).glob("*.log")):
            with path.open("rb") as log:
                log.seek(self._log_ends.get(path, 0))
                new.append(log.read(_LOGGED))
                self._log_ends[path] = path.stat().st_size
        return "\n".join(text.decode(errors="replace").strip() for text in new).strip()

    def _written(self, number: int, player: int, row: int) -> str:
        if self._states is None:
            return ""
        state, player = self._states.states[number], self._inner_player(number, player, row)
        kind = state.get_game().get_type()
        if kind.provides_information_state_string:
            return str(state.information_state_string(player))
        return str(state.observation_string(player)) if kind.provides_observation_string else ""

    def state(self, number: int) -> Any | None:
        """See `EpisodeDebugger.state`."""
        return None if self._states is None else self._states.states[number]

    def own_players(self, player: int) -> tuple[int, ...]:
        """See `EpisodeDebugger.own_players`."""
        names = {agent.name for agent in self.episode.spec.agents_of(player)}
        own = tuple(dict.fromkeys(agent.player for agent in self._inner.spec.agents if agent.name in names))
        return own or (player,)

    def action_names(self, number: int, player: int, row: int, legal: Sequence[int]) -> Mapping[int, str]:
        """See `EpisodeDebugger.action_names`."""
        player = self._inner_player(number, player, row)
        if self._states is not None:
            state = self._states.states[number]
            return {action: str(state.action_to_string(player, action)) for action in legal}
        names = self._inner.action_names(player) if isinstance(self._inner, HasColumnNames) else ()
        return {action: names[action] for action in legal if action < len(names)}

    def _inner_player(self, number: int, player: int, row: int) -> int:
        """Return the environment's own player, where wrappers have put several of them under one."""
        spec, inner = self.episode.spec, self._inner.spec
        due = (
            self._watched.due[player].slot
            if number == len(self.episode.steps)
            else self.episode.steps[number].due[player].agent
        )
        agent = spec.agents_of(player)[int(due[row])]
        return next((own.player for own in inner.agents if own.name == agent.name), player)

    def columns(self, player: int) -> tuple[str, ...]:
        """See `EpisodeDebugger.columns`."""
        agent = self.episode.spec.agents_of(player)[0]
        own = next((one.player for one in self._inner.spec.agents if one.name == agent.name), player)
        names = tuple(self._inner.observation_names(own)) if isinstance(self._inner, HasColumnNames) else ()
        return names if agent.observation.shape == (len(names),) else ()

    def picture(self, number: int) -> NDArray[np.uint8] | str:
        """See `EpisodeDebugger.picture`. Raises EnvError, too, where the environment cannot be rendered, or does not repeat its
        episodes though it says that it does."""
        if self._states is not None:
            return str(self._states.states[number])
        if self._filmed is not None:
            return self._filmed.show(number)
        if self._pictures is None:
            self._pictures = _Replica(self._make_rendering(), self._wrappers)
        return self._pictures.show(self._watched, number)


def _not_made(due: ActionRequests) -> Decisions:
    """Return decisions of which nothing is known but what is seen."""
    n = len(due.slot)
    return Decisions(
        agent=due.slot.copy(),
        mask=None if due.mask is None else due.mask.copy(),
        action=np.full(n, -1, np.int32),
        logp=np.full(n, np.nan, np.float32),
        memory=None,
        reward=np.full(n, np.nan, np.float32),
        stored=StoredArray(due.observation),
    )


# --------------------------------------------------------------------------------------------------------------------
# Of a run's policies.


def bots_of_run(stored: StoredRun) -> BotSettings:
    """Return where the bots of a run play, in one process at most, and how long they may take; the defaults where its scenario does not say
    it."""
    with suppress(RunError):  # a runtime of somebody's own, in a zoo
        settings: BotSettings = stored.part(
            "runtime", lambda runtime: BotSettings(**runtime.get("bots", {})), default={}
        )
        return settings.model_copy(update={"processes": min(1, settings.processes)})  # one episode asks one at a time
    return BotSettings()


def debug_run(
    run_dir: Path | str,
    *,
    policies: Sequence[str] = (),
    episode: int = 0,
    seed: int = 0,
    steps: int = MOST_STEPS,
) -> PlayedEpisode:
    """Step through an episode of a run's policies in its environment; the one that `record_run` films with the same seed.

    policies: one name per player, or one for all, such as "@0/0-12" or "RUN@best", as `ludus.evaluation.policies` takes them; default:
    "@meta", the last meta-strategy. The run may be going on. Raises ConfigError for unknown names, with the nearest, or another number of
    them; RunError for an unreadable run.
    """
    stored = open_run(run_dir)
    settings = stored.env.played
    known = wrap(one_environment(settings, rendering=False), settings.wrappers)
    named, strategies = strategies_of(stored, policies or [f"@{META}"], known)
    known.close()
    return PlayedEpisode(
        lambda: one_environment(settings, rendering=False),
        strategies,
        named.policy,
        episode=episode,
        seed=seed,
        steps=steps,
        wrappers=settings.wrappers,
        shown=lambda: one_environment(settings, rendering=True),
        name=lambda ref: f"{stored.folder.name}@{stored.name(ref)}" if ref in stored.records else ref.policy,
        bots=bots_of_run(stored),
    )
