"""What a functional environment is, and its vector as two compiled functions: a step begins new episodes, too.

adapter (`FunctionalEnv`, of one environment) -> `Program` (of E environments, rows by player) -> the vectors of `functional.vector`
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.envs.adapters.agent_seats import AgentName, Sides, seat_agents
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.python_vector import ONE_NUMBER
from ludus.envs.spaces import Choices

# Before JAX looks for devices: a GPU is shared with torch, so most of its memory is not reserved in advance.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

Value: TypeAlias = Any
"""An array of JAX's, or what stands for one while a function is compiled."""
Struct: Any = jax.ShapeDtypeStruct  # which has no types
KEY = Struct((2,), np.uint32)
"""The form of a key, for `jax.eval_shape`."""


# --------------------------------------------------------------------------------------------------------------------
# One environment, as a package's adapter describes it.


class AgentViews(NamedTuple):
    """What N agents see of one environment.

    Attributes:
        observation: float32, an array for each agent.
        mask: bool[A], legal actions of each, or None.
        due: bool[N], agents that must act now.
        state: For central critics, or None.
    """

    observation: tuple[Value, ...]
    mask: tuple[Value, ...] | None
    due: Value
    state: Value | None = None


class StepOutcome(NamedTuple):
    """Rewards and ends of a step.

    Attributes:
        reward: float32[N].
        terminated: bool.
        truncated: bool.
    """

    reward: Value
    terminated: Value
    truncated: Value


class FunctionalEnv(Protocol):
    """One environment as pure functions, which JAX can trace.

    Attributes:
        id: What to call it in messages.
        spaces: By agent, (observations, actions).
        masked: Whether there are masks.
        state: The space of `AgentViews.state`, if there is one.
    """

    @property
    def id(self) -> str: ...
    @property
    def spaces(self) -> Mapping[str, tuple[Space[Any], Space[Any]]]: ...
    @property
    def masked(self) -> bool: ...
    @property
    def state(self) -> Space[Any] | None: ...

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode.

        Args:
            key: uint32[2], of JAX.

        Returns:
            (state, what the agents see).
        """
        ...

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step.

        Args:
            state: Of the environment.
            actions: Of each agent; of an agent that is not due, any action.
            key: uint32[2]; all random numbers of the step come from it.

        Returns:
            (the next state, what the agents see, rewards and ends).
        """
        ...

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return what each agent sees when the episode is over.

        Args:
            state: The last state.
            views: What `step` returned.
        """
        ...


def fit(value: Value) -> Value:
    """Convert to float32, as observations are. Bytes are flags and small counts in the packages that are played here, and no pixels."""
    return jnp.asarray(value).astype(jnp.float32)


def flat(tree: Value) -> Value:
    """Return float32[n]: the leaves of a nested observation, concatenated; a single leaf keeps its shape."""
    leaves = jax.tree.leaves(tree)
    if len(leaves) == 1:
        return fit(leaves[0])
    return jnp.concatenate([jnp.asarray(leaf).astype(jnp.float32).reshape(-1) for leaf in leaves])


def agent_rewards(reward: Value, agents: int, *, what: str) -> Value:
    """Return float32[agents]: a reward of each, or one of all. Raises EnvError for rewards of several numbers."""
    values = jnp.asarray(reward).astype(jnp.float32).reshape(-1)
    if values.size not in (1, agents):
        raise EnvError(f"{what} rewards {agents} agents with numbers of shape {jnp.shape(reward)}; {ONE_NUMBER}.")
    return jnp.broadcast_to(values, (agents,))


def unbounded_box(observation: Any) -> spaces.Box:
    """Return the space of observations of this shape (`jax.eval_shape` gives it)."""
    return spaces.Box(-np.inf, np.inf, observation.shape, np.float32)


def to_gymnasium_space(space: Any, *, what: str) -> Space[Any]:
    """Return a space of gymnax's and JaxMARL's own classes, which are named as Gymnasium's. Raises EnvError for others."""
    kind = type(space).__name__
    if kind == "Discrete":
        return spaces.Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.num_categories))
    if kind == "Box":
        shape = space.shape if isinstance(space.shape, tuple) else (int(space.shape),)
        low, high = (np.broadcast_to(np.asarray(end, np.float32), shape) for end in (space.low, space.high))
        return spaces.Box(low, high, shape, np.float32)
    raise EnvError(f"{what} has the space {kind}, which Ludus does not play; expected Discrete, MultiDiscrete or Box.")


# --------------------------------------------------------------------------------------------------------------------
# E environments. Rows of a player are (environment, agent), as slots are.


class BatchedStep(NamedTuple):
    """A step of E environments, for P players of n agents each, [E × n, …] a player.

    Attributes:
        observation: Of the decisions that are due now, new episodes' included; mask and due likewise.
        reward: float32.
        over: uint8[E], how an episode ended in this step, or GOES_ON.
        final: Before new episodes began, read where over; final_mask likewise.
        state: [E, …], or None; final_state likewise, read where over.
    """

    observation: tuple[Value, ...]
    mask: tuple[Value | None, ...]
    due: tuple[Value, ...]
    reward: tuple[Value, ...]
    over: Value
    final: tuple[Value, ...]
    final_mask: tuple[Value | None, ...]
    state: Value | None
    final_state: Value | None


class BatchedState(NamedTuple):
    """E environments between steps.

    Attributes:
        state: The package's, each leaf [E, …].
        seed: uint32[E, 2], the two halves of each environment's seed.
        episode: int32[E]; length likewise.
        key: uint32[E, 2], of the episodes.
    """

    state: Value
    seed: Value
    episode: Value
    length: Value
    key: Value


class _Place(NamedTuple):
    """Where an agent of the package sits. pad: zeros after its observation. legal: bool[A] of its player's actions; None: all are its."""

    agent: int
    pad: int
    legal: NDArray[np.bool_] | None


class Program:
    """A functional environment, its players, and the two functions that JAX compiles once for each number of environments.

    All chance of episode k in environment e comes from (seed of e, k). Raises EnvError for spaces that do not go together in a player.
    """

    def __init__(self, env: FunctionalEnv, sides: Sides) -> None:
        self.env = env
        agents = list(env.spaces)
        of_each: dict[AgentName, tuple[Space[Any], Space[Any]]] = {agent: env.spaces[agent] for agent in agents}
        self.spec, seats, masked = seat_agents(
            env.id,
            agents,
            of_each,
            sides=sides,
            masked=env.masked,
            clip=False,
            state=env.state if sides.state else None,
        )
        self.masked = masked
        self.agents = [len(self.spec.agents_of(p)) for p in range(self.spec.num_players)]
        self._places: list[list[_Place]] = []
        for p in range(self.spec.num_players):
            places = []
            for agent in self.spec.agents_of(p):
                seat = seats[agent.name]
                pad = seat.pad_to - seat.observation.shape[0] if seat.pad_to else 0
                places.append(_Place(agents.index(agent.name), pad, seat.legal))
            self._places.append(places)
        self._with_state = sides.state
        self.begin = jax.jit(self._begin)
        """seed uint32[E, 2] -> (Carry, Shown) of first episodes."""
        self.step = jax.jit(self._step)
        """Carry, actions [E, n, …] of each player -> (Carry, Shown)."""

    # ------------------------------------------------------------------------------------------ compiled

    def _begin(self, seed: Value) -> tuple[BatchedState, BatchedStep]:
        num_envs = seed.shape[0]
        nothing = jnp.zeros(num_envs, jnp.int32)
        key, state, views = self._new(seed, nothing)
        reward = jnp.zeros((num_envs, len(self.env.spaces)), jnp.float32)
        over = jnp.full(num_envs, GOES_ON, jnp.uint8)
        batch = self._batched_step(views, views, views.observation, reward, over)
        return BatchedState(_strong(state), seed, nothing, nothing, key), batch

    def _step(self, carry: BatchedState, actions: tuple[Value, ...]) -> tuple[BatchedState, BatchedStep]:
        keys = jax.vmap(jax.random.fold_in)(carry.key, carry.length + 1)
        state, last, earned = jax.vmap(self.env.step)(carry.state, self._by_agent(actions), keys)
        state = jax.tree.map(lambda now, before: jnp.asarray(now).astype(before.dtype), state, carry.state)
        state = _strong(state)
        over = earned.terminated | earned.truncated
        how = jnp.where(earned.terminated, TERMINATED, jnp.where(over, TRUNCATED, GOES_ON)).astype(jnp.uint8)

        def start_next() -> tuple[Value, ...]:
            key, new, views = self._new(carry.seed, carry.episode + 1)
            final = jax.vmap(self.env.final)(state, last)
            return _select(over, (key, new, views), (carry.key, state, last)), final

        def continue_episodes() -> tuple[Value, ...]:
            return (carry.key, state, last), last.observation

        ((key, state, views), final) = jax.lax.cond(over.any(), start_next, continue_episodes)
        length = jnp.where(over, 0, carry.length + 1)
        batch = self._batched_step(views, last, final, earned.reward, how)
        return BatchedState(state, carry.seed, carry.episode + over, length, key), batch

    def _new(self, seed: Value, episode: Value) -> tuple[Value, Value, AgentViews]:
        """Return (keys uint32[E, 2], states, what is seen) of new episodes of these numbers."""
        key = jax.vmap(jax.random.fold_in)(seed, episode)
        state, views = jax.vmap(lambda k: self.env.init(jax.random.fold_in(k, 0)))(key)
        return key, state, _strong(views)

    def _by_agent(self, actions: Sequence[Value]) -> tuple[Value, ...]:
        """Return [E, …] of each of the package's agents."""
        out: list[Value] = [None] * len(self.env.spaces)
        for places, rows in zip(self._places, actions, strict=True):
            for k, place in enumerate(places):
                out[place.agent] = rows[:, k]
        return tuple(out)

    def _batched_step(
        self, views: AgentViews, last: AgentViews, final: Sequence[Value], reward: Value, over: Value
    ) -> BatchedStep:
        with_state = self._with_state
        return BatchedStep(
            observation=self._rows(views.observation),
            mask=self._masks(views),
            due=self._columns(views.due),
            reward=self._columns(reward.astype(jnp.float32)),
            over=over,
            final=self._rows(final),
            final_mask=self._masks(last),
            state=views.state if with_state else None,
            final_state=last.state if with_state else None,
        )

    def _rows(self, observation: Sequence[Value]) -> tuple[Value, ...]:
        """Return [E × n, …] of each player; shorter vectors end in zeros."""
        return tuple(_stacked([_padded(observation[at], pad) for at, pad, _ in places]) for places in self._places)

    def _masks(self, views: AgentViews) -> tuple[Value | None, ...]:
        """Return bool[E × n, A] of each player."""
        out: list[Value | None] = []
        for p, places in enumerate(self._places):
            if not self.masked[p]:
                out.append(None)
                continue
            choices = Choices.of(self.spec.agents_of(p)[0].action)
            assert choices is not None
            out.append(_stacked([self._mask(views, place, choices.width) for place in places]))
        return tuple(out)

    def _mask(self, views: AgentViews, place: _Place, width: int) -> Value:
        if views.mask is None:
            legal = np.ones(width, np.bool_) if place.legal is None else place.legal
            return jnp.broadcast_to(legal, (views.due.shape[0], width))
        own = jnp.asarray(views.mask[place.agent]).astype(jnp.bool_)
        return own if own.shape[1] == width else jnp.pad(own, ((0, 0), (0, width - own.shape[1])))

    def _columns(self, values: Value) -> tuple[Value, ...]:
        """Return [E × n] of each player, of [E, N]."""
        return tuple(values[:, np.array([place.agent for place in places])].reshape(-1) for places in self._places)


def _stacked(rows: Sequence[Value]) -> Value:
    """Return [E × n, …] of n arrays [E, …]."""
    if len(rows) == 1:
        return rows[0]
    return jnp.stack(rows, axis=1).reshape(-1, *rows[0].shape[1:])


def _padded(rows: Value, pad: int) -> Value:
    return rows if pad == 0 else jnp.pad(rows, ((0, 0), (0, pad)))


def _strong(tree: Value) -> Value:
    """Return the tree with no leaf whose dtype JAX would change by itself, so that what is compiled once fits again."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), tree)


def _select(over: Value, new: Value, old: Value) -> Value:
    """Select leaf by leaf: new where over, bool[E]."""

    def choose(a: Value, b: Value) -> Value:
        return jnp.where(over.reshape(-1, *[1] * (b.ndim - 1)), a.astype(b.dtype), b)

    return jax.tree.map(choose, new, old)


def split_seeds(seeds: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Split uint64[E] into uint32[E, 2], as JAX has its keys."""
    whole = np.ascontiguousarray(seeds, np.uint64)
    return np.stack([whole >> np.uint64(32), whole & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)
