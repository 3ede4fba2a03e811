"""Vectors of PettingZoo environments, AEC or parallel, whoever made them."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces

from ludus.envs.adapters.aec import AecEnv, CycleEnv
from ludus.envs.adapters.answers import RESET_ALL, check_mappings
from ludus.envs.adapters.parallel import ParallelEnv
from ludus.envs.adapters.seats import Seats
from ludus.envs.adapters.teams import Sides, seat_agents
from ludus.envs.families import missing_package
from ludus.envs.python_loop import Flaw, PythonEnv, PythonVectorEnv
from ludus.envs.spaces import observation_space
from ludus.errors import ConfigError, EnvError, nearest

Api: TypeAlias = Literal["auto", "aec", "parallel"]


def zoo_vector(
    make: Callable[[], Any],
    num_envs: int,
    *,
    id: str,
    sides: Sides,
    restarts: int = 0,
    prepare: Callable[[Any], None] | None = None,
    forget: Callable[[Any], None] | None = None,
) -> PythonVectorEnv:
    """A vector of `num_envs` environments that `make` makes, each with PettingZoo's AEC or parallel interface.

    id: what to call it in messages. restarts: see `PythonVectorEnv`. prepare, forget: see `AecEnv`. PettingZoo's own
    wrappers around an environment are taken off: Ludus checks actions and order itself.
    Raises EnvError for one without `possible_agents`, or with spaces that policies cannot play; ConfigError for teams that do not fit.
    """
    first = make()
    bare, cycle, clip = _bare(first)
    agents = _agents(bare, id)
    infos = _first_infos(bare, id)
    spec, seats, masked = seat_agents(
        id,
        agents,
        {agent: _spaces(bare, agent, id) for agent in agents},
        sides=sides,
        masked=any("action_mask" in info for info in infos.values() if info),
        clip=clip,
        state=_state_space(bare, id) if sides.state else None,
    )
    kept = [bare]  # made already: the vector's first

    def made() -> PythonEnv:
        env = kept.pop() if kept else _bare(make())[0]
        if not hasattr(env, "agent_selection") and not hasattr(env, "observe"):
            return ParallelEnv(env, Seats(seats), with_state=sides.state)
        kind = CycleEnv if cycle else AecEnv
        return kind(env, Seats(seats), with_state=sides.state, prepare=prepare, forget=forget)

    return PythonVectorEnv(made, num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


def made_with(id: str, entry: str | Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], Any]:
    """What makes the environment of `module:function` with these options. It raises ConfigError if it does not take them, or a package is
    missing (with what to install), and EnvError if anything else goes wrong."""
    return partial(_make, id, entry, dict(options))


def check_api(api: str) -> None:
    """Raises ConfigError for an interface that there is not."""
    if api not in get_args(Api):
        raise ConfigError(f"api={api!r} was given; allowed: {', '.join(get_args(Api))}.")


def shown_as(render: bool) -> dict[str, str]:
    """The options that make an environment able to show itself, if it is to."""
    return {"render_mode": "rgb_array"} if render else {}


def _make(id: str, entry: str | Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        if not isinstance(entry, str):
            return entry(**options)
        with (
            warnings.catch_warnings()
        ):  # old packages warn when they are imported and describe their spaces; Box2D crashes if it may not
            warnings.simplefilter("ignore")
            module = importlib.import_module(entry.partition(":")[0])
            creator = getattr(module, entry.partition(":")[2])
            _check_options(id, getattr(module, "raw_env", creator), options)
            return creator(**options)
    except ImportError as error:
        raise missing_package(id, error) from error
    except ConfigError:
        raise
    except Exception as error:
        raise EnvError(f"{id} cannot be made: {type(error).__name__}: {error}.") from error


def _check_options(id: str, creator: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises ConfigError, with the nearest one, for an option that neither the environment nor `Sides` has."""
    parameters = inspect.signature(creator).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    if unknown := sorted(set(options) - set(parameters)):
        known = {*parameters, *(field.name for field in fields(Sides)), "api"}
        raise ConfigError(f"{id} has no option {unknown[0]!r}{nearest(unknown[0], known)}")


def _bare(env: Any) -> tuple[Any, bool, bool]:
    """(the environment without PettingZoo's wrappers, whether it is played in cycles, whether actions are clipped into their spaces).

    The wrappers that are taken off: those that check the order of calls, out-of-bounds and illegal actions, which Ludus refuses before;
    the one that clips; and the conversions between the two interfaces, where the other side can be played itself.
    """
    from pettingzoo.utils import conversions, wrappers

    checks = wrappers.OrderEnforcingWrapper, wrappers.AssertOutOfBoundsWrapper, wrappers.TerminateIllegalWrapper
    bounds = wrappers.ClipOutOfBoundsWrapper, wrappers.AssertOutOfBoundsWrapper
    cycle = clip = False
    while True:
        if type(env) is conversions.aec_to_parallel_wrapper:
            cycle, env = True, env.aec_env
        elif type(env) is conversions.parallel_to_aec_wrapper and cycle:
            cycle, env = False, env.env
        elif type(env) in (*checks, *bounds):
            clip |= type(env) in bounds
            env = env.env
        else:
            return env, cycle, clip


def _agents(env: Any, id: str) -> list[Any]:
    """All that may ever appear. Raises EnvError if it does not say, or names one twice."""
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise EnvError(f"{id} has no possible_agents; Ludus needs all agents that may ever appear, from the beginning.")
    if not isinstance(agents, Iterable) or len(set(map(str, agents))) < len(list(agents)):
        raise EnvError(f"{id} has possible_agents={agents!r}; expected a list of different names.")
    return list(agents)


def _spaces(env: Any, agent: Any, id: str) -> tuple[Space[Any], Space[Any]]:
    try:
        return env.observation_space(agent), env.action_space(agent)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise EnvError(
            f"{id} has no spaces of its agent {agent!r} ({what}); each of possible_agents needs both."
        ) from error


def _first_infos(env: Any, id: str) -> Mapping[Any, Any]:
    """What the first reset tells each agent."""
    try:
        answer = env.reset(seed=0)
        if answer is not None:
            check_mappings("reset", answer, RESET_ALL)
        infos = env.infos if answer is None else answer[1]
    except Flaw as flaw:
        raise EnvError(f"{id} {flaw}.") from None
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    if not isinstance(infos, Mapping):
        raise EnvError(f"{id} gave the infos {infos!r} after a reset; expected a mapping of agents.")
    return infos


def _state_space(env: Any, id: str) -> Space[Any]:
    """The space of `env.state()`. Raises EnvError if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = np.asarray(env.state())
    except Exception as error:
        raise EnvError(f"{id} has no state ({type(error).__name__}: {error}); leave out state=true.") from error
    space = getattr(env, "state_space", None)
    if not isinstance(space, spaces.Box) or space.shape != state.shape:
        kind = state.dtype.type if state.dtype.kind in "biu" else np.float32
        low, high = (0, 1) if state.dtype.kind == "b" else (-np.inf, np.inf)
        if state.dtype.kind in "iu":
            low, high = np.iinfo(state.dtype).min, np.iinfo(state.dtype).max
        space = spaces.Box(low, high, state.shape, kind)
    box, _ = observation_space(space, what=f"the state of {id}")
    return box
