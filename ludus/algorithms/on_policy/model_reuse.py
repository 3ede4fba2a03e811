"""Models whose steps are CUDA graphs, from learner to learner: a graph belongs to the memory that it was captured with, and to capture the
steps of one response takes longer than to make them. So a learner gets the model of one that is gone, with its own state in it."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.autograd_model import TorchModel
from ludus.algorithms.on_policy.model import Model, OnPolicyConfig
from ludus.core.types import DeviceChoice, EnvSpec

_MOST = 4
"""Idle models in memory, the newest ones: both players' learners may learn at the same time."""


class _Form(NamedTuple):
    """What models have in common whose steps are the same."""

    kind: type[Model]
    config: OnPolicyConfig
    device: DeviceChoice
    seats: tuple[int, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


class _IdleModel(NamedTuple):
    form: _Form
    env: EnvSpec
    model: TorchModel


_idle: list[_IdleModel] = []


def reuse_model(learner: object, model: Model, context: LearnerContext) -> Model:
    """Return the model that a learner shall train: an idle one of the same form, with the state of this one; or this one.

    Args:
        learner: When it is gone, its model is idle.
        model: A fresh one.
        context: Of the learner.
    """
    if not isinstance(model, TorchModel) or not model.uses_cuda_graph or context.diversity is not None:
        return model
    form = _form_of(model, context)
    _idle[:] = [other for other in _idle if other.env is context.env]  # those of another run's game are of no more use
    place = next((k for k, other in enumerate(_idle) if other.form == form), None)
    if place is not None:
        other = _idle.pop(place).model
        other.load_state_dict(model.state_dict())
        model = other
    weakref.finalize(learner, _release, _IdleModel(form, context.env, model)).atexit = False
    return model


def _release(model: _IdleModel) -> None:
    _idle.append(model)
    del _idle[:-_MOST]


def _form_of(model: TorchModel, context: LearnerContext) -> _Form:
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in model.module.state_dict().items())
    return _Form(type(model), model.config, context.device, context.seats, shapes)
