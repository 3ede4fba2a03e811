"""A team that learns where it is simulated: MAPPO on VMAS' navigation, 4,096 environments, beside bare steps of VMAS and a bare learner.

`vmas_mappo` is a task's rounds as a run has them: play on the device, learn there, and read how it went. The bare steps are VMAS' own,
under random actions, with a reset of all after each 100. The bare learner is written down below in torch: it acts as often, and learns from
as many rows, by networks of the same sizes, as many minibatches and epochs, fused Adam, and whatever PPO must compute; but its rows are
made up, and nobody counts anything. What is wanted is the time of both together, as a share of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant, Medians

if TYPE_CHECKING:
    from ludus.core.types import PolicyRef
    from ludus.policies.base import Policy

SECONDS, STEPS = "seconds per 100,000 environment steps", "environment steps per second"


@dataclass(frozen=True, slots=True)
class Sizes:
    """environments, and of each: steps of a round."""

    environments: int = 4096
    steps: int = 25
    agents: int = 4
    hidden: tuple[int, ...] = (256, 256)
    epochs: int = 5
    minibatches: int = 8
    orders: int = 9

    @property
    def rows(self) -> int:
        return self.environments * self.steps * self.agents

    def figures(self, seconds: float) -> Mapping[str, float]:
        """Of a round that took so long."""
        rate = self.environments * self.steps / seconds
        return {SECONDS: 100_000 / rate, STEPS: rate}


def _sizes(options: Options) -> Sizes:
    if options.small:
        return Sizes(environments=32, steps=5, hidden=(32,), epochs=2, minibatches=2, orders=2)
    return Sizes(orders=3) if options.quick else Sizes()


def mappo(options: Options) -> Mapping[str, float]:
    """Rounds of a task."""
    from ludus.algorithms.ppo.config import MAPPO
    from ludus.core.types import DeviceChoice, Mixture, TrainingTask
    from ludus.envs.config import Environment
    from ludus.replay.episode_server import EpisodeServer
    from ludus.rollout.host import LocalRollouts
    from ludus.training.ondevice_collector import DeviceVectors
    from ludus.training.stopping import parse_stopper
    from ludus.training.training import Training, TrainingParts

    sizes = _sizes(options)
    algorithm = MAPPO(
        hidden=sizes.hidden,
        batch=sizes.rows,
        batch_unit="decisions",
        epochs=sizes.epochs,
        minibatches=sizes.minibatches,
    )
    given = {"teams": "one", "n_agents": sizes.agents}
    env = Environment(id="vmas/navigation", num_envs=1, options=given, wrappers=("joint_state",)).make(num_envs=1)
    parts = TrainingParts(
        LocalRollouts.around(env),
        EpisodeServer(options.seed),
        _nobody,
        options.seed,
        device=DeviceChoice(options.device, written=False),
        vectors=DeviceVectors("device", env, sizes.environments),
    )
    task = TrainingTask("navigation", 1, 0, (0,), "0-1", Mixture(()), together=1.0)
    stop = parse_stopper({"decisions": 1 << 40})
    training = Training(task, algorithm=algorithm, parts=parts, stop=stop, start=None)
    training.step()  # loads kernels, and takes memory
    before, begun = training.progress.samples, time.perf_counter()
    for _ in range(sizes.orders):
        training.step()
    seconds = time.perf_counter() - begun
    return sizes.figures(seconds * sizes.rows / (training.progress.samples - before))


def _nobody(ref: PolicyRef) -> Policy:
    raise AssertionError(ref)


def steps(options: Options) -> Mapping[str, float]:
    """Of VMAS alone."""
    import torch
    import vmas

    sizes = _sizes(options)
    batch = vmas.make_env(
        "navigation",
        num_envs=sizes.environments,
        device=options.device,
        seed=options.seed,
        clamp_actions=True,
        terminated_truncated=True,
        n_agents=sizes.agents,
    )
    actions = [2 * torch.rand(sizes.environments, 2, device=options.device) - 1 for _ in range(sizes.agents)]
    done = 0

    def some() -> None:
        nonlocal done
        for _ in range(sizes.steps):
            if done % 100 == 0:
                batch.reset()
            rewards = batch.step(list(actions))[1]
            done += 1
        rewards[0].sum().item()

    return sizes.figures(median_seconds(some, orders=sizes.orders))


def learner(options: Options) -> Mapping[str, float]:
    """In torch alone: acts, estimates advantages, and learns."""
    import torch
    from torch import nn
    from torch.distributions import Normal

    sizes, device = _sizes(options), torch.device(options.device)
    seen, moves, generator = 4 + 2 + 12, 2, torch.Generator(device).manual_seed(options.seed)
    torch.manual_seed(options.seed)

    def network(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for width in sizes.hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        return nn.Sequential(*layers, nn.Linear(inputs, outputs)).to(device)

    actor, critic = network(seen, 2 * moves), network(seen * (sizes.agents + 1), 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(parameters, lr=7e-4, fused=True)
    place = (sizes.steps, sizes.environments, sizes.agents)
    observation = torch.randn(*place, seen, device=device, generator=generator)
    state = observation.flatten(2)[:, :, None].expand(-1, -1, sizes.agents, -1)
    reward = torch.randn(*place, device=device, generator=generator)

    def policy(x: torch.Tensor) -> Normal:
        mean, spread = actor(x).chunk(2, -1)
        return Normal(mean, spread.clamp(-5, 2).exp(), validate_args=False)

    def some() -> None:
        with torch.no_grad():
            action, logp = torch.empty(*place, moves, device=device), torch.empty(place, device=device)
            for t in range(sizes.steps):
                now = policy(observation[t])
                action[t] = now.sample()
                logp[t] = now.log_prob(action[t]).sum(-1)
            both = torch.cat([state, observation], -1)
            value = critic(both)[..., 0]
            advantage, ahead = torch.empty_like(reward), torch.zeros_like(reward[0])
            for t in reversed(range(sizes.steps - 1)):
                ahead = reward[t] + 0.99 * value[t + 1] - value[t] + 0.99 * 0.95 * ahead
                advantage[t] = ahead
            advantage[-1] = 0
            goal = (advantage + value).flatten()
            flat = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            x, c, a, old, flat = (
                observation.flatten(0, 2),
                both.flatten(0, 2),
                action.flatten(0, 2),
                logp.flatten(),
                flat.flatten(),
            )
        for _ in range(sizes.epochs):
            for part in torch.randperm(sizes.rows, device=device, generator=generator).chunk(sizes.minibatches):
                now = policy(x[part])
                ratio = (now.log_prob(a[part]).sum(-1) - old[part]).exp()
                surrogate = torch.minimum(ratio * flat[part], ratio.clamp(0.8, 1.2) * flat[part]).mean()
                value_loss = 0.5 * (critic(c[part])[:, 0] - goal[part]).square().mean()
                loss = value_loss - surrogate - 0.01 * now.entropy().sum(-1).mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 10.0)
                adam.step()
        loss.item()

    return sizes.figures(median_seconds(some, orders=sizes.orders))


KINDS: Mapping[str, Measure] = {"vmas_mappo": mappo, "vmas_steps": steps, "vmas_learner": learner}
MAPPO_THERE, BARE_STEPS, BARE_LEARNER = "navigation, MAPPO", "navigation, bare steps", "navigation, bare learner"


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return (
        contestant(MAPPO_THERE, "vmas_mappo", device),
        contestant(BARE_STEPS, "vmas_steps", device),
        contestant(BARE_LEARNER, "vmas_learner", device),
    )


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""

    def share(m: Medians) -> float:
        return (m(BARE_STEPS, SECONDS) + m(BARE_LEARNER, SECONDS)) / m(MAPPO_THERE, SECONDS)

    return (Bar("navigation, MAPPO: bare steps and bare learner, share of it", ">= 0.8", share, unit="x", quick=gpu),)
