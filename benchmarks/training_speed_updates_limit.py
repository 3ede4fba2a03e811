"""The limit of DQN's and SAC's updates in `benchmarks.training_speed`: a bare loop on one prepared batch, in plain torch.

    python -m benchmarks.training_speed_updates_limit --case dqn sac

DQN (Mnih et al. 2015): targets of the target network, Huber loss, backward pass, torch's Adam (fused); the target is copied every so many
updates. SAC (Haarnoja et al. 2018) with two critics and a learned temperature: targets, the critics' step, the actor's, the
temperature's, and the targets that follow. Nothing is sampled, clipped or reported.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import REPLAY, Replay

PACKAGES = ("torch", "numpy")


def perceptron(inputs: int, outputs: int, setting: Replay) -> nn.Sequential:
    """ReLU layers."""
    layers: list[nn.Module] = []
    for width in setting.hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def _adam(parameters: Iterable[nn.Parameter], setting: Replay) -> torch.optim.Optimizer:
    gpu = torch.get_default_device().type == "cuda"  # where `benchmarks.gpu_learning` captures what is done here
    return torch.optim.Adam(parameters, lr=setting.learning_rate, fused=True, capturable=gpu)


def dqn(setting: Replay) -> Callable[[], None]:
    """CartPole's sizes: 4 inputs, 2 actions."""
    online = perceptron(4, 2, setting)
    target, adam = copy.deepcopy(online), _adam(online.parameters(), setting)
    now, after, reward = torch.randn(setting.batch, 4), torch.randn(setting.batch, 4), torch.randn(setting.batch)
    action, discount = torch.randint(0, 2, (setting.batch, 1)), torch.full((setting.batch,), setting.gamma)
    done = 0

    def update() -> None:
        nonlocal done
        with torch.no_grad():
            wanted = reward + discount * target(after).max(1).values
        loss = nn.functional.smooth_l1_loss(online(now).gather(1, action)[:, 0], wanted)
        adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        done += 1
        if done % setting.target_period == 0:
            target.load_state_dict(online.state_dict())

    return update


def squashed(out: Tensor) -> tuple[Tensor, Tensor]:
    """Actions tanh(mean + std × noise) [n, d] and their log-densities [n]."""
    mean, log_std = out.chunk(2, 1)
    log_std = log_std.clamp(-20.0, 2.0)
    noise = torch.randn_like(mean)
    u = mean + log_std.exp() * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)
    slope = 2.0 * (math.log(2.0) - u - nn.functional.softplus(-2.0 * u))
    return u.tanh(), (normal - slope).sum(1)


def sac(setting: Replay) -> Callable[[], None]:
    """Pendulum's sizes: 3 inputs, actions of 1."""
    actor = perceptron(3, 2, setting)
    critics = nn.ModuleList([perceptron(4, 1, setting) for _ in range(2)])
    targets, log_alpha = copy.deepcopy(critics).requires_grad_(False), nn.Parameter(torch.zeros(1))
    of_actor, of_critics, of_alpha = (
        _adam(parameters, setting) for parameters in (actor.parameters(), critics.parameters(), [log_alpha])
    )
    followed: list[Tensor] = list(targets.parameters())
    leading: list[Tensor] = list(critics.parameters())
    now, after, action = torch.randn(setting.batch, 3), torch.randn(setting.batch, 3), torch.rand(setting.batch, 1)
    reward, discount = torch.randn(setting.batch), torch.full((setting.batch,), setting.gamma)

    def least(of: nn.ModuleList, seen: Tensor, chosen: Tensor) -> Tensor:
        both = torch.cat([seen, chosen], 1)
        return torch.minimum(of[0](both), of[1](both))[:, 0]

    def update() -> None:
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            chosen, logp = squashed(actor(after))
            wanted = reward + discount * (least(targets, after, chosen) - alpha * logp)
        both = torch.cat([now, action], 1)
        loss = torch.stack([nn.functional.mse_loss(critic(both)[:, 0], wanted) for critic in critics]).sum()
        of_critics.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        of_critics.step()
        chosen, logp = squashed(actor(now))
        critics.requires_grad_(False)  # their gradients are not wanted here
        cost = (alpha * logp - least(critics, now, chosen)).mean()
        of_actor.zero_grad(set_to_none=True)
        cost.backward()  # type: ignore[no-untyped-call]
        of_actor.step()
        critics.requires_grad_(True)
        of_alpha.zero_grad(set_to_none=True)
        (-log_alpha * (logp.detach().mean() - 1.0)).sum().backward()  # type: ignore[no-untyped-call]
        of_alpha.step()
        torch._foreach_lerp_(followed, leading, setting.polyak)

    return update


def _orders(kind: str, seed: int) -> Iterator[int]:
    torch.manual_seed(seed)
    setting = REPLAY[kind]
    update = (dqn if kind == "dqn" else sac)(setting)
    while True:
        for _ in range(setting.updates):
            update()
        yield setting.updates


CASES: dict[str, Callable[[int], Orders]] = {kind: partial(_orders, kind) for kind in REPLAY}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(work(CASES, PACKAGES, unit="updates"))
