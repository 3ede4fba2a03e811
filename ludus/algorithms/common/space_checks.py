"""What algorithms require of an environment's spaces, utilities and state: of all of them, of networks that see images, and of teams.

Configurations import it, so that it loads no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.types import AgentSpec, Array, EnvSpec
from ludus.envs.spaces import channels_last
from ludus.policies.specs import action_config, body_config, float32_bounds


class UnsupportedSpace(ScenarioError):
    """The algorithm does not support these actions, or this game; `ludus.algorithms.common.registry.check_fits` adds
    which algorithms do."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxSpace:
    """Bounded real actions.

    Attributes:
        inputs: Shape of an observation.
        size: Entries of an action; learners flatten actions to float32[n, size].
        low: float32[size], finite.
        high: float32[size], finite, above `low`.
        shape: Shape of an action in the environment.
    """

    inputs: tuple[int, ...]
    size: int
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    shape: tuple[int, ...]


def players_of(env: EnvSpec, seats: tuple[int, ...]) -> Sequence[int]:
    """Return the players that a check is about: `seats`, or all players if there are none."""
    return seats or range(env.num_players)


def action_of(env: EnvSpec, space: Space[Any], *, continuous: str, algorithm: str) -> dict[str, Any]:
    """Return the `action` part of a policy's spec, as `action_config` makes it. Raise ScenarioError for unsupported
    actions, and for tanh without finite bounds. continuous: "gaussian" or "tanh", of boxes."""
    try:
        action = action_config(space, squash=continuous == "tanh")
    except PolicyError as error:
        raise ScenarioError(f"{algorithm} cannot play {env.id}: {error}") from error
    if action["kind"] == "tanh" and None in (*action["low"], *action["high"]):
        raise ScenarioError(
            f"{algorithm} with continuous=tanh needs actions with finite bounds; {env.id} has {space}. Use continuous=gaussian."
        )
    return action


def one_space(env: EnvSpec, seats: tuple[int, ...], *, algorithm: str) -> tuple[Space[Any], Space[Any]]:
    """Return (observation space, action space) of all agents in `seats`. Raise ScenarioError if they differ, or the
    agents have several roles, which need a network each. Discrete actions are equal if their numbers are, and
    observations if their shapes and dtypes are."""
    agents = [agent for seat in seats for agent in env.agents_of(seat)]
    if not agents:
        raise ScenarioError(f"{algorithm} was given the seats {seats} of {env.id}, in which no agent plays.")
    if len(roles := {agent.role for agent in agents}) > 1:
        raise ScenarioError(
            f"{algorithm} has one network for all agents of its seats; in {env.id} they have the roles {sorted(roles)}. Put the "
            "wrapper agent_ids around it, which shows each agent who it is, and gives them one role."
        )
    spaces = {(a.observation.shape, str(a.observation.dtype), str(a.action)) for a in agents}
    if len(spaces) > 1 or agents[0].observation.shape is None:
        raise ScenarioError(
            f"{algorithm} needs one space of actions and one shape of observations in all its seats; {env.id} has {_spaces(agents)}."
        )
    return agents[0].observation, agents[0].action


def byte_scale(env: EnvSpec, observation: Space[Any]) -> float:
    """Return the factor of observations for networks that scale bytes: 1/255 for uint8 of more than 0 and 1, else 1."""
    if env.enumeration is not None or not isinstance(observation, Box) or observation.dtype != np.uint8:
        return 1.0
    return 1.0 / 255.0 if int(observation.high.max(initial=0)) > 1 else 1.0


def discrete(env: EnvSpec, seats: tuple[int, ...], *, algorithm: str) -> tuple[int, int]:
    """Return (entries of an observation, actions) of the agents in `seats`. Raise UnsupportedSpace if actions are not
    discrete, ScenarioError if they differ or have several roles, which need a network each."""
    observation, action = one_space(env, seats, algorithm=algorithm)
    if not isinstance(action, Discrete):  # MultiBinary has an n as well
        raise UnsupportedSpace(f"{algorithm} needs discrete actions; {env.id} has {observation} -> {action}.")
    if env.enumeration is not None:
        return int(np.prod(env.enumeration.observation.shape[1:])), int(env.enumeration.mask.shape[1])
    return int(np.prod(observation.shape or ())), int(action.n)


def box(env: EnvSpec, seats: tuple[int, ...], *, algorithm: str) -> BoxSpace:
    """Return the continuous actions of the agents in `seats`. Raise UnsupportedSpace if they are no box of floats,
    ScenarioError if they differ, have infinite bounds, or have several roles, which need a network each."""
    observation, action = one_space(env, seats, algorithm=algorithm)
    if not isinstance(action, Box) or action.dtype.kind != "f" or env.enumeration is not None:
        raise UnsupportedSpace(
            f"{algorithm} needs continuous actions (a Box of floats); {env.id} has {observation} -> {action}."
        )
    low, high = (bounds.ravel() for bounds in float32_bounds(action))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ScenarioError(
            f"{algorithm} needs actions with finite bounds, low < high in each entry; {env.id} has {action}. Wrap the environment so that "
            "its actions are bounded."
        )
    return BoxSpace(observation.shape or (), len(low), low, high, action.shape)


def _spaces(agents: Sequence[AgentSpec]) -> str:
    return "; ".join(sorted({f"{agent.observation} -> {agent.action}" for agent in agents}))


def reward_scale(env: EnvSpec, seats: tuple[int, ...], *, enabled: bool) -> float:
    """Return 1 / the largest utility of the seats, so that returns are in [-1, 1]; 1 if that is unknown or not
    `enabled`."""
    largest = max(max(abs(low), abs(high)) for low, high in (env.utility_range[seat] for seat in seats))
    return 1.0 / largest if enabled and 0.0 < largest < np.inf else 1.0


# --------------------------------------------------------------------------------------------------------------------
# Networks that see images.


_LEAST = {"nature": 36, "impala": 1}  # height and width that leave something after the last convolution


def is_image(space: Space[Any]) -> bool:
    """Return whether observations are treated as images: bytes with channels, k such images [k, height, width,
    channels] in a row, or grey ones [height, width] no smaller than convolutions take. `needs_images` rejects those
    that no network sees unchanged."""
    shape = space.shape or ()
    if not isinstance(space, Box) or space.dtype != np.uint8 or not 2 <= len(shape) <= 4:
        return False
    if len(shape) == 2:
        return min(shape) >= _LEAST["nature"] and int(space.high.max()) > 1
    return len(shape) == 3 or channels_last(shape[1:])


def needs_images(
    shape: tuple[int, ...], *, network: str | Mapping[str, Any], algorithm: str, option: str, env_id: str
) -> None:
    """Raise ScenarioError unless `shape` is (channels, height, width), of at least 36 × 36 for "nature"; a perceptron
    takes any. A custom network is built to find out. Channels are recognised as last by
    `ludus.envs.spaces.channels_last`.

    Args:
        shape: Shape of an observation.
        network: The network.
        algorithm: Name for the message.
        option: Option that names the network, for the message.
        env_id: Id of the environment, for the message.
    """
    if isinstance(network, Mapping) or ":" in network:
        _ask(network, shape, f"{algorithm} cannot see {env_id} with {option}={network}")
        return
    if network not in _LEAST:
        return
    who = f"{algorithm} with {option}={network} sees images [channels, height, width]; observations of {env_id} have shape {list(shape)}"
    if len(shape) == 2:
        raise ScenarioError(
            f"{who}: no channels. Give env.wrappers=[{{kind: frame_stack, k: 4}}], which makes the last four images channels of one (k: 1 "
            f"for the last alone), or use {option}=mlp."
        )
    if len(shape) == 4 and channels_last(shape[1:]):
        raise ScenarioError(
            f"{who}: several images, channels last. Give env.wrappers=[{{kind: frame_stack, k: {shape[0]}}}, channels_first], which makes "
            f"all of them channels of one, or use {option}=mlp."
        )
    if len(shape) != 3:
        raise ScenarioError(f"{who}. Use {option}=mlp.")
    if channels_last(shape):
        raise ScenarioError(
            f"{who}: channels last. Give env.wrappers=[channels_first], which moves them; to see several images at a time, "
            "env.wrappers=[{kind: frame_stack, k: 4}, channels_first], or grey ones, [grayscale, {kind: frame_stack, k: 4}]."
        )
    if min(shape[1:]) < _LEAST[network]:
        raise ScenarioError(
            f"{who}, which is too small: height and width must be at least {_LEAST[network]}. Use {option}=impala or mlp."
        )


def _ask(network: str | Mapping[str, Any], shape: tuple[int, ...], who: str) -> None:
    from ludus.policies.bodies import OwnBody, own_stream  # a scenario can be read without loading torch

    try:
        with own_stream():
            OwnBody(body_config(network), shape)
    except PolicyError as error:
        raise ScenarioError(f"{who}: {error}") from error


NormalizeRewards = Literal["none", "scale", "standardise"]
"""What becomes of a team's rewards."""


def check_state(env: EnvSpec, *, algorithm: str, instead: str) -> None:
    """Raise ScenarioError for an environment without a state, or with one that is no Box. instead: what to use there."""
    if env.state is None:
        raise ScenarioError(
            f"{algorithm} sees the environment's state, and {env.id} has none. Ask for it (env.options.state=true), or put the wrapper "
            f"joint_state around it, whose state is what all agents see (compiled games have neither); or use {instead}."
        )
    if not isinstance(env.state, Box):
        raise ScenarioError(f"{algorithm} sees states that are a Box of numbers; that of {env.id} is {env.state}.")


def state_width(env: EnvSpec, seats: Sequence[int]) -> int:
    """Return the width of `state_features`; 0 where the environment has no state."""
    if env.state is None:
        return 0
    return math.prod(env.state.shape or ()) + (len(seats) if len(seats) > 1 else 0)


def state_features(state: Array, seat: Array, seats: Sequence[int]) -> NDArray[np.float32]:
    """Return states [n, *shape] of players `seat` int[n] as float32[n, `state_width`]: flat, uint8 divided by 255,
    followed, where a learner plays several seats, by the one-hot seat: the state is the same array for all sides."""
    flat = state.reshape(len(state), math.prod(state.shape[1:])).astype(np.float32)
    if state.dtype == np.uint8:
        flat *= np.float32(1.0 / 255.0)
    if len(seats) == 1:
        return flat
    return np.concatenate([flat, (seat[:, None] == np.array(seats)).astype(np.float32)], axis=1)


def check_team(env: EnvSpec, *, algorithm: str) -> None:
    """Raise ScenarioError for a compiled game, where no player has several agents."""
    if env.enumeration is not None:
        raise ScenarioError(
            f"{algorithm} learns how the agents of a team act together, from their observations; {env.id} is a compiled game of single "
            "agents. Use dqn there, or sac_discrete."
        )


def team_size(env: EnvSpec, seats: Sequence[int], *, algorithm: str) -> int:
    """Return the number of agents of a player in these seats. Raise ScenarioError if they differ."""
    sizes = {len(env.agents_of(seat)) for seat in seats}
    if len(sizes) > 1:
        raise ScenarioError(
            f"{algorithm} learns for teams of one size; the seats {tuple(seats)} of {env.id} have {sorted(sizes)} agents. Give each seat a "
            "population of its own."
        )
    return sizes.pop()
