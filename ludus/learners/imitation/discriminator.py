"""Networks that tell a policy's decisions from recorded ones, and their losses, as pure torch functions of rows [n]."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus
from torch.nn.utils.parametrizations import spectral_norm

from ludus.policies.bodies import body_config, make_body, orthogonal

if TYPE_CHECKING:
    from ludus.learners.imitation.options import AIRL, GAIL, Adversarial


def discriminator_loss(expert: Tensor, policy: Tensor) -> Tensor:
    """-E_expert log D - E_policy log(1 - D), of logits of D, the probability that a row is an expert's. (Ho and Ermon 2016, equation 16,
    whose D is that of the policy.)"""
    return softplus(-expert).mean() + softplus(policy).mean()


def gail_reward(logit: Tensor, *, form: str) -> Tensor:
    """-log(1 - D) "positive", log D "negative", or log D - log(1 - D) "logit"."""
    if form == "positive":
        return softplus(logit)
    return logsigmoid(logit) if form == "negative" else logit


def shaped(g: Tensor, before: Tensor, after: Tensor, *, gamma: float, goes_on: Tensor) -> Tensor:
    """f = g + γ h(s') - h(s), where h is 0 behind the end of an episode. (Fu et al. 2018, equation 4.)"""
    return g + gamma * goes_on * after - before


class Compared(NamedTuple):
    """n rows as networks see them: observation and after float[n, *shape], action float[n, width], goes_on float[n]: 1, or 0 where nothing
    comes after. logp float[n]: of the policy that learns."""

    observation: Tensor
    action: Tensor
    after: Tensor
    goes_on: Tensor
    logp: Tensor


def penalty(module: Discriminator, expert: Compared, policy: Compared, share: Tensor) -> Tensor:
    """(‖∇ f‖ - 1)² [n] at points between both sides' rows, the expert's by `share` [n], by all that f sees. (Gulrajani et al. 2017,
    equation 3.)"""

    def between(one: Tensor, other: Tensor) -> Tensor:
        weight = share.view(-1, *[1] * (one.ndim - 1))
        return (weight * one + (1.0 - weight) * other).detach().requires_grad_()

    pairs = zip(expert[:3], policy[:3], strict=True)
    observation, action, after = (between(one, other) for one, other in pairs)
    rows = Compared(observation, action, after, torch.ones_like(share), torch.zeros_like(share))
    seen = [observation, *([action] if module.sees_actions else []), *([after] if module.sees_after else [])]
    slopes = torch.autograd.grad(module(rows).sum(), seen, create_graph=True)
    square = torch.stack([slope.flatten(1).square().sum(dim=1) for slope in slopes]).sum(dim=0)
    return ((square + 1e-12).sqrt() - 1.0).square()


# --------------------------------------------------------------------------------------------------------------------


class Judge(nn.Module):
    """A number for each row, of what it shows of an observation, beside an action if that is given."""

    def __init__(self, config: Adversarial, shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.sight: nn.Module = nn.Flatten()
        width = math.prod(shape)
        if config.network != "mlp":
            self.sight, width = make_body(body_config(config.network), shape)
        perceptron, last = make_body(body_config("mlp", config.hidden, config.activation), (width + actions,))
        self.perceptron = nn.Sequential(perceptron, nn.Linear(last, 1))
        orthogonal(self)

    def forward(self, observation: Tensor, action: Tensor | None) -> Tensor:
        """float[n]."""
        seen = self.sight(observation)
        out: Tensor = self.perceptron(seen if action is None else torch.cat([seen, action], dim=1))
        return out[:, 0]


class Discriminator(nn.Module):
    """f [n] of `Compared` rows."""

    sees_after = False

    def __init__(self, *, sees_actions: bool) -> None:
        super().__init__()
        self.sees_actions = sees_actions

    def forward(self, rows: Compared) -> Tensor:
        """As the class says."""
        raise NotImplementedError


class PlainDiscriminator(Discriminator):
    """The logit of D(s, a)."""

    def __init__(self, config: GAIL, shape: tuple[int, ...], actions: int) -> None:
        super().__init__(sees_actions=config.actions)
        self.judge = Judge(config, shape, actions if config.actions else 0)
        _divide(self, config)

    def forward(self, rows: Compared) -> Tensor:
        """As the class says."""
        out: Tensor = self.judge(rows.observation, rows.action if self.sees_actions else None)
        return out


class ShapedDiscriminator(Discriminator):
    """f = g + γ h(s') - h(s)."""

    sees_after = True

    def __init__(self, config: AIRL, shape: tuple[int, ...], actions: int) -> None:
        super().__init__(sees_actions=config.actions)
        self._gamma = config.gamma
        self.g = Judge(config, shape, actions if config.actions else 0)
        self.h = Judge(config, shape, 0)
        _divide(self, config)

    def unshaped(self, rows: Compared) -> Tensor:
        """g [n]."""
        out: Tensor = self.g(rows.observation, rows.action if self.sees_actions else None)
        return out

    def forward(self, rows: Compared) -> Tensor:
        """As the class says."""
        both = self.h(torch.cat([rows.observation, rows.after]), None)
        before, after = both[: len(rows.goes_on)], both[len(rows.goes_on) :]
        return shaped(self.unshaped(rows), before, after, gamma=self._gamma, goes_on=rows.goes_on)


def _divide(module: nn.Module, config: Adversarial) -> None:
    """Spectral normalisation, where it is asked for. (Miyato et al. 2018.)"""
    if config.spectral:
        for part in list(module.modules()):
            if isinstance(part, (nn.Linear, nn.Conv2d)):
                spectral_norm(part)
