"""`momaland/<name>`: MOMAland's environments of several agents and several objectives (Felten et al. 2024), whose vectors of rewards are
weighed."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.global_generators import Generators, generators_of
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import Api, check_api, env_creator, render_options, zoo_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_UNMADE = {"moroute_choice_v0"}  # momaland 0.2.0 reads its networks as networkx did before 3.4
_SWAPPED = {"mogem_mining_v0"}  # which returns truncations where terminations belong, and the other way round
Weights = Sequence[float] | Mapping[str, Sequence[float]]
"""A weight for each objective, of all agents or by agent."""


def make(
    name: str,
    *,
    num_envs: int,
    restarts: int = 0,
    api: Api = "auto",
    render: bool = False,
    weights: Weights | None = None,
    **options: Any,
) -> VectorEnv:
    """Make the vector of an environment of MOMAland's. The sums of the objectives are statistics, `objective_0`, `objective_1`, ….

    Args:
        name: `moconnect4_v0` or such.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        api: "parallel" steps all agents at once, "aec" in turn; "auto": parallel where the package has it.
        render: Whether it is made able to render.
        weights: Of the objectives, for all agents, or by agent; None: equal shares of 1.
        options: Those of `Sides` say who plays whom; the others go to the environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment; with the nearest names.
        ConfigError: An option is not taken, or there are not as many weights as objectives.
        EnvError: The environment cannot be made.
    """
    check_api(api)
    places = _places()
    if name not in places:
        raise UnknownName("environment of MOMAland", name, places)
    id = f"momaland/{name}"
    parallel = api != "aec" and _has_parallel(places[name])
    if api == "parallel" and not parallel:
        raise ConfigError(f"api=parallel was given; MOMAland has no such interface for {name}. Leave it out.")
    _, rest = split_options(options)
    entry = f"{places[name]}:{'parallel_env' if parallel else 'env'}"
    creator = env_creator(id, entry, {**render_options(render), **rest})
    probe = _made(creator)
    try:
        agents, count = list(probe.possible_agents), _objectives(probe, id)
    finally:
        probe.close()
    vectors = _checked(weights, [str(agent) for agent in agents], count, id)
    sides, _ = split_options(options, defaults={"statistics": tuple(f"objective_{k}" for k in range(count))})
    kind = ParallelWeighed if parallel else TurnsWeighed
    kind = SwappedWeighed if parallel and name in _SWAPPED else kind
    return zoo_vector(partial(_weighed, creator, kind, vectors), num_envs, id=id, sides=sides, restarts=restarts)


def names() -> list[str]:
    """Return the environments, sorted."""
    return sorted(_places().keys() - _UNMADE)


def _places() -> dict[str, str]:
    """Return name -> module of each environment of the package, of which none is imported."""
    package = importlib.util.find_spec("momaland")
    roots = [Path(place) for place in (package.submodule_search_locations or () if package is not None else ())]
    files = [(root, path) for root in roots for path in root.glob("envs/**/*_v*.py")]
    return {
        path.stem: "momaland." + ".".join(path.relative_to(root).with_suffix("").parts)
        for root, path in files
        if re.fullmatch(r"\w+_v\d+", path.stem)
    }


def _has_parallel(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return (
        spec is not None and spec.origin is not None and "parallel_env" in Path(spec.origin).read_text(encoding="utf-8")
    )


def _made(creator: Callable[[], Any]) -> Any:
    """Return an environment; the package warns of what it does itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return creator()


def _objectives(env: Any, id: str) -> int:
    """Return the number of objectives. Raises EnvError where agents have different numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = {int(np.prod(env.reward_space(agent).shape)) for agent in env.possible_agents}
    if len(counts) != 1:
        raise EnvError(f"{id} rewards its agents with {sorted(counts)} objectives; expected the same number for all.")
    return counts.pop()


def _checked(weights: Weights | None, agents: Sequence[str], count: int, id: str) -> dict[str, NDArray[np.float64]]:
    """Return the weights of each agent. Raises ConfigError for anything else than `count` numbers for each."""
    if weights is None:
        weights = [1 / count] * count
    by_agent = weights if isinstance(weights, Mapping) else dict.fromkeys(agents, weights)
    for vector in by_agent.values():
        numbers = isinstance(vector, list | tuple) and all(
            isinstance(w, int | float) and not isinstance(w, bool) and isfinite(w) for w in vector
        )
        if not numbers or len(vector) != count:
            raise ConfigError(
                f"weights={weights!r} was given; {id} has {count} objectives: expected a number for each."
            )
    if set(by_agent) != set(agents):
        raise ConfigError(
            f"weights={weights!r} was given; the agents of {id} are {', '.join(agents)}: each needs some."
        )
    return {agent: np.array(vector, np.float64) for agent, vector in by_agent.items()}


def _weighed(creator: Callable[[], Any], kind: type[_Weighed], weights: Mapping[str, NDArray[np.float64]]) -> Any:
    return kind(_made(creator), weights)


class _Weighed:
    """An environment whose rewards are the weighed sums of the objectives, and whose last infos have the objectives' own sums."""

    def __init__(self, env: Any, weights: Mapping[str, NDArray[np.float64]]) -> None:
        self.unwrapped = self  # its rewards are numbers
        self._env, self._weights = env, weights
        self._sums: dict[Any, NDArray[np.float64]] = {}
        self._generators = Generators(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def _begin(self, seed: int | None) -> None:
        self._sums = {agent: np.zeros(len(self._weights[str(agent)])) for agent in self._env.possible_agents}
        self._generators = Generators(seed or 0)

    def _weigh(self, rewards: Mapping[Any, Any]) -> dict[Any, float]:
        """Add rewards to the sums, and return them as numbers."""
        out = {}
        for agent, vector in rewards.items():
            values = np.asarray(vector, np.float64).reshape(-1)
            self._sums[agent] += values
            out[agent] = float(values @ self._weights[str(agent)])
        return out

    def _counted(self, infos: Mapping[Any, Any]) -> dict[Any, Any]:
        return {agent: {**(infos.get(agent) or {}), "statistics": self._statistics(agent)} for agent in infos}

    def _statistics(self, agent: Any) -> dict[str, float]:
        return {f"objective_{k}": float(total) for k, total in enumerate(self._sums[agent])}


class ParallelWeighed(_Weighed):
    """Of the parallel interface."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Reset as PettingZoo's environments do."""
        self._begin(seed)
        with generators_of(self._generators):
            observations, infos = self._env.reset(seed=None if seed is None else seed & 0xFFFFFFFF)
        return observations, {agent: (infos or {}).get(agent) or {} for agent in observations}

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Step as PettingZoo's environments do."""
        with generators_of(self._generators):
            observations, rewards, terminations, truncations, infos = self._env.step(actions)
        weighed = self._weigh(rewards)
        return observations, weighed, terminations, truncations, self._counted({a: infos.get(a) for a in rewards})


class SwappedWeighed(ParallelWeighed):
    """Of gem mining: the two flags change places, and numbers of workers are numbers, not lists, which NumPy does not add from 2.4 on."""

    def __init__(self, env: Any, weights: Mapping[str, NDArray[np.float64]]) -> None:
        super().__init__(env, weights)
        env.unwrapped.workers = {agent: int(np.sum(count)) for agent, count in env.unwrapped.workers.items()}

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Step as PettingZoo's environments do."""
        observations, rewards, truncations, terminations, infos = super().step(actions)
        return observations, rewards, terminations, truncations, infos


class TurnsWeighed(_Weighed):
    """Of the interface in turns. last: there is none, since the package's adds vectors."""

    last = None

    def __init__(self, env: Any, weights: Mapping[str, NDArray[np.float64]]) -> None:
        super().__init__(env, weights)
        self.rewards: dict[Any, float] = {}

    @property
    def infos(self) -> dict[Any, Any]:
        """Return what agents are told, with the sums of their objectives."""
        return self._counted(self._env.infos)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Reset as PettingZoo's environments do."""
        self._begin(seed)
        with generators_of(self._generators):
            self._env.reset(seed=None if seed is None else seed & 0xFFFFFFFF)
        self.rewards = {}

    def step(self, action: Any) -> None:
        """Step as PettingZoo's environments do."""
        with generators_of(self._generators):
            self._env.step(action)
        self.rewards = {} if action is None else self._weigh(self._env.rewards)
