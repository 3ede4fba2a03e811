"""`dmc/<domain>-<task>`: the tasks of DeepMind's Control Suite (Tassa et al. 2018)."""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest, one_line
from ludus.core.types import Array
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.adapters.step_checks import call_renderer
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonVectorEnv, SingleAgentVectorEnv
from ludus.envs.spaces import one_agent

__all__ = ["make", "names"]

_OF_ENVIRONMENT = ("control_timestep", "legacy_step", "n_sub_steps")  # options of `dm_control.rl.control.Environment`
_UNBOUNDED = 1e10  # what MuJoCo says of a motor without limits


def make(name: str, *, num_envs: int, restarts: int = 0, render: bool = False, **options: Any) -> VectorEnv:
    """Make the vector of a task of the Control Suite.

    Args:
        name: `cheetah-run` or such.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        render: Whether it is made able to render.
        options: Of the task (`time_limit` in seconds, …), and control_timestep (seconds between two decisions), n_sub_steps, legacy_step of
            its `Environment`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such task; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The task cannot be made.
    """
    id = f"dmc/{name}"
    suite = _suite()
    known = {f"{domain}-{task}": (domain, task) for domain, task in suite.ALL_TASKS}
    if name not in known:
        raise UnknownName("task of the Control Suite", name, known)
    domain, task = known[name]
    parameters = set(inspect.signature(suite._DOMAINS[domain].SUITE[task]).parameters) - {
        "environment_kwargs",
        "random",
    }
    for option in options:
        if option not in parameters and option not in _OF_ENVIRONMENT:
            raise ConfigError(
                f"{id} has no option {option!r}{nearest(option, {*parameters, *_OF_ENVIRONMENT, 'render'})}"
            )
    for option in {"time_limit", "control_timestep"} & options.keys():
        check_limit(option, options[option], unit="seconds", whole=False, none=option == "control_timestep")
    build = partial(_build, id, domain, task, options)
    first = build()
    probes = [first]  # made already: the vector's first

    def new_env() -> ControlTask:
        return ControlTask(probes.pop() if probes else build(), id, render=render)

    limit = getattr(first, "_step_limit", math.inf)  # as the environment counts
    spec = one_agent(id, *_spaces(first), max_decisions=None if math.isinf(limit) else math.ceil(limit))
    if restarts:
        return PythonVectorEnv(new_env, num_envs, spec=spec, masked=(False,), restarts_allowed=restarts, probes=probes)
    return SingleAgentVectorEnv(new_env, num_envs, spec=spec, masked=(False,), probes=probes)


def names() -> list[str]:
    """Return all tasks, sorted. quadruped-escape is made with OpenGL only."""
    return sorted(f"{domain}-{task}" for domain, task in _suite().ALL_TASKS)


class ControlTask:
    """A `dm_env.Environment` with rewards, as a `SingleAgentEnv`. Observations are concatenated, in the order in which the task lists
    them. An episode's last step is terminated if it has discount 0, or would have without the limit, and truncated otherwise."""

    def __init__(self, env: Any, id: str, *, render: bool = False) -> None:
        self._env = env
        self._id = id
        self._render = render
        self._step = env.step
        self._observation = np.zeros(0, np.float32)  # concatenated, and a view of each part; the caller copies it
        self._parts: list[Array] = []

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes. All of a task's randomness is its `random`. Raises EnvError where it needs OpenGL, and
        there is none."""
        self._env.task.random.seed(seed & 0x7FFFFFFF)
        try:
            first = self._env.reset()
        except Exception as error:
            if "OpenGL" in str(error):
                raise EnvError(
                    f"{self._id} draws its ground with OpenGL, which cannot be used: {one_line(error)}. Give MUJOCO_GL=egl, or osmesa, in "
                    "the environment of the command."
                ) from error
            raise
        if not self._parts:
            self._lay(first.observation)
        return EnvStepResult(due=[(0, self._flat(first.observation), None)])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        observation, reward, how, _ = self.advance(actions[0])
        if how:
            return EnvStepResult(reward=[(0, reward)], gone=[(0, observation, how)], over=how)
        return EnvStepResult(due=[(0, observation, None)], reward=[(0, reward)])

    def advance(self, action: Any) -> tuple[Any, Any, int, Any]:
        """Step as `SingleAgentEnv.advance` describes."""
        step_type, reward, discount, parts = self._step(action)
        observation = self._flat(parts)
        if step_type == _MID:
            return observation, reward, GOES_ON, None
        if step_type != _LAST:
            raise ContractViolation("began a new episode without being asked to")
        if discount != 0 and self._env.task.get_termination(self._env.physics) == 0:
            discount = 0.0  # at the limit the task was not asked
        return observation, reward, TERMINATED if discount == 0 else TRUNCATED, None

    def _lay(self, parts: Mapping[str, Any]) -> None:
        """Allocate the parts of an observation in one array."""
        shapes = [np.shape(value) for value in parts.values()]
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        self._observation = np.zeros(ends[-1], np.float32)
        self._parts = [
            self._observation[begin:end].reshape(shape)
            for begin, end, shape in zip([0, *ends], ends, shapes, strict=False)
        ]

    def _flat(self, parts: Mapping[str, Any]) -> Array:
        for part, value in zip(self._parts, parts.values(), strict=True):
            part[...] = value
        return self._observation

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8]:
        """Return an image uint8[240, 320, 3]. Raises EnvError where OpenGL cannot draw, or if it was not made to render."""
        if not self._render:
            raise EnvError(f"{self._id} has nothing to show; make it with render=True.")
        image: NDArray[np.uint8] = call_renderer(self._id, partial(self._env.physics.render, 240, 320, camera_id=0))
        return image

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


_MID, _LAST = 1, 2  # of dm_env.StepType


def _spaces(env: Any) -> tuple[Box, Box]:
    size = sum(int(np.prod(spec.shape)) for spec in env.observation_spec().values())
    acts = env.action_spec()
    low = np.where(acts.minimum <= -_UNBOUNDED, -np.inf, acts.minimum)
    high = np.where(acts.maximum >= _UNBOUNDED, np.inf, acts.maximum)
    low, high = (np.broadcast_to(bound, acts.shape).astype(np.float32) for bound in (low, high))
    return Box(-np.inf, np.inf, (size,), np.float32), Box(low, high, acts.shape, np.float32)


def _build(id: str, domain: str, task: str, options: Mapping[str, Any]) -> Any:
    own = {key: value for key, value in options.items() if key not in _OF_ENVIRONMENT}
    own["random"] = 0  # lqr draws its springs when it is made: it must be the same task everywhere
    rest = {key: value for key, value in options.items() if key in _OF_ENVIRONMENT}
    try:
        with _without_advice():
            return _suite().load(domain, task, task_kwargs=own, environment_kwargs=rest)
    except Exception as error:
        raise EnvError(
            f"{id} cannot be made with the options {dict(options)}: {type(error).__name__}: {one_line(error)}."
        ) from error


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence what MuJoCo's compiler says, for each environment again, about old ways to write models: the suite wrote them."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@cache
def _suite() -> Any:
    """Return `dm_control.suite`. dm-control 1.0.50 lists arrays of MuJoCo's that MuJoCo 4 has no more, and looks for each of them; those
    are struck off its list."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of GLFW without a screen
        import mujoco
        from dm_control import suite
        from dm_control.mujoco.wrapper.mjbindings import sizes
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    for struct, instance in (("mjmodel", model), ("mjdata", mujoco.MjData(model))):
        listed = sizes.array_sizes[struct]
        for missing_name in [name for name in listed if not hasattr(instance, name)]:
            del listed[missing_name]
    return suite
