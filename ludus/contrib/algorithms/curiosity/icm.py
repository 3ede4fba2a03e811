"""The intrinsic curiosity module: the prediction error of the next observation's features."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ludus.algorithms.rewards.base import Floats
from ludus.backend.device import to_device
from ludus.contrib.algorithms.curiosity.reward import IntrinsicReward
from ludus.contrib.algorithms.learned_rewards.fitting import Index, TrainableModule
from ludus.contrib.algorithms.learned_rewards.inputs import Actions, Observations, Steps, in_parts, masks_of
from ludus.core import seeding
from ludus.core.types import Metrics, State
from ludus.policies.bodies import body_config, make_body, orthogonal, own_stream

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement
    from ludus.contrib.algorithms.curiosity.config import ICM


class DynamicsPrediction(NamedTuple):
    """Outputs of both models: now, after, guess float[n, F]: features of an observation and of the next one, and the
    forward model's prediction. out float[n, width]: the inverse model's prediction of the action."""

    now: Tensor
    after: Tensor
    guess: Tensor
    out: Tensor


def forward_error(guess: Tensor, after: Tensor) -> Tensor:
    """Return ½ ‖φ̂(s') - φ(s')‖² [n] of features float[n, F]. (Pathak et al. 2017, equations 5 and 6, with η = 1.)"""
    return 0.5 * (guess - after).square().sum(dim=1)


def module_loss(inverse: Tensor, forward: Tensor, *, forward_share: float) -> Tensor:
    """Return (1 - β) L_I + β L_F, of means over rows. (Pathak et al. 2017, equation 7, without the policy's part.)"""
    return (1.0 - forward_share) * inverse + forward_share * forward


class ForwardInverse(nn.Module):
    """φ: a body and a linear layer. The forward model maps (φ(s), a) to φ(s'), the inverse model (φ(s), φ(s')) to a."""

    def __init__(self, config: ICM, shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        body, width = make_body(body_config(config.network, config.hidden, config.activation), shape)
        self.features = nn.Sequential(body, nn.Linear(width, config.features))
        self.forward_model = _perceptron(config, config.features + actions, config.features)
        self.inverse_model = _perceptron(config, 2 * config.features, actions)

    def forward(self, observation: Tensor, action: Tensor, after: Tensor) -> DynamicsPrediction:
        """Return the predictions for observations and next ones float[n, *shape], and actions as numbers [n, actions]."""
        now, then = self.features(observation), self.features(after)
        guess = self.forward_model(torch.cat([now, action], dim=1))
        return DynamicsPrediction(now, then, guess, self.inverse_model(torch.cat([now, then], dim=1)))


def _perceptron(config: ICM, inputs: int, outputs: int) -> nn.Module:
    body, width = make_body(body_config("mlp", config.hidden, config.activation), (inputs,))
    return nn.Sequential(body, nn.Linear(width, outputs))


class CuriosityModule:
    """Novelty by the forward model's error; each minibatch is a step on both models' loss."""

    def __init__(self, config: ICM, context: LearnerContext, placement: Placement, observations: Observations) -> None:
        self._config, self._observations, self._env = config, observations, context.env
        self._actions = Actions(context.env, context.seats, what="icm", device=placement.torch)
        with own_stream(seeding.key(context.seed, "icm", "weights") % 2**63):
            module = orthogonal(ForwardInverse(config, observations.shape, self._actions.width))
        self._models = TrainableModule(module, placement, seed=context.seed, name="icm")

    def _predict(self, now: Tensor, action: Tensor, after: Tensor) -> DynamicsPrediction:
        normalize = self._observations.normalize
        prediction: DynamicsPrediction = self._models.module(normalize(now), action, normalize(after))
        return prediction

    def errors(self, steps: Steps) -> Floats:
        """Return the error of each step, float64[N]; 0 where the next observation is unknown."""
        now, after = (self._observations.to_tensor(x) for x in (steps.observation, steps.after))
        action = self._actions.to_tensor(steps.action)

        def error(part: slice) -> Tensor:
            prediction = self._predict(now[part], action[part], after[part])
            return forward_error(prediction.guess, prediction.after)

        return np.where(steps.known, in_parts(error, len(steps)), 0.0)

    def learn(self, steps: Steps, which: Index) -> Metrics:
        """Learn from these of the steps."""
        config, mask = self._config, masks_of(self._env, steps)
        now, after = (self._observations.to_tensor(x[which]) for x in (steps.observation, steps.after))
        action = self._actions.to_tensor(steps.action[which])
        legal = None if mask is None else to_device(mask[which], action.device)

        def loss(part: Index, _: np.random.Generator) -> list[Tensor]:
            prediction = self._predict(now[part], action[part], after[part])
            inverse = self._actions.error(prediction.out, action[part], None if legal is None else legal[part]).mean()
            forward = forward_error(prediction.guess, prediction.after).mean()
            return [module_loss(inverse, forward, forward_share=config.forward_share), forward, inverse]

        losses = self._models.learn(
            loss,
            len(which),
            epochs=config.epochs,
            batch=config.batch,
            rate=config.learning_rate,
            max_norm=config.max_gradient_norm,
        )
        return {} if losses is None else {"forward_loss": losses[1], "inverse_loss": losses[2]}

    def state_dict(self) -> State:
        return self._models.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._models.load_state_dict(state)


def make_reward(config: ICM, context: LearnerContext, placement: Placement, *, joined: float | None) -> IntrinsicReward:
    """Make the intrinsic reward. joined: the learner's discount, where both streams are one."""
    return IntrinsicReward(config, context, placement, CuriosityModule, joined=joined)
