"""Trained policies in a program of one's own: actions for observations, whole episodes in any environment.

policy = ludus.load_policy("RUN@best")            # or a file
action, state = policy.predict(observation)       # as Stable-Baselines3's `predict`
print(policy.play(env))                           # the return of an episode
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, PolicyError
from ludus.core.process_settings import standard_settings
from ludus.core.trust import trusting
from ludus.core.types import Array, Enumeration, EnvSpec, Mixture, PolicyOutput, PolicyRef, PolicySpec, Weights
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.evaluation.policies import (
    FORMS,
    SampledPolicy,
    incompatibility,
    parse_policy_name,
    policy_probabilities,
    sampled_policies,
)
from ludus.policies.base import Policy, Teams, team_size_of
from ludus.policies.bots import BotPolicy
from ludus.policies.file import load_policy as read_policy
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.opponents import mixture_refs
from ludus.rollout.worker import RolloutWorker
from ludus.storage.run_dirs import find_run
from ludus.storage.stored_run import StoredRun, open_run


@dataclass(frozen=True, slots=True, eq=False)
class PlayState:
    """State of `TrainedPolicy.predict` between decisions, row by row.

    Attributes:
        member: int[n], index of the policy of a mixture that plays.
        memory: float32[n, …] of each policy with memory, by its index.
    """

    member: NDArray[np.int64]
    memory: Mapping[int, Array]


class TrainedPolicy:
    """A stored policy, ready for use: a `Policy` with `predict` and `play`. Of a mixture, one policy is sampled when an episode begins.

    Args:
        seats: [P] policies that may play each player; empty where none is known. A single entry stands for any player.
        player: Player that `predict` acts for.
        env: Environment that they were trained in, where it is known.
        seed: Seed of sampling; None: different each time.

    Raises:
        PolicyError: If no policy plays `player`.
    """

    def __init__(
        self,
        seats: Sequence[Sequence[SampledPolicy]],
        *,
        player: int = 0,
        env: Environment | None = None,
        seed: int | None = None,
    ) -> None:
        self.player = player
        self._seats = [tuple(policies) for policies in seats]
        self._env = env
        try:
            self._rng = np.random.default_rng(seed)
        except (TypeError, ValueError) as error:
            raise PolicyError(f"seed={seed!r} was given; expected a whole number from 0, or None.") from error
        if not self._of(player):
            raise PolicyError(f"nobody was given for player {player}; there is somebody for {self._who()}.")

    def __repr__(self) -> str:
        names = [sampled.name for sampled in self._of(self.player)]
        listing = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"<TrainedPolicy {listing}, player {self.player}>"

    # ------------------------------------------------------------------------------------------ in a program of one's own

    @standard_settings()
    def predict(
        self,
        observation: Any,
        mask: Any = None,
        *,
        state: PlayState | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, PlayState | None]:
        """Return the action for an observation, and the state for the next call.

        Always a pair, as in Stable-Baselines3, so that one loop serves policies with and without memory.

        Args:
            observation: One observation or a batch [n, …], as the policy was trained on; for a compiled game its tensor, or the id of the
                information state. A policy that plays a team takes the observations of whole teams, agent after agent.
            mask: Legal actions bool[A] or bool[n, A].
            state: The state of the last call; None where an episode begins. Without memory and mixture it is None and need not be passed
                on.
            episode_start: bool[n], rows whose episode begins.
            deterministic: Take the best action; otherwise act as in the run (PSRO's members greedily, a file from elsewhere by sampling).

        Returns:
            (action, state): one action, or actions [n, …], counted from 0.

        Raises:
            PolicyError: For shapes that do not fit.
        """
        sampled = self._of(self.player)
        rows, single = self._rows(sampled, observation)
        if not len(rows):
            raise PolicyError(
                f"observations of shape {np.shape(observation)} were given, which are none; expected at least one."
            )
        ids = any(one.policy.takes_ids for one in sampled)
        n = len(rows)
        legal = self._legal(rows, mask, ids=ids)
        member, memory = self._begin_state(sampled, n, state, episode_start)
        action: Array | None = None
        for k in np.unique(member).tolist():
            policy, at = sampled[k].policy, np.flatnonzero(member == k)
            noise = self._rng.random((len(at), policy.noise_width), np.float32)
            before = memory[k][at] if k in memory else None
            mode = "greedy" if deterministic else sampled[k].mode
            observations = rows[at] if policy.takes_ids or not ids else self._enumeration.observation[rows[at]]
            teams = self._teams(policy, len(at), single=single)
            act = policy.act(observations, None if legal is None else legal[at], before, noise, mode=mode, **teams)
            if k in memory and act.memory is not None:
                memory[k][at] = act.memory
            if action is None:
                action = np.empty((n, *act.action.shape[1:]), act.action.dtype)
            action[at] = act.action
        assert action is not None
        after = PlayState(member, memory) if memory or len(sampled) > 1 else None
        return (action[0] if single else action), after

    @standard_settings()
    def play(
        self,
        env: Any = None,
        *,
        others: Mapping[int, TrainedPolicy] | None = None,
        deterministic: bool = False,
        seed: int | None = None,
    ) -> Any:
        """Play one whole episode and return its return: a float, or float64[P] for several players.

        Args:
            env: A Gymnasium or PettingZoo environment (which is not closed), a function that makes one, an id, or a vector of one
                environment;
                None: the environment of the run. Wrappers of the run are put around it.
            others: Policies of the other players; default: those of the run.
            deterministic: Take the best actions.
            seed: Seed of the episode.

        Raises:
            PolicyError: If no policy plays a player, or its policy cannot.
            EnvError: For faults of the environment.
        """
        if others is not None and not (
            isinstance(others, Mapping) and all(isinstance(one, TrainedPolicy) for one in others.values())
        ):
            raise PolicyError(
                f"others={others!r} was given; expected players with policies, {{1: ludus.load_policy(…)}}."
            )
        if seed is not None and not (isinstance(seed, int | np.integer) and seed >= 0):
            raise PolicyError(f"seed={seed!r} was given; expected a whole number from 0, or None.")
        vector = self._vector(env)
        try:
            spec, known, marginals = vector.spec, dict[PolicyRef, Policy](), {}
            if strangers := sorted(set(others or {}) - set(range(spec.num_players)), key=str):
                raise PolicyError(
                    f"others names {strangers[0]!r}, and {spec.id} has the players 0 to {spec.num_players - 1}."
                )
            for p in range(spec.num_players):
                sampled = (others or {}).get(p, self)._of(p)
                if not sampled:
                    raise PolicyError(f"nobody plays player {p} of {spec.id}: give others={{{p}: policy}}.")
                modes = ["greedy" if deterministic else one.mode for one in sampled]
                refs = [PolicyRef(p, str(k), mode=mode) for k, mode in enumerate(modes)]
                for ref, one in zip(refs, sampled, strict=True):
                    if wrong := incompatibility(one.policy, spec, p, ref.mode):
                        raise PolicyError(f"policy {one.name!r} cannot play player {p} of {spec.id}: {wrong}")
                    known[ref] = one.policy
                marginals[p] = (refs, [one.prob for one in sampled])
            mixture = Mixture.product(marginals)
            request = RolloutRequest.evaluation(
                mixture, 1, seed=int(self._rng.integers(2**63)) if seed is None else seed
            )
            worker = RolloutWorker(vector, LocalBank(spec, vector.num_envs))
            returns = worker.play(request, [(ref, known[ref]) for ref in mixture_refs(mixture)]).episodes.returns[0]
        finally:
            vector.close()
        return float(returns[0]) if len(returns) == 1 else returns

    def of(self, player: int) -> TrainedPolicy:
        """Return the same, acting for another player. Raises PolicyError where nobody plays it."""
        return TrainedPolicy(self._seats, player=player, env=self._env)

    @property
    def sampled(self) -> tuple[SampledPolicy, ...]:
        """The policies that may play the player, with their probabilities and modes."""
        return self._of(self.player)

    @property
    def environment(self) -> Environment | None:
        """The environment that they were trained in; None of a file's, which does not say."""
        return self._env

    # ------------------------------------------------------------------------------------------ as a policy

    @property
    def policy(self) -> Policy:
        """Return the policy itself. Raises PolicyError for a mixture of several."""
        sampled = self._of(self.player)
        if len(sampled) > 1:
            raise PolicyError(f"{self!r} is a mixture of {len(sampled)} policies; name one, or use predict and play.")
        return sampled[0].policy

    @property
    def spec(self) -> PolicySpec:
        return self.policy.spec

    @property
    def modes(self) -> tuple[str, ...]:
        return self.policy.modes

    @property
    def noise_width(self) -> int:
        return self.policy.noise_width

    @property
    def memory_shape(self) -> tuple[int, ...] | None:
        return self.policy.memory_shape

    @property
    def takes_ids(self) -> bool:
        return self.policy.takes_ids

    @property
    def team_size(self) -> int:
        """As of `JointPolicy`; 0 of one that decides row by row."""
        return team_size_of(self.policy)

    @standard_settings()
    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """As `Policy.act`, or `JointPolicy.act`."""
        beside: dict[str, Any] = {} if teams is None else {"teams": teams}
        return self.policy.act(observation, mask, memory, noise, mode=mode, **beside)

    @standard_settings()
    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `Policy.tabulate`."""
        return self.policy.tabulate(enumeration, player, mode=mode)

    def weights(self) -> Weights:
        """As `Policy.weights`."""
        return self.policy.weights()

    # ------------------------------------------------------------------------------------------ rows

    def _of(self, player: int) -> tuple[SampledPolicy, ...]:
        if len(self._seats) == 1:
            return self._seats[0]
        return self._seats[player] if 0 <= player < len(self._seats) else ()

    def _who(self) -> str:
        return ", ".join(f"player {p}" for p, policies in enumerate(self._seats) if policies) or "nobody"

    def _rows(self, sampled: Sequence[SampledPolicy], observation: Any) -> tuple[Array, bool]:
        """Return [n, …] as the policies take them, or ids if any of them does, and whether it is one observation alone."""
        if isinstance(observation, Mapping):
            raise PolicyError(
                "a mapping was given; expected an array. gymnasium.spaces.flatten(env.observation_space, observation) makes it as training "
                "does; of PettingZoo's, give observation['observation'] and mask=observation['action_mask']."
            )
        rows = np.asarray(observation)
        if any(one.policy.takes_ids for one in sampled):
            return self._ids(rows)
        shape = next((candidate for one in sampled if (candidate := _shape(one.policy.spec.config)) is not None), None)
        if rows.dtype == np.float64:
            rows = rows.astype(np.float32)
        size = None if shape is None else int(np.prod(shape))
        if size is None:
            return (rows, False) if rows.ndim > 1 else (rows[None], True)
        if rows.ndim > 0 and rows.shape[0] * size == rows.size and rows.shape != shape:
            return rows, False
        if rows.size != size:
            batch = f"[n, {', '.join(map(str, shape or ()))}]"
            raise PolicyError(f"an observation of shape {rows.shape} was given; expected {shape}, or a batch {batch}.")
        return rows[None], True

    def _ids(self, rows: Array) -> tuple[Array, bool]:
        """Of information states: given so, or found by their tensors."""
        if rows.dtype.kind in "iu" and rows.ndim < 2:
            valid = self._enumeration.ids(self.player)
            wrong = (rows < valid.start) | (rows >= valid.stop)
            if wrong.any():
                raise PolicyError(
                    f"information state {rows[wrong].flat[0]} was given; player {self.player} of {self._game.id} has "
                    f"{valid.start} to {valid.stop - 1}."
                )
            return np.atleast_1d(rows).astype(np.int32), rows.ndim == 0
        shape = self._enumeration.observation.shape[1:]
        single = rows.ndim == len(shape)
        batch = (rows[None] if single else rows).astype(np.float32)
        known = self._states
        ids = [known.get(row.tobytes(), -1) for row in batch]
        if batch.shape[1:] != shape or -1 in ids:
            raise PolicyError(
                f"an observation was given that player {self.player} of {self._game.id} never sees (shape {batch.shape[1:]}; expected the "
                f"tensor of an information state, {shape}, or its id)."
            )
        return np.array(ids, np.int32), single

    @cached_property
    def _game(self) -> EnvSpec:
        """Of its run. Raises PolicyError where no run is known."""
        if self._env is None:
            raise PolicyError(
                "this policy plays by the ids of a compiled game, which its file does not have. Load it from its run: RUN@PLAYER/POLICY."
            )
        env = self._env.played.make(num_envs=1)
        env.close()
        return env.spec

    @property
    def _enumeration(self) -> Enumeration:
        enumeration = self._game.enumeration
        if enumeration is None:
            raise PolicyError(
                f"this policy plays by ids of a compiled game, and {self._game.id} is not compiled here (tree=off)."
            )
        return enumeration

    @cached_property
    def _states(self) -> dict[bytes, int]:
        """Return the tensors of the player's information states, and their ids."""
        enumeration = self._enumeration
        ids = enumeration.ids(self.player)
        return {enumeration.observation[i].tobytes(): i for i in range(ids.start, ids.stop)}

    def _legal(self, rows: Array, mask: Any, *, ids: bool) -> NDArray[np.bool_] | None:
        if mask is not None:
            legal = np.asarray(mask).astype(np.bool_)
            return legal if legal.ndim > 1 else np.broadcast_to(legal, (len(rows), len(legal)))
        return self._enumeration.mask[rows] if ids else None

    def _teams(self, policy: Policy, rows: int, *, single: bool) -> dict[str, Teams]:
        """Return what it is asked with beside rows, if it plays a team together. Raises PolicyError where these are not all of whole
        teams."""
        size = team_size_of(policy)
        if size and len(self._of(self.player)) > 1:
            raise PolicyError(f"{self!r} is a mixture of policies that play a team together; name one, or use play.")
        if size > 1 and single:
            raise PolicyError(
                f"one observation was given, and {self!r} plays a team of {size} agents together; give an array [{size}, …] of what "
                "they see."
            )
        return {"teams": Teams.whole(rows, size)} if size else {}

    def _begin_state(
        self, sampled: Sequence[SampledPolicy], n: int, state: PlayState | None, episode_start: Any
    ) -> tuple[NDArray[np.int64], dict[int, Array]]:
        """Return who plays each row, and the memories, where episodes begin anew too."""
        fresh = np.ones(n, np.bool_) if state is None else np.zeros(n, np.bool_)
        if episode_start is not None:
            begun = np.atleast_1d(np.asarray(episode_start, np.bool_))
            if begun.shape != (n,):
                raise PolicyError(
                    f"episode_start of shape {begun.shape} was given with {n} observations; expected ({n},)."
                )
            fresh = fresh | begun
        if state is not None and not isinstance(state, PlayState):
            raise PolicyError(f"state={state!r} was given; expected what the last call of `predict` answered, or None.")
        if state is not None and len(state.member) != n:
            raise PolicyError(f"{n} observations were given with the state of {len(state.member)}; expected as many.")
        probs = np.array([one.prob for one in sampled])
        member = np.zeros(n, np.int64) if state is None else state.member.copy()
        if fresh.any() and len(sampled) > 1:
            member[fresh] = self._rng.choice(len(sampled), int(fresh.sum()), p=probs / probs.sum())
        memory = {}
        for k, one in enumerate(sampled):
            if (shape := one.policy.memory_shape) is not None:
                if state is not None and (k not in state.memory or state.memory[k].shape[1:] != shape):
                    raise PolicyError(
                        "the state of another policy was given; expected what this one answered, or None."
                    )
                memory[k] = np.zeros((n, *shape), np.float32) if state is None else state.memory[k].copy()
                memory[k][fresh] = 0.0
        return member, memory

    def _vector(self, env: Any) -> VectorEnv:
        if env is None:
            if self._env is None:
                raise PolicyError(
                    "no environment was given, and a file does not say which was trained in: give play(env)."
                )
            return self._env.played.make(num_envs=1)
        value = Environment.of(env)
        options = value if isinstance(value, Environment) else Environment(**{"num_envs": 1, **value})
        if self._env is not None and not isinstance(env, str | Environment):
            sides = {field.name for field in fields(Sides)} if _has_agents(env) else set()
            own = {key: option for key, option in self._env.options.items() if key in sides}
            options = options.model_copy(update={"wrappers": self._env.wrappers, "options": {**own, **options.options}})
        return options.make(num_envs=1)


def _has_agents(env: Any) -> bool:
    return hasattr(env, "possible_agents") or callable(env)


def _shape(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Of a policy's observations, as far as its spec says; a flat width stands for any shape of that size."""
    if "inputs" in config:
        return (int(config["inputs"]),)
    if "shape" in config and "low" not in config:
        return tuple(int(n) for n in config["shape"])
    parts = [
        part["config"]
        for part in config.values()
        if isinstance(part, Mapping) and isinstance(part.get("config"), Mapping)
    ]
    return next((shape for part in parts if (shape := _shape(part)) is not None), None)


@standard_settings()
def load_policy(
    name: str | PathLike[str], *, player: int | None = None, seed: int | None = None, trust: bool = False
) -> TrainedPolicy:
    """Load a policy by its name.

    Args:
        name: RUN, RUN@meta, RUN@12, RUN@best, RUN@strongest, RUN@newest, RUN@PLAYER/POLICY, or a file.
        player: Player that `predict` acts for; default: the first one that the policy plays without a bot.
        seed: Seed of sampling; None: different each time.
        trust: Whether code that it names is imported though the run or file was made elsewhere; kept in a run.

    Returns:
        The policy, with `predict` and `play`.

    Raises:
        ConfigError: For an unknown name, with the nearest one.
        RunError: If the run cannot be read.
        PolicyError: If the policy cannot be read, or is a bot.
        TrustError: It names code of somebody else's, which is not trusted.
    """
    with trusting(trust):
        return _load(name, player, seed)


def _load(name: str | PathLike[str], player: int | None, seed: int | None) -> TrainedPolicy:
    wanted = parse_policy_name(str(name), find_run, open_run, what="policy", forms=FORMS)
    if wanted.bot or wanted.random:
        raise ConfigError(f"{str(name)!r} is no trained policy. Expected {FORMS}.")
    if wanted.run is None:
        assert wanted.file is not None
        return TrainedPolicy(
            [[SampledPolicy(wanted.file.stem, read_policy(wanted.file))]], player=player or 0, seed=seed
        )
    run: StoredRun = wanted.run
    seats = sampled_policies(run, policy_probabilities(wanted, run))
    if player is None:
        able = [p for p, policies in enumerate(seats) if policies]
        player = next((p for p in able if not _bots_among(seats[p])), able[0])
    if 0 <= player < len(seats) and (bots := _bots_among(seats[player])):
        raise _is_bot(str(name), run, player, bots[0])
    return TrainedPolicy(seats, player=player, env=run.env, seed=seed)


def _bots_among(policies: Sequence[SampledPolicy]) -> list[BotPolicy]:
    return [sampled.policy for sampled in policies if isinstance(sampled.policy, BotPolicy)]


def _is_bot(name: str, run: StoredRun, player: int, bot: BotPolicy) -> PolicyError:
    """Return what is said where a bot is asked for as a policy."""
    trained = [record.ref for record in run.members[run.population[player]] if run.trained(record)]
    head = name.rpartition("@")[0] or name
    other = f"Load one that was trained, such as {head}@{run.name(trained[-1])}" if trained else "Load another player's"
    return PolicyError(
        f"{name!r} has the bot {bot.bot.text!r} play player {player}: a bot is asked beside the environment that it plays in, and there "
        f"are no weights to load. {other}; matches, tournaments, recordings and runs take bots."
    )
