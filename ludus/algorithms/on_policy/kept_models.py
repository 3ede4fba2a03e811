"""Models whose steps are CUDA graphs, from learner to learner: a graph belongs to the memory that it was captured with, and to capture the
steps of one response takes longer than to make them. So a learner takes over the model of one that is gone, with all its state its own."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.autograd_model import TorchModel
from ludus.algorithms.on_policy.model import Model
from ludus.core.types import EnvSpec

_MOST = 4
"""Models that are kept: those that were released last. Both players' learners of a population may learn at the same time."""


class _Form(NamedTuple):
    """What models have in common whose steps are the same."""

    kind: type[Model]
    config: str
    device: str
    seats: tuple[int, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


class _Kept(NamedTuple):
    form: _Form
    env: EnvSpec
    model: TorchModel


_kept: list[_Kept] = []


def take_over(learner: object, model: Model, context: LearnerContext) -> Model:
    """Return the model that a learner shall train: one of the same form that nobody trains any more, with the state of this one; or this.

    Args:
        learner: When it is gone, its model is kept for another.
        model: A fresh one.
        context: Of the learner.
    """
    if not isinstance(model, TorchModel) or not model.uses_cuda_graph or context.diversity is not None:
        return model
    form = _form_of(model, context)
    place = next((k for k, kept in enumerate(_kept) if kept.form == form and kept.env is context.env), None)
    if place is not None:
        kept = _kept.pop(place).model
        kept.load_state_dict(model.state_dict())
        model = kept
    weakref.finalize(learner, _release, _Kept(form, context.env, model)).atexit = False
    return model


def _release(kept: _Kept) -> None:
    _kept.append(kept)
    del _kept[:-_MOST]


def _form_of(model: TorchModel, context: LearnerContext) -> _Form:
    config: Any = model.config
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in model.module.state_dict().items())
    return _Form(type(model), config.model_dump_json(), str(context.device), context.seats, shapes)
