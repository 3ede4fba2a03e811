"""PufferLib: `PuffeRL` on CartPole, `evaluate` and `train` in turn, on the processor.

    python -m benchmarks.peers.pufferlib_training.run --case pufferlib/gymnasium

`python` is its `GymnasiumPufferEnv` in its `Serial` vector; Gymnasium's native vector comes as a native `PufferEnv` of 128 agents; `c` is
its own CartPole in C, which no other library here has. It asks for Gymnasium 0.29.1, and runs with 1.4.0 as well, which the others have: a
step of the older one's Python CartPole takes 4.0 microseconds, of the newer one's 7.3.

The network is its default's with ReLU, 64 wide; the optimizer is Adam, less work than its default, Muon. No dashboard, and no thread
that looks at the machine's load.
"""

from __future__ import annotations

import configparser
import sys
from ast import literal_eval
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pufferlib.emulation
import pufferlib.pufferl
import pufferlib.vector
import torch
from pufferlib.ocean.cartpole.cartpole import Cartpole
from torch import nn

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import SETTINGS

SETTING = SETTINGS["pufferlib"]


class Policy(nn.Module):
    """One hidden layer for logits and value."""

    def __init__(self) -> None:
        super().__init__()
        (width,) = SETTING.hidden
        self.hidden = nn.Linear(4, width)
        self.logits, self.value = nn.Linear(width, 2), nn.Linear(width, 1)

    def forward(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.relu(self.hidden(x))
        return self.logits(features), self.value(features)

    forward_eval = forward


class Vector(pufferlib.PufferEnv):
    """Gymnasium's vector; ended environments are reset within the step."""

    def __init__(self, count: int, buf: Any = None, seed: int = 0) -> None:
        self.env = CartPoleVector(count)
        self.single_observation_space = self.env.single_observation_space
        self.single_action_space = self.env.single_action_space
        self.num_agents = count
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, list[Any]]:
        self.observations[:] = self.env.reset(seed=seed)[0]
        return self.observations, []

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        seen, self.rewards[:], self.terminals[:], self.truncations[:], _ = self.env.step(actions)
        ended = np.flatnonzero(self.terminals | self.truncations)
        if len(ended):
            seen[ended] = self.env.reset(ended)[0]
        self.observations[:] = seen
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def close(self) -> None:
        self.env.close()


def _python(buf: Any = None, seed: int = 0) -> Any:
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)


def _vector(environment: str, seed: int) -> Any:
    count = SETTING.environments
    if environment == "python":
        return pufferlib.vector.make(_python, num_envs=count, backend=pufferlib.vector.Serial, seed=seed)
    # Its C environment says how episodes went at every `report_interval`th step.
    return Vector(count) if environment == "gymnasium" else Cartpole(num_envs=count, report_interval=SETTING.steps)


def config(seed: int) -> dict[str, Any]:
    """Its defaults, but for the setting's."""
    parser = configparser.ConfigParser()
    parser.read(Path(pufferlib.__file__).parent / "config" / "default.ini")
    values: dict[str, Any] = {}
    for key, text in parser["train"].items():
        try:
            values[key] = literal_eval(text)
        except (ValueError, SyntaxError):
            values[key] = text
    return {
        **values,
        "env": "cartpole",
        "seed": seed,
        "device": "cpu",
        "use_rnn": False,
        "optimizer": "adam",
        "total_timesteps": 10**9,
        "checkpoint_interval": 10**9,
        "bptt_horizon": SETTING.steps,
        "minibatch_size": SETTING.minibatch,
        "update_epochs": SETTING.epochs,
        "learning_rate": SETTING.learning_rate,
        "gamma": SETTING.gamma,
        "gae_lambda": SETTING.gae_lambda,
        "clip_coef": SETTING.clip,
        "vf_coef": SETTING.value_coefficient,
        "ent_coef": SETTING.entropy,
        "max_grad_norm": SETTING.max_gradient_norm,
    }


def ppo(environment: str, seed: int) -> Orders:
    """Iterations."""
    torch.manual_seed(seed)
    trainer = pufferlib.pufferl.PuffeRL(config(seed), _vector(environment, seed), Policy())
    trainer.utilization.stop()
    while True:
        before = trainer.global_step
        trainer.evaluate()
        trainer.train()
        yield trainer.global_step - before


CASES = {
    "pufferlib/gymnasium": partial(ppo, "gymnasium"),
    "pufferlib/python": partial(ppo, "python"),
    "pufferlib/c": partial(ppo, "c"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    pufferlib.pufferl.PuffeRL.print_dashboard = lambda *_, **__: None
    sys.exit(work(CASES, ("pufferlib", "gymnasium", "numpy", "torch")))
