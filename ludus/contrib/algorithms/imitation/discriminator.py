"""Discriminators of a policy's decisions from recorded ones, and their losses, as pure torch functions of rows [n]."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus
from torch.nn.utils.parametrizations import spectral_norm

from ludus.policies.bodies import body_config, make_body, orthogonal

if TYPE_CHECKING:
    from ludus.algorithms.rewards.base import Floats
    from ludus.contrib.algorithms.imitation.config import AIRL, GAIL, Adversarial


def discriminator_loss(expert: Tensor, policy: Tensor) -> Tensor:
    """Return -E_expert log D - E_policy log(1 - D), of logits of D, the probability that a row is an expert's. (Ho and
    Ermon 2016, equation 16, whose D is that of the policy.)"""
    return softplus(-expert).mean() + softplus(policy).mean()


def gail_reward(logit: Tensor, *, form: str) -> Tensor:
    """Return the reward of logits: -log(1 - D) "positive", log D "negative", or log D - log(1 - D) "logit"."""
    if form == "positive":
        return softplus(logit)
    return logsigmoid(logit) if form == "negative" else logit


def shaped(g: Tensor, before: Tensor, after: Tensor, *, gamma: float) -> Tensor:
    """Return f = g + γ h(s') - h(s). (Fu et al. 2018, equation 4.)"""
    return g + gamma * after - before


def absorbing_state_return(reward: Floats, *, gamma: float) -> Floats:
    """Return what a decision that ends an episode receives in addition to its own reward, where each step in the
    absorbing state is rewarded `reward`: the sum of γ^t reward from t = 1. (Kostrikov et al. 2019, section 4.2.)"""
    return gamma / (1.0 - gamma) * reward


class Compared(NamedTuple):
    """n rows as networks see them: observation and after float[n, *shape], action float[n, width], absorbing float[n]:
    1 in the absorbing state, whose observation and action are ignored, over float[n]: 1 where the next state is
    absorbing. logp float[n]: of the learning policy."""

    observation: Tensor
    action: Tensor
    absorbing: Tensor
    after: Tensor
    over: Tensor
    logp: Tensor


def penalty(module: Discriminator, expert: Compared, policy: Compared, share: Tensor) -> Tensor:
    """Return (‖∇ f‖ - 1)² [n] at points between both sides' rows, the expert's with weight `share` [n], by all inputs
    of f. Without an absorbing state, no point is after an end. (Gulrajani et al. 2017, equation 3.)"""

    def between(one: Tensor, other: Tensor) -> Tensor:
        weight = share.view(-1, *[1] * (one.ndim - 1))
        return (weight * one + (1.0 - weight) * other).detach().requires_grad_()

    rows = Compared(*(between(one, other) for one, other in zip(expert, policy, strict=True)))
    if not module.absorbing:
        rows = rows._replace(over=torch.zeros_like(share))
    inputs = [rows.observation]
    inputs += [rows.action] if module.sees_actions else []
    inputs += [rows.after] if module.sees_after else []
    inputs += [rows.absorbing] if module.absorbing else []
    inputs += [rows.over] if module.absorbing and module.sees_after else []
    grads = torch.autograd.grad(module(rows).sum(), inputs, create_graph=True)
    square = torch.stack([slope.reshape(len(share), -1).square().sum(dim=1) for slope in grads]).sum(dim=0)
    return ((square + 1e-12).sqrt() - 1.0).square()


# --------------------------------------------------------------------------------------------------------------------


class DiscriminatorNetwork(nn.Module):
    """A number for each row, of an observation and optionally an action. The absorbing state is a flag."""

    def __init__(self, config: Adversarial, shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.sight: nn.Module = nn.Flatten()
        width = math.prod(shape)
        if config.network != "mlp":
            self.sight, width = make_body(body_config(config.network), shape)
        self._absorbing = config.absorbing
        width += actions + self._absorbing
        perceptron, last = make_body(body_config("mlp", config.hidden, config.activation), (width,))
        self.perceptron = nn.Sequential(perceptron, nn.Linear(last, 1))
        orthogonal(self)
        orthogonal(
            self.perceptron[-1], 0.01
        )  # it has no opinion at first: a policy that follows one would end before there is another

    def forward(self, observation: Tensor, action: Tensor | None, absorbing: Tensor) -> Tensor:
        """Return float[n]."""
        x = self.sight(observation)
        x = x if action is None else torch.cat([x, action], dim=1)
        if self._absorbing:
            is_that = absorbing[:, None]
            x = torch.cat([x * (1.0 - is_that), is_that], dim=1)
        out: Tensor = self.perceptron(x)
        return out[:, 0]


class Discriminator(nn.Module):
    """Base of f [n] of `Compared` rows."""

    sees_after = False

    def __init__(self, config: Adversarial) -> None:
        super().__init__()
        self.sees_actions, self.absorbing = config.actions, config.absorbing

    def forward(self, rows: Compared) -> Tensor:
        raise NotImplementedError


class PlainDiscriminator(Discriminator):
    """The logit of D(s, a)."""

    def __init__(self, config: GAIL, shape: tuple[int, ...], actions: int) -> None:
        super().__init__(config)
        self.judge = DiscriminatorNetwork(config, shape, actions if config.actions else 0)
        _divide(self, config)

    def forward(self, rows: Compared) -> Tensor:
        out: Tensor = self.judge(rows.observation, rows.action if self.sees_actions else None, rows.absorbing)
        return out


class ShapedDiscriminator(Discriminator):
    """f = g + γ h(s') - h(s), where h is 0 after the end of an episode, unless that is a state like others."""

    sees_after = True

    def __init__(self, config: AIRL, shape: tuple[int, ...], actions: int, *, gamma: float) -> None:
        super().__init__(config)
        self._gamma = gamma
        self.g = DiscriminatorNetwork(config, shape, actions if config.actions else 0)
        self.h = DiscriminatorNetwork(config, shape, 0)
        _divide(self, config)

    def unshaped(self, rows: Compared) -> Tensor:
        """Return g [n]."""
        out: Tensor = self.g(rows.observation, rows.action if self.sees_actions else None, rows.absorbing)
        return out

    def forward(self, rows: Compared) -> Tensor:
        both = self.h(torch.cat([rows.observation, rows.after]), None, torch.cat([rows.absorbing, rows.over]))
        before, after = both[: len(rows.over)], both[len(rows.over) :]
        after = after if self.absorbing else after * (1.0 - rows.over)
        return shaped(self.unshaped(rows), before, after, gamma=self._gamma)


def _divide(module: nn.Module, config: Adversarial) -> None:
    """Apply spectral normalisation, if it is requested. (Miyato et al. 2018.)"""
    if config.spectral:
        for part in list(module.modules()):
            if isinstance(part, (nn.Linear, nn.Conv2d)):
                spectral_norm(part)
