"""`vmas/<scenario>`: VMAS's batched scenarios; the vector is VMAS's own batch, on the CPU."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs.adapters.teams import seat_agents, split_options
from ludus.envs.base import Unsaved, VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED, Publisher
from ludus.envs.python_loop import check_actions

# --------------------------------------------------------------------------------------------------------------------
# VMAS's batch as a vector: one call steps all environments, in torch on the CPU; its tensors become rows. actions
# -> step the batch -> final observations -> `reset_at` of those that are over -> publish


class VmasVectorEnv(Unsaved):
    """`VectorEnv` over a `vmas.Environment` that `make()` makes with `terminated_truncated`, anew for each reset, since some scenarios
    remember things. batch: the first. order: VMAS's number of each agent of the spec. masks[p]: bool[agents, A], or None.

    All environments draw from one stream of random numbers, which the seeds begin together: equal vectors play equal episodes.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        batch: Any,
        spec: EnvSpec,
        *,
        order: Sequence[int],
        masks: Sequence[NDArray[np.bool_] | None],
    ) -> None:
        self.spec = spec
        self.num_envs = int(batch.num_envs)
        self._make = make
        self._batch = batch
        self._played = False
        self._order = order
        self._pub = Publisher(spec, self.num_envs, masked=[mask is not None for mask in masks])
        self._masks = masks
        agents = [spec.agents_of(p) for p in range(spec.num_players)]
        self._players = [(p, k) for p, members in enumerate(agents) for k in range(len(members))]
        self._actions = [self._no_actions(members[0].action, len(members)) for members in agents]
        self._random = list(type(batch).vmas_random_state)
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError for what the scenario raises."""
        pub = self._pub
        begins = pub.reset(seeds, episodes)
        digest = hashlib.blake2b(np.ascontiguousarray(seeds, np.uint64).tobytes(), digest_size=4).digest()
        with self._guarded("reset"):
            if self._played:
                self.close()
                self._batch = self._make()
            self._played = True
            seen = self._batch.reset(seed=int.from_bytes(digest, "little") & 0x7FFFFFFF)
        self._show(seen)
        self._begin(begins)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for wrong actions, and for what the scenario raises or gives that is no number."""
        last, pub = self._last, self._pub
        if last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for p, due in enumerate(last.due):
            given, space = np.asarray(actions[p]), self.spec.agents_of(p)[0].action
            if len(given) != len(due.slot):
                raise EnvError(
                    f"player {p} was given {len(given)} actions for {len(due.slot)} due decisions; one each."
                )
            check_actions(space, given, mask=due.mask, what=f"player {p} of {self.spec.id}")
            self._actions[p].reshape(-1, *self._actions[p].shape[2:])[due.slot] = given
            pub.due[p].fill(False)
        with self._guarded("step"):
            seen, rewards, terminated, truncated, _ = self._batch.step(self._tensors())
        self._show(seen)
        for (p, k), i in zip(self._players, self._order, strict=True):
            earned = pub.reward[p].reshape(self.num_envs, -1)
            earned[:, k] = rewards[i].reshape(-1).numpy()
            earned[pub.idle, k] = 0  # the batch goes on without them
        pub.over[:] = np.where(terminated.reshape(-1), TERMINATED, np.where(truncated.reshape(-1), TRUNCATED, GOES_ON))
        pub.over[pub.idle] = GOES_ON
        self._end(np.flatnonzero(pub.over))
        return self._publish()

    def render(self, environment: int) -> NDArray[np.uint8]:
        """See `Renders.render`. Raises EnvError where there is neither a screen nor EGL."""
        with self._guarded("render"):
            image = self._batch.render(mode="rgb_array", env_index=environment, visualize_when_rgb=False)
        return np.ascontiguousarray(image, np.uint8)

    def close(self) -> None:
        """Close the window that it may have drawn in."""
        self._last = None
        if self._batch.viewer is not None:
            self._batch.viewer.close()
            self._batch.viewer = None

    # ------------------------------------------------------------------------------------------ the batch

    def _no_actions(self, space: Any, agents: int) -> Array:
        """[E, agents, *shape]: what those who are not due do."""
        dtype = np.float32 if isinstance(space, spaces.Box) else np.int64
        return np.zeros((self.num_envs, agents, *space.shape), dtype)

    def _tensors(self) -> list[torch.Tensor]:
        """One tensor [E, …] for each of VMAS's agents."""
        out: list[torch.Tensor] = [torch.empty(0)] * len(self._order)
        for (p, k), i in zip(self._players, self._order, strict=True):
            out[i] = torch.from_numpy(self._actions[p][:, k])
        return out

    def _show(self, seen: Sequence[torch.Tensor], rows: NDArray[np.int64] | None = None) -> None:
        """Put observations, of all or of some environments, into the rows; those of a player with one agent are taken as they are."""
        pub = self._pub
        for (p, k), i in zip(self._players, self._order, strict=True):
            array = seen[i].numpy()
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
                with self._guarded("reset"):
                    for e in more.tolist():
                        self._batch.reset_at(e, return_observations=False)
                    (seen,) = self._batch.get_from_scenario(
                        get_observations=True, get_rewards=False, get_infos=False, get_dones=False
                    )
                self._show(seen, more)
        self._begin(np.flatnonzero(~pub.idle))

    def _begin(self, playing: NDArray[np.int64]) -> None:
        """Everybody in these environments has to act."""
        for p, agents in enumerate(self._pub.agents):
            self._pub.due[p].reshape(self.num_envs, agents)[playing] = True
            self._put_masks(self._pub.mask[p], p)

    def _put_masks(self, target: NDArray[np.bool_] | None, player: int) -> None:
        legal = self._masks[player]
        if target is not None and legal is not None:
            target.reshape(self.num_envs, *legal.shape)[:] = legal

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        """Call VMAS with this vector's own random stream: by itself, all of a process's share one. What it raises becomes EnvError."""
        shared = type(self._batch).vmas_random_state
        kept, shared[:] = list(shared), self._random
        try:
            yield
        except Exception as error:
            raise EnvError(
                f"{self.spec.id} raised {type(error).__name__} in {doing}: {error}; {self.num_envs} environments are one batch, seeds "
                f"{self._pub.seeds.tolist()}, episodes {self._pub.episode.tolist()}, steps {self._pub.length.tolist()}."
            ) from error
        finally:
            self._random, shared[:] = list(shared), kept

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last


_OURS = ("device", "dict_spaces", "grad_enabled", "seed", "terminated_truncated", "wrapper", "wrapper_kwargs")
_MAX_STEPS = 100


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """options: max_steps (default 100; None: until the scenario says that it is done), continuous_actions (default true),
    multidiscrete_actions, clamp_actions (default true: actions beyond their range are brought into it), those of the scenario, and those
    of `ludus.envs.adapters.teams.Sides`. Raises UnknownName, ConfigError for options that are not taken, EnvError for what cannot be made.
    """
    import vmas

    known = [*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios]
    if name not in known:
        raise UnknownName("VMAS scenario", name, known)
    sides, given = split_options(options, defaults={"determinism": "vector"})
    if sides.state:
        raise ConfigError("state=true was given; scenarios of VMAS have no common state. Leave it out.")
    if set_by_us := sorted(set(given) & set(_OURS)):
        raise ConfigError(f"option {set_by_us[0]!r} of vmas/{name} is set by Ludus; leave it out.")
    make_batch = partial(_made, name, num_envs, {"max_steps": _MAX_STEPS, "clamp_actions": True, **given})
    batch = make_batch()
    agents = [agent.name for agent in batch.agents]
    spaces_of = {
        agent: (_space(seen, agent, name), _space(acts, agent, name))
        for agent, seen, acts in zip(agents, batch.observation_space.spaces, batch.action_space.spaces, strict=True)
    }
    spec, seats, masked = seat_agents(
        f"vmas/{name}", agents, spaces_of, sides=sides, masked=False, clip=False, state=None
    )
    masks = [
        np.stack([_legal(seats[agent.name].legal, agent.action) for agent in spec.agents_of(p)]) if some else None
        for p, some in enumerate(masked)
    ]
    order = [agents.index(agent.name) for agent in spec.agents]
    return VmasVectorEnv(make_batch, batch, spec, order=order, masks=masks)


def names() -> list[str]:
    """VMAS's scenarios and its versions of MPE's, sorted; those for debugging can be made too."""
    import vmas

    return sorted([*vmas.scenarios, *vmas.mpe_scenarios])


def _made(name: str, num_envs: int, given: dict[str, Any]) -> Any:
    from vmas import make_env

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Force limits not specified")
        warnings.filterwarnings("error", message="Scenario kwargs")  # an option that nobody takes
        try:
            return make_env(name, num_envs=num_envs, device="cpu", seed=0, terminated_truncated=True, **given)
        except (TypeError, AssertionError, ValueError, UserWarning) as error:
            raise ConfigError(f"vmas/{name} cannot be made with {given}: {error}.") from error


def _space(space: Any, agent: str, name: str) -> Space[Any]:
    """VMAS describes its spaces with the old gym's classes."""
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
