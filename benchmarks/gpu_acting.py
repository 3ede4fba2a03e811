"""Acting on a GPU: a population's networks beside one, and an inference server beside copies on the CPU's cores.

`stack`: rows a second that policies of one architecture answer, observations taken from host memory and actions given back there: 50 of
them, each row one's at random, beside one that answers all; whose it is stays from call to call, as it does while episodes last. Networks
are perceptrons of two hidden layers, or remember by a GRU, whose memory stays on the device; there are 4,096 rows, a request that a server
answers at most.

`server`: decisions a second of 16 workers with eight environments that cost nothing, by one server on the device, and by copies in the
workers, by size of the network (`benchmarks.inference_worker`); the crossover is the first width at which the server is as fast. Workers
have a core each, where there are as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant, Medians

MEMBERS, ROWS, WORKERS = 50, 4096, 16
INPUTS, ACTIONS = 128, 16
STACKS = {"q 256x256": ("none", 256), "q 512x512": ("none", 512), "gru 256": ("gru", 256)}
WIDTHS = (64, 256, 512, 1024, 2048)
SMALL_WIDTHS = (16, 32)


def _stack(options: Options) -> Mapping[str, float]:
    """Rows a second, by network and members."""
    rows, orders = (ROWS, 15 if options.quick else 60) if not options.small else (256, 2)
    out = {}
    for name, (core, width) in STACKS.items():
        for members in (1, MEMBERS):
            act = _acting(options, core, width if not options.small else 16, members=members, rows=rows)
            out[_figure(name, members)] = rows / median_seconds(act, orders=orders)
    return out


def _acting(options: Options, core: str, width: int, *, members: int, rows: int) -> Callable[[], object]:
    """One call of a stack, as a bank makes it."""
    import torch

    from ludus.core.types import DeviceChoice
    from ludus.policies.action_values import initial_weights
    from ludus.policies.registry import build_policy
    from ludus.policies.specs import QHeadSpec, action_values_spec, body_config
    from ludus.rollout.inference.groups import Group, acting_placement

    spec = action_values_spec(
        shape=(INPUTS,),
        actions=ACTIONS,
        body=body_config(hidden=(width, width) if core == "none" else (width,)),
        head=QHeadSpec(dueling=True),
        core="gru" if core == "gru" else "none",
        width=width,
    )
    rng = np.random.default_rng(options.seed)
    policies = [build_policy(spec, initial_weights(spec, rng)) for _ in range(members)]
    place = acting_placement(policies[0], DeviceChoice(options.device, written=False), rows)
    assert place is not None
    group = Group(policies, "explore", place)
    seen, noise = rng.standard_normal((rows, INPUTS), np.float32), rng.random((rows, 1), np.float32)
    index = rng.integers(members, size=rows).astype(np.int32)
    memory = None if core == "none" else torch.zeros(rows, width, device=place.torch)
    return lambda: group.act(seen, None, memory, noise, index=index)  # type: ignore[arg-type]


def _figure(name: str, members: int) -> str:
    return f"{name}, {members} members, rows per second"


def _workers(options: Options, *, kind: str) -> Mapping[str, float]:
    """Decisions a second, by width; the best of some orders."""
    from benchmarks.inference_worker import Players, figures, label
    from ludus.core.types import CPU, DeviceChoice

    server = kind == "server"
    device = DeviceChoice(options.device, written=False) if server else CPU
    gpus = 1.0 if device.device.startswith("cuda") else 0.0
    players = Players(kind, 2 if options.small else WORKERS, 0.0, device=device, gpus=gpus)
    try:
        seconds = 0.3 if options.quick else 1.0
        widths = SMALL_WIDTHS if options.small else WIDTHS
        found = {width: figures(players, width, milliseconds=0.0, seconds=seconds) for width in widths}
    finally:
        players.close()
    return {_decisions(width): found[width][f"{label(width)} decisions per second"] for width in widths}


def _decisions(width: int) -> str:
    return f"{width}x{width} decisions per second"


KINDS: Mapping[str, Measure] = {
    "stack": _stack,
    "server": partial(_workers, kind="server"),
    "copies": partial(_workers, kind="local"),
}


def contestants(device: str) -> tuple[Contestant, ...]:
    """Of this part."""
    return (
        contestant("acting, stack", "stack", device),
        contestant("acting, server", "server", device, pinned=False),
        contestant("acting, copies", "copies", device, pinned=False),
    )


def _of_one(name: str) -> Callable[[Medians], float]:
    """Speed with 50 members relative to that with one."""
    return lambda m: m("acting, stack", _figure(name, MEMBERS)) / m("acting, stack", _figure(name, 1))


def _of_copies(width: int, m: Medians) -> float:
    """Speed of the server relative to that of copies."""
    return m("acting, server", _decisions(width)) / m("acting, copies", _decisions(width))


def _crossover(m: Medians) -> float:
    """The least width at which the server is as fast; twice the greatest if there is none."""
    return next((float(width) for width in WIDTHS if _of_copies(width, m) >= 1), 2.0 * WIDTHS[-1])


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """What is wanted of a GPU."""
    return (
        *(Bar(f"50 opponents, {name}, of the speed of one", ">= 0.8", _of_one(name), quick=gpu) for name in STACKS),
        Bar("server of 16 workers, 512x512, times copies", ">= 1", partial(_of_copies, 512), unit="x", quick=gpu),
        Bar("server of 16 workers, crossover at width", "<= 512", _crossover, quick=gpu),
    )
