"""The limit of `benchmarks.training_speed`: PPO's update on prepared tensors and collecting with nothing around them, in plain torch.

    python -m benchmarks.training_speed_limit --case sb3/gymnasium

Update: forward pass, clipped surrogate and value loss, backward pass, and a step of torch's Adam (fused), for every minibatch of every
epoch; minibatches are contiguous tensors that are there. No advantages, no shuffling, no clipping of gradients, no metrics.
Collecting: the environments' step, and one policy call: forward pass, sampled actions, their log-probabilities, values. Nothing is kept.
`SETTING/update` is the update alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import SETTINGS, Setting, cases

INPUTS, ACTIONS = 4, 2
PACKAGES = ("torch", "numpy", "gymnasium")


def perceptron(inputs: int, outputs: int, setting: Setting, *, head: bool = True) -> nn.Sequential:
    """Hidden layers with the activation behind each, and a linear layer of outputs."""
    layers: list[nn.Module] = []
    for width in setting.hidden:
        layers += [nn.Linear(inputs, width), nn.Tanh() if setting.activation == "tanh" else nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs)) if head else nn.Sequential(*layers)


class Networks(nn.Module):
    """Policy and value: two perceptrons, or one whose last output is the value."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.separate = setting.separate
        self.policy = perceptron(INPUTS, ACTIONS + (not setting.separate), setting)
        if setting.separate:
            self.value = perceptron(INPUTS, 1, setting)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [n, 2] and values [n]."""
        out = self.policy(x)
        return (out, self.value(x)[:, 0]) if self.separate else (out[:, :-1], out[:, -1])


def updates(setting: Setting, networks: Networks) -> Callable[[], None]:
    """One iteration's steps."""
    adam = torch.optim.Adam(networks.parameters(), lr=setting.learning_rate, fused=True)
    parts = [_rows(min(setting.minibatch, setting.batch)) for _ in range(setting.minibatches)]

    def update() -> None:
        for _ in range(setting.epochs):
            for x, action, old, advantage, target in parts:
                logits, value = networks(x)
                ratio = (logits.log_softmax(1).gather(1, action)[:, 0] - old).exp()
                near = ratio.clamp(1.0 - setting.clip, 1.0 + setting.clip)
                surrogate = torch.minimum(advantage * ratio, advantage * near).mean()
                loss = setting.value_coefficient * nn.functional.mse_loss(value, target) - surrogate
                adam.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()

    return update


def _rows(count: int) -> tuple[Tensor, ...]:
    x, action = torch.randn(count, INPUTS), torch.randint(0, ACTIONS, (count, 1))
    return x, action, torch.full((count,), -0.7), torch.randn(count), torch.randn(count)


def collecting(setting: Setting, environment: str, networks: Networks, seed: int) -> Callable[[], None]:
    """One iteration's steps of the environments."""
    step, now = _environments(setting.environments, environment, seed)

    def act(seen: np.ndarray) -> np.ndarray:
        logits, _ = networks(torch.from_numpy(seen))
        logp = logits.log_softmax(1)
        action = torch.multinomial(logp.exp(), 1)
        logp.gather(1, action)
        return action[:, 0].numpy()

    @torch.inference_mode()
    def collect() -> None:
        nonlocal now
        for _ in range(setting.steps):
            now = step(act(now))

    return collect


def _environments(count: int, kind: str, seed: int) -> tuple[Callable[[Any], np.ndarray], np.ndarray]:
    """What takes actions and gives observations, and the first ones."""
    if kind == "gymnasium":
        vector = gymnasium.make_vec("CartPole-v1", num_envs=count, vectorization_mode="vector_entry_point")
        return lambda actions: vector.step(actions)[0], vector.reset(seed=seed)[0]
    many = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(count)]
    seen = np.stack([env.reset(seed=seed + k)[0] for k, env in enumerate(many)])

    def step(actions: np.ndarray) -> np.ndarray:
        for k, (env, action) in enumerate(zip(many, actions.tolist(), strict=True)):
            row, _, terminated, truncated, _ = env.step(action)
            seen[k] = env.reset()[0] if terminated or truncated else row
        return seen

    return step, seen


def both(case: str, seed: int) -> Orders:
    """Collect, and update."""
    setting, environment = SETTINGS[case.partition("/")[0]], case.partition("/")[2]
    torch.manual_seed(seed)
    networks = Networks(setting)
    update = updates(setting, networks)
    collect = collecting(setting, environment, networks, seed) if environment != "update" else None
    return _orders(setting.batch, update, collect)


def _orders(batch: int, update: Callable[[], None], collect: Callable[[], None] | None) -> Iterator[int]:
    while True:
        if collect is not None:
            collect()
        update()
        yield batch


CASES = {case: partial(both, case) for case in (*cases(*SETTINGS), *(f"{setting}/update" for setting in SETTINGS))}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(work(CASES, PACKAGES))
