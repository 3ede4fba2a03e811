"""Learning on a GPU, beside the bare limit, Stable-Baselines3, and what the GPU can multiply.

PPO's frames lie on the device, as a table there gives them; an update is all epochs over them, and its limit is forward pass, loss,
backward pass and torch's fused Adam, compiled, on minibatches that are cut already. Ludus's steps are compiled, too (`runtime.compile`).
DQN and SAC are measured by a training task's trainer with its table on the device (rows go in, batches are drawn, weights come out), at
Stable-Baselines3's settings (`benchmarks/peers/training.py`); their limit is the bare loop of `benchmarks.training_speed_updates_limit` as
CUDA graphs. The transformer is a body of one's own in PPO; its operations are counted as 6 for each weight of a matrix and each token
(Kaplan et al. 2020, arXiv:2001.08361, §2.1; attention itself is left out), and the peak is that of products of large matrices in the same
process.

SB3 wants an environment of its own: python -m benchmarks.harness setup sb3_rollout
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant, Medians, ratio
from benchmarks.peers.collecting import per_wall
from benchmarks.peers.training import REPLAY

if TYPE_CHECKING:
    import torch

    from ludus.algorithms.common.base import Learner
    from ludus.core.types import DeviceChoice
    from ludus.replay.base import Sample

FRAMES, SHARE = "seconds per million frames", "share of the peak"


def _orders(options: Options) -> int:
    return 1 if options.small else 3 if options.quick else 9


def _choice(options: Options, *, bf16: bool = False) -> DeviceChoice:
    """By torch, on the CPU too: passes that are written out are none of a GPU's. Steps are compiled on a GPU."""
    from ludus.core.types import DeviceChoice

    return DeviceChoice(options.device, "bf16" if bf16 else "float32", written=False, compile=not options.small)


def _require_compiled(learner: object, options: Options) -> None:
    """Raises RuntimeError where its steps are not: figures of others are none that are asked for here."""
    from ludus.backend.device import describe_device

    if not options.small and "compiled)" not in describe_device(learner):
        raise RuntimeError(f"steps are not compiled: {describe_device(learner)}")


# --------------------------------------------------------------------------------------------------------------------
# PPO, from rows that lie on the device.


@dataclass(frozen=True, slots=True)
class Rows:
    """Of an update, and how they are learned from."""

    shape: tuple[int, ...]
    count: int
    minibatches: int
    epochs: int
    actions: int = 6

    @staticmethod
    def frames(options: Options) -> Rows:
        """Of Atari, four stacked."""
        return Rows((4, 84, 84), *((64, 2, 1) if options.small else (8192, 4, 2)))

    @property
    def image(self) -> bool:
        return len(self.shape) == 3

    def columns(self, seed: int) -> dict[str, np.ndarray]:
        """As a learner's table holds them; they mean nothing."""
        rng, n = np.random.default_rng(seed), self.count
        seen = (
            rng.integers(0, 256, (n, *self.shape), np.uint8) if self.image else rng.random((n, *self.shape), np.float32)
        )
        numbers = {name: rng.standard_normal(n, np.float32) for name in ("advantage", "target", "value")}
        uniform = np.full(n, -np.log(self.actions), np.float32)
        action = rng.integers(0, self.actions, n).astype(np.int32)
        versions = np.zeros(n, np.int32)
        return {"observation": seen, "action": action, "logp": uniform, **numbers, "version_lo": versions}


def ppo_of(rows: Rows, choice: DeviceChoice, seed: int, **options: Any) -> tuple[Learner, Sample]:
    """A learner with these options, and its batch where it computes."""
    from gymnasium.spaces import Box, Discrete

    from ludus.algorithms.common.base import LearnerContext
    from ludus.algorithms.ppo.config import PPO
    from ludus.backend.device import placement_for_table
    from ludus.core.types import AgentSpec, EnvSpec
    from ludus.replay.base import TableSpec
    from ludus.replay.kinds import build_table

    box = Box(0, 255, rows.shape, np.uint8) if rows.image else Box(-np.inf, np.inf, rows.shape, np.float32)
    agent = AgentSpec("player_0", 0, box, Discrete(rows.actions))
    env = EnvSpec(id="rows", agents=(agent,), utility_range=((-1.0, 1.0),), symmetry=((0,),), zero_sum=False)
    algorithm = PPO(
        batch=rows.count, batch_unit="decisions", minibatches=rows.minibatches, epochs=rows.epochs, **options
    )
    learner = algorithm.learner(LearnerContext(env, (0,), seed, device=choice))
    place = placement_for_table(learner, "rollouts")
    assert place is not None
    table = build_table(TableSpec("rollouts"), place.torch)
    table.try_insert(rows.columns(seed))
    sample = table.try_sample(0, np.random.default_rng(0))
    assert sample is not None
    return learner, sample


def frames(options: Options) -> Mapping[str, float]:
    """Ludus's update."""
    rows = Rows.frames(options)
    learner, sample = ppo_of(rows, _choice(options, bf16=True), options.seed, network="nature")
    seconds = median_seconds(lambda: learner.update(sample), orders=_orders(options))
    _require_compiled(learner, options)
    return {FRAMES: 1e6 * seconds / (rows.count * rows.epochs)}


def frames_limit(options: Options) -> Mapping[str, float]:
    """The bare one."""
    import torch

    from benchmarks.peers.networks import nature_cnn

    torch.manual_seed(options.seed)
    rows, device = Rows.frames(options), torch.device(options.device)
    network = nature_cnn(4, rows.actions).to(device).to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(network.parameters(), lr=3e-4, fused=True)
    columns = {name: torch.from_numpy(column).to(device) for name, column in rows.columns(options.seed).items()}
    names = ("observation", "action", "logp", "advantage", "target")
    parts = list(zip(*(columns[name].chunk(rows.minibatches) for name in names), strict=True))

    def loss_of(x: Any, action: Any, old: Any, advantage: Any, target: Any) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits, value = network(x)
        log = logits.float().log_softmax(1).gather(1, action.long()[:, None])[:, 0]
        quotient = (log - old).exp()
        surrogate = torch.minimum(advantage * quotient, advantage * quotient.clamp(0.8, 1.2)).mean()
        return 0.5 * torch.nn.functional.mse_loss(value.float()[:, 0], target) - surrogate

    fast = loss_of if options.small else torch.compile(loss_of, mode="reduce-overhead")

    def update() -> float:
        for part in parts * rows.epochs:
            adam.zero_grad(set_to_none=True)
            loss = fast(*part)
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        return float(loss.detach())

    return {FRAMES: 1e6 * median_seconds(update, orders=_orders(options)) / (rows.count * rows.epochs)}


# --------------------------------------------------------------------------------------------------------------------
# A transformer of 10 million parameters, as a body of one's own.

TOKENS, SEEN = 64, 32


def transformer(shape: Sequence[int], *, width: int = 384, layers: int = 6) -> torch.nn.Module:
    """float[n, tokens, ·] -> float[n, width], the mean over tokens: a pre-norm encoder with heads of 64."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.mixing, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, tokens, _ = x.shape
            parts = self.mixing(self.norms[0](x)).view(n, tokens, 3, -1, 64).transpose(1, 3).unbind(2)
            seen = nn.functional.scaled_dot_product_attention(*parts)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            out: torch.Tensor = x + self.wide(self.norms[1](x))
            return out

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.place = nn.Linear(shape[1], width), nn.Parameter(torch.zeros(1, shape[0], width))
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(layers))), nn.LayerNorm(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.norm(self.blocks(self.first(x) + self.place)).mean(dim=1)
            return out.float()

    return Encoder()


def attending(options: Options) -> Mapping[str, float]:
    """PPO's update, in operations a second beside those of large products."""
    rows = Rows((TOKENS, SEEN), *((16, 2, 1) if options.small else (8192, 4, 2)))
    learner, sample = ppo_of(rows, _choice(options, bf16=True), options.seed, network=f"{__name__}:transformer")
    matrices = sum(p.numel() for p in transformer(rows.shape).parameters() if p.ndim == 2)
    seconds = median_seconds(lambda: learner.update(sample), orders=_orders(options))
    _require_compiled(learner, options)
    done = 6.0 * matrices * TOKENS * rows.count * rows.epochs / seconds
    peak = _peak(options)
    return {SHARE: done / peak, "operations per second": done, "peak, operations per second": peak}


def _peak(options: Options) -> float:
    """Operations per second of products in bf16."""
    import torch

    size, times = (256, 2) if options.small else (8192, 20)
    one, other = (torch.randn(size, size, device=options.device, dtype=torch.bfloat16) for _ in range(2))

    def products() -> float:
        for _ in range(times):
            out = one @ other
        return float(out[0, 0])

    return 2.0 * size**3 * times / median_seconds(products, orders=_orders(options))


# --------------------------------------------------------------------------------------------------------------------
# DQN and SAC, from a table on the device.


def replaying(kind: str, options: Options) -> Mapping[str, float]:
    """A trainer's updates."""
    from benchmarks.training_speed_updates_run import orders
    from ludus.training.trainer import BatchPlacement

    rounds = orders(kind, options.seed, _choice(options), BatchPlacement(on_device=True))
    return _updates(kind, lambda: next(rounds), options)


def replaying_limit(kind: str, options: Options) -> Mapping[str, float]:
    """A bare loop on one batch; on a GPU as many of its rounds as copy the targets once are a CUDA graph."""
    import torch

    from benchmarks.training_speed_updates_limit import dqn, sac

    torch.manual_seed(options.seed)
    setting = REPLAY[kind]
    with torch.device(options.device):
        update = (dqn if kind == "dqn" else sac)(setting)
        together = setting.target_period

        def some() -> None:
            for _ in range(together):
                update()

        run = some if options.small else _graph(some)

        def order() -> float:
            for _ in range(setting.updates // together):
                run()
            return float(torch.zeros(()))  # waits

        return _updates(kind, order, options)


def _graph(run: Callable[[], None]) -> Callable[[], None]:
    """Captured, after some turns by which torch takes its memory."""
    import torch

    beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    replay: Callable[[], None] = graph.replay
    return replay


def _updates(kind: str, order: Callable[[], object], options: Options) -> Mapping[str, float]:
    return {per_wall(kind, "updates"): REPLAY[kind].updates / median_seconds(order, orders=_orders(options))}


# --------------------------------------------------------------------------------------------------------------------
# Who is measured, and what is wanted.

NAMES = {"dqn": "DQN 256 × 256, batch 64", "sac": "SAC 256 × 256, batch 256"}
OF_LIMIT = {"dqn": ">= 0.85", "sac": ">= 0.7"}

KINDS: Mapping[str, Measure] = {
    "frames": frames,
    "frames_limit": frames_limit,
    "attending": attending,
    **{kind: partial(replaying, kind) for kind in NAMES},
    **{f"{kind}_limit": partial(replaying_limit, kind) for kind in NAMES},
}


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device; SB3 beside a GPU only."""
    sb3 = Contestant(
        "SB3, DQN and SAC", "benchmarks.peers.sb3_rollout.updates", ("--case", *NAMES, "--device", device), "sb3_rollout",
        seeds=(0, 1, 2), quick_seeds=(),
    )  # fmt: skip
    return (
        contestant("PPO, Nature CNN", "frames", device),
        contestant("PPO, Nature CNN, limit", "frames_limit", device),
        contestant("PPO, transformer", "attending", device),
        *(contestant(name, kind, device) for kind, name in NAMES.items()),
        *(contestant(f"{name}, limit", f"{kind}_limit", device) for kind, name in NAMES.items()),
        *(() if device == "cpu" else (sb3,)),
    )


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""

    def beside(kind: str, other: str) -> Callable[[Medians], float]:
        figure = per_wall(kind, "updates")
        return lambda m: m(NAMES[kind], figure) / m(other, figure)

    share = ratio(slow="PPO, Nature CNN, limit", fast="PPO, Nature CNN", figure=FRAMES)
    return (
        Bar("PPO, Nature CNN, bf16, of the limit", ">= 0.85", share, unit="x", quick=gpu),
        *(
            Bar(f"{name}, of the limit", OF_LIMIT[kind], beside(kind, f"{name}, limit"), unit="x", quick=gpu)
            for kind, name in NAMES.items()
        ),
        *(
            Bar(f"{name}, times SB3", ">= 2", beside(kind, "SB3, DQN and SAC"), unit="x", quick=gpu)
            for kind, name in NAMES.items()
        ),
        Bar(
            "transformer of 10 M parameters, of the peak", ">= 0.25", lambda m: m("PPO, transformer", SHARE), unit="x", quick=gpu
        ),
    )  # fmt: skip
