"""What networks that see images ask: of observations, and of the process that they learn in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.machine import keep_freed_memory
from ludus.envs.spaces import channels_last
from ludus.policies.specs import body_config

if TYPE_CHECKING:
    from torch import nn

_LEAST = {"nature": 36, "impala": 1}  # height and width that leave something after the last convolution


def needs_images(
    shape: tuple[int, ...], *, network: str | Mapping[str, Any], algorithm: str, option: str, env_id: str
) -> None:
    """Raises ScenarioError unless `shape` is (channels, height, width), of at least 36 × 36 for "nature"; a perceptron takes any. One of
    anybody's own is made, and asked. option: the setting that names the network, for the message.

    Channels are taken for last as `ludus.envs.spaces.channels_last` says.
    """
    if isinstance(network, Mapping) or ":" in network:
        _ask(network, shape, f"{algorithm} cannot see {env_id} with {option}={network}")
        return
    if network not in _LEAST:
        return
    who = f"{algorithm} with {option}={network} sees images [channels, height, width]; observations of {env_id} have shape {list(shape)}"
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


def prepare_learning(network: nn.Module) -> None:
    """For whoever will learn this network, in this process: one with convolutions frees and asks for the same large buffers in every
    update, which the process therefore keeps (`ludus.core.machine`)."""
    from torch import nn

    if any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules()):
        keep_freed_memory()
