"""`vmas/<scenario>`: VMAS's batched scenarios. The vector is VMAS's own batch, on any device: what lives on the host publishes its rows."""

from __future__ import annotations

import hashlib
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor

from ludus.backend.device import scalars_to_host, to_device, to_numpy
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs.adapters.agent_seats import check_limit, seat_agents, split_options
from ludus.envs.base import NoSnapshotMixin, VectorEnv
from ludus.envs.device_vector import DeviceSlots, DeviceTimestep, DeviceVectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED, Publisher
from ludus.envs.python_vector import check_actions

# --------------------------------------------------------------------------------------------------------------------
# VMAS's batch: one call steps all environments. Some of them begin again from states that a reset of all gave, and that wait for them: VMAS
# itself resets either all, or one by one, each at nearly the price of all.

_ONE_BY_ONE = (
    "ball_passage",
    "football",
    "road_traffic",
    "sampling",
    "simple_adversary",
    "simple_push",
    "simple_reference",
    "simple_speaker_listener",
)
"""Scenarios of which some environments are reset one by one, since a reset of all chooses what all share, a goal say, or since what belongs
to each is not stored in rows."""


def _rows(batch: Any) -> Iterator[tuple[tuple[Any, ...], Any, Any, Tensor]]:
    """Return (path, container, key, tensor) of all that the batch, its world and its scenario hold for each environment, a row each."""
    scenario = type(batch.scenario).__module__  # which is loaded from a file, into no package
    visited: set[int] = set()
    todo = deque([((), batch.world), ((0,), batch.scenario), ((1,), batch)])  # the shortest way to a thing names it
    while todo:
        path, thing = todo.popleft()
        held: Any = thing
        module = type(thing).__module__
        if (module == scenario or module.startswith("vmas.")) and hasattr(thing, "__dict__"):
            held = vars(thing)
        if not isinstance(held, dict | list | tuple) or id(held) in visited:
            continue
        visited.add(id(held))
        for key, value in held.items() if isinstance(held, dict) else enumerate(held):
            if not isinstance(value, Tensor):
                todo.append(((*path, key), value))
            elif value.ndim and len(value) == batch.num_envs and not isinstance(held, tuple):
                yield (*path, key), held, key, value


class _Batch:
    """A `vmas.Environment` that `make()` makes, with a random stream of its own: by itself, all of a process's share one.

    What VMAS raises becomes EnvError.
    """

    def __init__(self, make: Callable[[], Any], batch: Any, spec: EnvSpec, label: Callable[[], str]) -> None:
        """Wrap a batch. batch: the first; for others a new one is made, since some scenarios keep state. label: describes the state in
        errors."""
        self._apart = spec.id.rpartition("/")[2] not in _ONE_BY_ONE
        self.vmas = batch
        self.num_envs = int(batch.num_envs)
        self._make, self._label = make, label
        self._started = False
        self._random = list(type(batch).vmas_random_state)
        self._cuda: Tensor | None = None
        self._waiting: Mapping[tuple[Any, ...], Tensor] = {}
        self._used = self.num_envs

    def begin(self, seed: int) -> list[Tensor]:
        """Return the observations of a new batch. seed: in [0, 2 ** 31)."""
        with self._guarded("reset"):
            if self._started:
                self.close()
                self.vmas = self._make()
            self._started, self._waiting, self._used = True, {}, self.num_envs
            observations: list[Tensor] = self.vmas.reset(seed=seed)
        return observations

    def step(self, actions: list[Tensor]) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
        """Return (observations, rewards, terminated bool[E], truncated bool[E])."""
        with self._guarded("step"):
            observations, rewards, terminated, truncated, _ = self.vmas.step(actions)
        return observations, rewards, terminated.reshape(-1), truncated.reshape(-1)

    def renew(self, over: Tensor, count: int) -> list[Tensor]:
        """Reset the environments over, bool[E], whose number is `count`. Returns the observations of all."""
        with self._guarded("reset"):
            if count == self.num_envs:
                observations: list[Tensor] = self.vmas.reset()
                return observations
            if self._apart:
                self._renew(over, count)
            else:
                for environment in np.flatnonzero(to_numpy(over)).tolist():
                    self.vmas.reset_at(environment, return_observations=False)
            (observations,) = self.vmas.get_from_scenario(
                get_observations=True, get_rewards=False, get_infos=False, get_dones=False
            )
        return observations

    def _renew(self, over: Tensor, count: int) -> None:
        if count > self.num_envs - self._used:
            self._reset_aside()
        place = (self._used - 1 + over.cumsum(0)).clamp(0, self.num_envs - 1)
        self._used += count
        put: dict[tuple[int, int], Tensor] = {}  # what is held twice stays so
        for path, held, key, now in list(_rows(self.vmas)):
            new = self._waiting.get(path)
            if new is not None and new.shape == now.shape:
                if (id(now), id(new)) not in put:
                    put[id(now), id(new)] = _select(over, new.index_select(0, place), now)
                held[key] = put[id(now), id(new)]

    def _reset_aside(self) -> None:
        """Prepare states for later resets; the states that are played do not change."""
        playing = _copies(self.vmas)
        self.vmas.reset(return_observations=False)
        self._waiting, self._used = _copies(self.vmas), 0
        for path, held, key, now in list(_rows(self.vmas)):
            held[key] = playing.get(path, now)

    def render(self, environment: int) -> NDArray[np.uint8]:
        """Return an image."""
        with self._guarded("render"):
            image = self.vmas.render(mode="rgb_array", env_index=environment, visualize_when_rgb=False)
        return np.ascontiguousarray(image, np.uint8)

    def close(self) -> None:
        """Close the window that it may have drawn in."""
        if self.vmas.viewer is not None:
            self.vmas.viewer.close()
            self.vmas.viewer = None

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        """Call VMAS with this batch's own random stream."""
        shared, device = type(self.vmas).vmas_random_state, torch.device(self.vmas.device)
        gpu = device if device.type == "cuda" else None
        process_state, shared[:] = list(shared), self._random
        process_cuda_state = None if gpu is None else torch.cuda.get_rng_state(gpu)
        if gpu is not None and self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, gpu)
        try:
            yield
        except Exception as error:
            raise EnvError(f"{self._label()} raised {type(error).__name__} in {doing}: {error}") from error
        finally:
            self._random, shared[:] = list(shared), process_state
            if gpu is not None and process_cuda_state is not None:
                self._cuda = torch.cuda.get_rng_state(gpu)
                torch.cuda.set_rng_state(process_cuda_state, gpu)


def _copies(batch: Any) -> dict[tuple[Any, ...], Tensor]:
    """Copy all rows, by path; a tensor that is held twice is copied once."""
    held = [(path, now) for path, _, _, now in _rows(batch)]
    copies = {id(now): now.clone() for _, now in held}
    return {path: copies[id(now)] for path, now in held}


def _select(over: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old)


class _Seats:
    """Which of VMAS's agents sit where. order: VMAS's number of each agent of the spec. masks[p]: bool[agents, A], or None."""

    def __init__(self, spec: EnvSpec, order: Sequence[int], masks: Sequence[NDArray[np.bool_] | None]) -> None:
        self.spec, self.masks = spec, masks
        self.agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        places = [(p, k) for p, members in enumerate(self.agents) for k in range(members)]
        self.places = list(zip(places, order, strict=True))

    def actions(self, player_actions: Sequence[Tensor]) -> list[Tensor]:
        """Return one tensor [E, …] for each of VMAS's agents, of [E, agents, …] for each player."""
        out: list[Tensor] = [torch.empty(0)] * len(self.places)
        for (p, k), i in self.places:
            out[i] = player_actions[p][:, k]
        return out


# --------------------------------------------------------------------------------------------------------------------
# On a device: nothing leaves it but how many environments are over. (VMAS reads a dozen numbers in each step, to check them.)


class VmasDeviceEnv:
    """`DeviceVectorEnv` over a batch. All environments draw from one stream of random numbers, which the seed begins."""

    def __init__(self, batch: _Batch, seats: _Seats) -> None:
        self.spec, self.num_envs, self.device = seats.spec, batch.num_envs, torch.device(batch.vmas.device)
        self._batch, self._seats = batch, seats
        self._masks = [
            None if mask is None else to_device(mask, self.device).expand(self.num_envs, *mask.shape)
            for mask in seats.masks
        ]
        self._quota: int | None = None
        self._num_finished: Tensor | None = None
        self._length = self._returns = torch.empty(0)

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Reset as `DeviceVectorEnv.reset` describes. Raises EnvError for what the scenario raises."""
        if episodes is not None and episodes < 1:
            raise EnvError(f"episodes is {episodes}; expected at least 1, or None for no limit.")
        observations = self._stack_observations(self._batch.begin(seed & 0x7FFFFFFF))
        self._quota = episodes
        self._num_finished = self._length = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._returns = torch.zeros(self.num_envs, self.spec.num_players, dtype=torch.float64, device=self.device)
        never = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        nothing = [torch.zeros(self.num_envs, n, device=self.device) for n in self._seats.agents]
        return self._timestep(observations, observations, nothing, never, never, ~never)

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """Step as `DeviceVectorEnv.step` describes. Raises EnvError for what the scenario raises."""
        if self._num_finished is None:
            raise EnvError("step was called before reset; reset the environment first.")
        playing = (
            torch.ones_like(self._num_finished, dtype=torch.bool)
            if self._quota is None
            else self._num_finished < self._quota
        )
        last, earned, terminated, truncated = self._batch.step(self._seats.actions(actions))
        final = observations = self._stack_observations(last)
        over = (terminated | truncated) & playing
        rewards = [observations[p].new_empty(self.num_envs, n) for p, n in enumerate(self._seats.agents)]
        for (p, k), i in self._seats.places:
            rewards[p][:, k] = earned[i].reshape(-1)
        self._num_finished, self._length = self._num_finished + over, self._length + playing
        self._returns = self._returns + torch.stack([r.sum(1) for r in rewards], dim=1)
        goes_on = playing if self._quota is None else self._num_finished < self._quota
        again = over & goes_on
        if count := int(scalars_to_host([again.sum()])[0]):
            observations = self._stack_observations(self._batch.renew(again, count))
        timestep = self._timestep(observations, final, rewards, over, over & terminated, goes_on)
        self._length, self._returns = torch.where(over, 0, self._length), torch.where(over[:, None], 0.0, self._returns)
        return timestep

    def close(self) -> None:
        """Close as `DeviceVectorEnv.close` describes."""
        self._batch.close()

    def _stack_observations(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return float32[E, agents, n] of each player; those that see fewer numbers see zeros too."""
        out = []
        for p, agents in enumerate(self._seats.agents):
            shape = (self.num_envs, agents, *(self.spec.agents_of(p)[0].observation.shape or ()))
            out.append(torch.zeros(shape, device=self.device))
        for (p, k), i in self._seats.places:
            out[p][:, k, : tensors[i].shape[1]] = tensors[i]
        return out

    def _timestep(
        self,
        observations: Sequence[Tensor],
        final: Sequence[Tensor],
        rewards: Sequence[Tensor],
        over: Tensor,
        terminated: Tensor,
        due: Tensor,
    ) -> DeviceTimestep:
        slots = tuple(
            DeviceSlots(
                observation=observations[p],
                mask=self._masks[p],
                due=due[:, None].expand(-1, agents),
                reward=rewards[p],
                ended=over[:, None].expand(-1, agents),
                terminated=terminated[:, None].expand(-1, agents),
                final=final[p],
            )
            for p, agents in enumerate(self._seats.agents)
        )
        return DeviceTimestep(slots, over, self._returns, terminated, self._length)


# --------------------------------------------------------------------------------------------------------------------
# On the host.
#
#     actions -> step the batch -> final observations -> reset those that are over -> publish


class VmasVectorEnv(NoSnapshotMixin):
    """`VectorEnv` over a batch on the CPU. make(num_envs=…, device=…): a `vmas.Environment` with `terminated_truncated`.

    All environments draw from one stream of random numbers, which the seeds begin together: equal vectors play equal episodes.
    """

    def __init__(self, make: Callable[..., Any], batch: Any, seats: _Seats) -> None:
        """Make the vector. batch: the first, on the CPU."""
        self.spec = seats.spec
        self.num_envs = int(batch.num_envs)
        self._make, self._seats = make, seats
        self._batch = _Batch(partial(make, num_envs=self.num_envs, device="cpu"), batch, self.spec, self._label)
        self._pub = Publisher(self.spec, self.num_envs, masked=[mask is not None for mask in seats.masks])
        self._actions = [
            self._no_actions(self.spec.agents_of(p)[0].action, agents) for p, agents in enumerate(seats.agents)
        ]
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError for what the scenario raises."""
        begins = self._pub.reset(seeds, episodes)
        digest = hashlib.blake2b(np.ascontiguousarray(seeds, np.uint64).tobytes(), digest_size=4).digest()
        self._show(self._batch.begin(int.from_bytes(digest, "little") & 0x7FFFFFFF))
        self._begin(begins)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError for wrong actions, and for what the scenario raises or gives that is no
        number."""
        last, pub = self._last, self._pub
        if last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for p, due in enumerate(last.due):
            player_actions, space = np.asarray(actions[p]), self.spec.agents_of(p)[0].action
            if len(player_actions) != len(due.slot):
                raise EnvError(
                    f"player {p} was given {len(player_actions)} actions for {len(due.slot)} due decisions; one each."
                )
            check_actions(space, player_actions, mask=due.mask, what=f"player {p} of {self.spec.id}")
            self._actions[p].reshape(-1, *self._actions[p].shape[2:])[due.slot] = player_actions
            pub.due[p].fill(False)
        observations, rewards, terminated, truncated = self._batch.step(
            self._seats.actions([torch.from_numpy(action) for action in self._actions])
        )
        self._show(observations)
        for (p, k), i in self._seats.places:
            earned = pub.reward[p].reshape(self.num_envs, -1)
            earned[:, k] = rewards[i].reshape(-1).numpy()
            earned[pub.idle, k] = 0  # the batch continues without them
        pub.over[:] = np.where(terminated, TERMINATED, np.where(truncated, TRUNCATED, GOES_ON))
        pub.over[pub.idle] = GOES_ON
        self._end(np.flatnonzero(pub.over))
        return self._publish()

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Make the environments on a device as `OffersDevice` describes."""
        make = partial(self._make, num_envs=num_envs, device=device)
        label = f"{self.spec.id}, {num_envs} environments on {device},"
        return VmasDeviceEnv(_Batch(make, make(), self.spec, lambda: label), self._seats)

    def render(self, environment: int) -> NDArray[np.uint8]:
        """Render as `SupportsRender.render` describes. Raises EnvError where there is neither a screen nor EGL."""
        return self._batch.render(environment)

    def close(self) -> None:
        """Close the window that it may have drawn in."""
        self._last = None
        self._batch.close()

    # ------------------------------------------------------------------------------------------ rows

    def _no_actions(self, space: Any, agents: int) -> Array:
        """Return [E, agents, *shape]: what those who are not due do."""
        dtype = np.float32 if isinstance(space, spaces.Box) else np.int64
        return np.zeros((self.num_envs, agents, *space.shape), dtype)

    def _show(self, observations: Sequence[Tensor], rows: NDArray[np.int64] | None = None) -> None:
        """Put observations, of all or of some environments, into the rows; those of a player with one agent are taken as they are."""
        pub = self._pub
        for (p, k), i in self._seats.places:
            array = observations[i].numpy()
            if rows is None and array.shape == pub.observation[p].shape and array.dtype == np.float32:
                pub.observation[p] = array
                continue
            dense = pub.observation[p].reshape(self.num_envs, pub.agents[p], -1)
            if rows is None:
                dense[:, k, : array.shape[1]] = array
            else:
                dense[rows, k, : array.shape[1]] = array[rows]

    def _end(self, over: NDArray[np.int64]) -> None:
        """Keep the last observations of ended episodes and begin the next ones."""
        pub = self._pub
        if len(over):
            for p, agents in enumerate(pub.agents):
                shape = (self.num_envs, agents, -1)
                pub.final[p].reshape(shape)[over] = pub.observation[p].reshape(shape)[over]
                self._put_masks(pub.final_mask[p], p)
            more = pub.begin_next()
            if len(more):
                renewed = torch.zeros(self.num_envs, dtype=torch.bool)
                renewed[torch.from_numpy(more)] = True
                self._show(self._batch.renew(renewed, len(more)), more)
        self._begin(np.flatnonzero(~pub.idle))

    def _begin(self, playing: NDArray[np.int64]) -> None:
        """Mark all agents in these environments as due."""
        for p, agents in enumerate(self._pub.agents):
            self._pub.due[p].reshape(self.num_envs, agents)[playing] = True
            self._put_masks(self._pub.mask[p], p)

    def _put_masks(self, target: NDArray[np.bool_] | None, player: int) -> None:
        legal = self._seats.masks[player]
        if target is not None and legal is not None:
            target.reshape(self.num_envs, *legal.shape)[:] = legal

    def _label(self) -> str:
        pub = self._pub
        return (
            f"{self.spec.id} ({self.num_envs} environments are one batch, seeds {pub.seeds.tolist()}, episodes {pub.episode.tolist()}, "
            f"steps {pub.length.tolist()})"
        )

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last


_OURS = ("device", "dict_spaces", "grad_enabled", "seed", "terminated_truncated", "wrapper", "wrapper_kwargs")
_MAX_STEPS = 100


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of a scenario of VMAS's.

    Args:
        name: Of the scenario.
        num_envs: Number of environments.
        options: max_steps (default 100; None: until the scenario is done), continuous_actions (default true), multidiscrete_actions,
            clamp_actions (default true: actions beyond their range are clipped), those of the scenario, and those of
            `ludus.envs.adapters.agent_seats.Sides`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such scenario.
        ConfigError: An option is not taken.
        EnvError: The scenario cannot be made.
    """
    import vmas

    known = [*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios]
    if name not in known:
        raise UnknownName("VMAS scenario", name, known)
    sides, env_options = split_options(options, defaults={"determinism": "vector"})
    if sides.state:
        raise ConfigError("state=true was given; scenarios of VMAS have no common state. Leave it out.")
    if reserved := sorted(set(env_options) & set(_OURS)):
        raise ConfigError(f"option {reserved[0]!r} of vmas/{name} is set by Ludus; leave it out.")
    check_limit("max_steps", env_options.get("max_steps"))
    make_batch = partial(_make, name, {"max_steps": _MAX_STEPS, "clamp_actions": True, **env_options})
    batch = make_batch(num_envs=num_envs, device="cpu")
    agents = [agent.name for agent in batch.agents]
    spaces_of = {
        agent: (_space(observation, agent, name), _space(action, agent, name))
        for agent, observation, action in zip(
            agents, batch.observation_space.spaces, batch.action_space.spaces, strict=True
        )
    }
    spec, seats, masked = seat_agents(
        f"vmas/{name}", agents, spaces_of, sides=sides, masked=False, clip=False, state=None
    )
    masks = [
        np.stack([_legal(seats[agent.name].legal, agent.action) for agent in spec.agents_of(p)]) if has_masks else None
        for p, has_masks in enumerate(masked)
    ]
    order = [agents.index(agent.name) for agent in spec.agents]
    return VmasVectorEnv(make_batch, batch, _Seats(spec, order, masks))


def names() -> list[str]:
    """Return VMAS's scenarios and its versions of MPE's, sorted; those for debugging can be made too."""
    import vmas

    return sorted([*vmas.scenarios, *vmas.mpe_scenarios])


def _make(name: str, options: dict[str, Any], *, num_envs: int, device: str | torch.device) -> Any:
    from vmas import make_env

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Force limits not specified")
        warnings.filterwarnings("error", message="Scenario kwargs")  # an option that is not taken
        try:
            return make_env(name, num_envs=num_envs, device=device, seed=0, terminated_truncated=True, **options)
        except (TypeError, AssertionError, ValueError, UserWarning) as error:
            raise ConfigError(f"vmas/{name} cannot be made with {options}: {error}.") from error


def _space(space: Any, agent: str, name: str) -> Space[Any]:
    """Convert a space: VMAS describes its spaces with the old gym's classes."""
    kind = type(space).__name__
    if kind == "Box" and len(space.shape) == 1:
        return gymnasium.spaces.Box(space.low, space.high, space.shape, np.float32)
    if kind == "Discrete":
        return gymnasium.spaces.Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return gymnasium.spaces.MultiDiscrete(np.asarray(space.nvec))
    raise EnvError(f"agent {agent!r} of vmas/{name} has the space {space}; expected vectors or discrete actions.")


def _legal(legal: Any, action: Any) -> Any:
    return np.ones(int(action.n), np.bool_) if legal is None else legal
