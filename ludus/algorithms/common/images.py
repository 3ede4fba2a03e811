"""Requirements of networks that see images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from ludus.core.errors import PolicyError, ScenarioError
from ludus.envs.spaces import channels_last
from ludus.policies.specs import body_config

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
