"""Random network distillation: the distance of a trained network from a fixed random one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ludus.algorithms.rewards.base import Floats
from ludus.contrib.algorithms.curiosity.reward import IntrinsicReward
from ludus.contrib.algorithms.learned_rewards.fitting import Index, TrainableModule
from ludus.contrib.algorithms.learned_rewards.inputs import Observations, Steps, in_parts
from ludus.core import seeding
from ludus.core.types import Metrics, State
from ludus.policies.actor_critic import arrays_of, load_arrays
from ludus.policies.bodies import body_config, make_body, orthogonal, own_stream

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement
    from ludus.contrib.algorithms.curiosity.config import RND


def distillation_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Return the mean over features of (f̂(x) - f(x))² [n], of features float[n, F]. (Burda et al. 2019, section 2.2:
    the squared distance, here over F, which normalisation cancels.)"""
    return (predicted - target).square().mean(dim=1)


def random_target(config: RND, shape: tuple[int, ...]) -> nn.Module:
    """Return the fixed target: a body and one linear layer."""
    body, width = make_body(body_config(config.network, config.hidden, config.activation), shape)
    return nn.Sequential(body, nn.Linear(width, config.features))


def predictor(config: RND, shape: tuple[int, ...]) -> nn.Module:
    """Return the predictor: the target's architecture with two more layers before the last. (Burda et al. 2019,
    appendix A.)"""
    body, width = make_body(body_config(config.network, config.hidden, config.activation), shape)
    more = [part for _ in range(2) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(body, *more, nn.Linear(width, config.features))


class Distillation:
    """Novelty by the error for the next observation; each minibatch is a step towards the target."""

    def __init__(self, config: RND, context: LearnerContext, placement: Placement, observations: Observations) -> None:
        self._config, self._observations = config, observations
        with own_stream(seeding.key(context.seed, "rnd", "weights") % 2**63):
            target = orthogonal(random_target(config, observations.shape))
            learned = orthogonal(predictor(config, observations.shape))
        self._target = target.requires_grad_(False).to(placement.torch).eval()
        self._predictor = TrainableModule(learned, placement, seed=context.seed, name="rnd")

    def errors(self, steps: Steps) -> Floats:
        """Return the error of each step's next observation, float64[N]; 0 where it is unknown."""
        x = self._observations.to_tensor(steps.after)
        return np.where(steps.known, in_parts(lambda part: self._error(x[part]), len(steps)), 0.0)

    def _error(self, raw: Tensor) -> Tensor:
        x = self._observations.normalize(raw)
        with torch.no_grad():
            target = self._target(x)
        return distillation_error(self._predictor.module(x), target)

    def learn(self, steps: Steps, which: Index) -> Metrics:
        """Learn from these of the steps."""
        config, x = self._config, self._observations.to_tensor(steps.after[which])
        losses = self._predictor.learn(
            lambda part, _: [self._error(x[part]).mean()],
            len(which),
            epochs=config.epochs,
            batch=config.batch,
            rate=config.learning_rate,
            max_norm=config.max_gradient_norm,
        )
        return {} if losses is None else {"predictor_loss": losses[0]}

    def state_dict(self) -> State:
        return {"predictor": self._predictor.state_dict(), "target": arrays_of(self._target)}

    def load_state_dict(self, state: State) -> None:
        self._predictor.load_state_dict(state["predictor"])
        load_arrays(self._target, state["target"])


def make_reward(config: RND, context: LearnerContext, placement: Placement, *, joined: float | None) -> IntrinsicReward:
    """Make the intrinsic reward. joined: the learner's discount, where both streams are one."""
    return IntrinsicReward(config, context, placement, Distillation, joined=joined)
