"""Environments with one player and one agent that have Gymnasium's interface, one Python object each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.envs.adapters.agent_seats import EpisodeStatistics, check_statistics
from ludus.envs.adapters.step_checks import RESET, STEP, TRUTHS, call_renderer, check_answer, check_flags, check_mapping
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonVectorEnv, SingleAgentVectorEnv
from ludus.envs.spaces import (
    MASK,
    Choices,
    MaskedObservation,
    action_form,
    action_start,
    observation_space,
    one_agent,
)

_METHOD = "action_masks"  # the method that tells legal actions in environments made for sb3-contrib
_UNEXPECTED = "gave an action mask, and none after its first reset; give masks from the beginning"


def single_env(
    make: Callable[[], gymnasium.Env[Any, Any]],
    num_envs: int,
    *,
    id: str,
    restarts: int = 0,
    statistics: Sequence[str] = (),
) -> VectorEnv:
    """Make a vector of environments with Gymnasium's interface.

    Legal actions (see `Choices`; not of a Box) become masks: those in the observation (`MaskedObservation`), in info["action_mask"] if the
    first reset gives one, or of the method `action_masks`. Each episode has a new seed.

    Args:
        make: Makes one environment.
        num_envs: Number of environments.
        id: What to call it in messages.
        restarts: As in `PythonVectorEnv`.
        statistics: Names of what info["statistics"] holds at the end of an episode.

    Returns:
        The vector.

    Raises:
        EnvError: Policies cannot play a space, or the first environment cannot be reset.
        ConfigError: Names are not valid.
    """
    first = make()
    limit = getattr(getattr(first, "spec", None), "max_episode_steps", None)
    limit = limit if isinstance(limit, int) and limit > 0 else None  # a class of one's own may call anything its spec
    beside = MaskedObservation.of(first.observation_space, first.action_space, what=id)
    observation = first.observation_space if beside is None else beside.space
    names = check_statistics(statistics)
    spec = one_agent(id, observation, first.action_space, max_decisions=limit, statistics=names)
    masked = beside is not None or (not isinstance(first.action_space, Box) and _gives_masks(first, id))
    probes = [first]  # made already: the vector's first

    def new_env() -> Single:
        return Single(probes.pop() if probes else make(), id, masked=masked, statistics=spec.statistics)

    if not masked and not restarts and not spec.statistics:
        return SingleAgentVectorEnv(new_env, num_envs, spec=spec, masked=(False,), probes=probes)
    return PythonVectorEnv(new_env, num_envs, spec=spec, masked=(masked,), restarts_allowed=restarts, probes=probes)


def _gives_masks(env: gymnasium.Env[Any, Any], id: str) -> bool:
    try:
        answer = env.reset(seed=0)
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    try:
        check_answer("reset", answer, RESET)
        check_mapping("reset", answer[1], "info", names=RESET)
    except ContractViolation as flaw:
        raise EnvError(f"{id} {flaw}.") from None
    return MASK in answer[1] or _mask_method(env) is not None


def _mask_method(env: gymnasium.Env[Any, Any]) -> Callable[[], Any] | None:
    """Return the method that tells legal actions, of an environment or of what it wraps."""
    look = getattr(env, "get_wrapper_attr", partial(getattr, env))
    try:
        method = look(_METHOD)
    except AttributeError:
        return None
    return method if callable(method) else None


class Single:
    """A Gymnasium environment as a `PythonEnv`. masked: its first reset gave a mask."""

    def __init__(self, env: gymnasium.Env[Any, Any], id: str, *, masked: bool, statistics: Sequence[str] = ()) -> None:
        self._env = self.single = env
        self._statistics = EpisodeStatistics(statistics, [0])
        self._last: Any = None  # what was told at the end of an episode
        self._id = id
        self._beside = MaskedObservation.of(env.observation_space, env.action_space, what=id)
        _, self._encode = observation_space(self._beside.space if self._beside else env.observation_space, what=id)
        self._start = action_start(env.action_space)
        self._form = action_form(env.action_space)
        self._plain = not np.any(self._start) and self._form is None
        self._choices = Choices.of(env.action_space)
        self._no_masks = self._choices is not None and not masked
        self._ask = None if self._beside is not None or not masked else _mask_method(env)
        self._direct = self._beside is None and self._ask is None and self._encode is None

    def reset(self, seed: int) -> EnvStepResult:
        answer = self._env.reset(seed=seed)
        check_answer("reset", answer, RESET)
        observation, info = answer
        check_mapping("reset", info, "info", names=RESET)
        observation, mask = self._split_mask(observation, info.get(MASK), goes_on=True)
        return EnvStepResult(due=[(0, observation, mask)])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        observation, reward, how, mask = self.advance(actions[0])
        if how:
            mask = mask if how == TRUNCATED else None  # what was cut off is bootstrapped
            final_mask = [(0, mask)] if mask is not None and not self._says_nothing(mask) else []
            self._statistics.begin()
            if self._statistics.names:
                self._statistics.add(0, self._last)
            return EnvStepResult(
                reward=[(0, reward)],
                gone=[(0, observation, how)],
                final_mask=final_mask,
                over=how,
                statistics=self._statistics.totals(),
            )
        return EnvStepResult(due=[(0, observation, mask)], reward=[(0, reward)])

    def advance(self, action: Any) -> tuple[Any, Any, int, Any]:
        """Step as `SingleAgentEnv.advance` describes."""
        answer: Any = self._env.step(action if self._plain else self._with_form(action))
        try:
            observation, reward, terminated, truncated, info = answer
            mask = info.get(MASK)
        except (AttributeError, TypeError, ValueError):
            check_answer("step", answer, STEP)
            check_mapping("step", answer[4], "info", names=STEP)
            raise
        if terminated.__class__ not in TRUTHS or truncated.__class__ not in TRUTHS:
            check_flags(terminated, truncated)
        how = TERMINATED if terminated else TRUNCATED if truncated else GOES_ON
        if how:
            self._last = info
        if mask is not None or not self._direct:
            observation, mask = self._split_mask(observation, mask, goes_on=how != TERMINATED)
        return observation, reward, how, mask

    def _with_form(self, action: Any) -> Any:
        action = action + self._start
        return action if self._form is None else np.reshape(action, self._form[0]).astype(self._form[1])

    def _split_mask(self, observation: Any, mask: Any, *, goes_on: bool) -> tuple[Any, Any]:
        """Return (observation, mask) of what was shown and what `info` holds. goes_on: more may be decided after it."""
        if mask is not None and self._no_masks:
            raise ContractViolation(_UNEXPECTED)
        if self._beside is not None:
            try:
                mask, observation = self._beside.parts(observation)
            except ValueError as error:
                raise ContractViolation(f"gave {error}") from error
        elif self._ask is not None and mask is None and goes_on:
            mask = self._ask()
        return observation if self._encode is None else self._encode(observation), mask

    def _says_nothing(self, mask: Any) -> bool:
        return self._choices is None or self._choices.says_nothing(mask)

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """Raise EnvError if the environment was not made to render, or cannot; ConfigError for a missing package."""
        frame: object = call_renderer(self._id, self._env.render) if self._mode else None
        if isinstance(frame, list) and frame:
            frame = frame[-1]
        if isinstance(frame, str):
            return frame
        if isinstance(frame, np.ndarray):
            return frame
        raise EnvError(
            f"{self._id} has nothing to show (render mode {self._mode}); make it with render=True (env.options.render=true in the scenario;"
            " a class of your own needs a parameter render_mode)."
        )

    @property
    def _mode(self) -> Any:
        return getattr(self._env, "render_mode", None)

    def close(self) -> None:
        self._env.close()
