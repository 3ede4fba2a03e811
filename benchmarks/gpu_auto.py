"""What `auto` gives to a GPU, beside one core: from which size on each is faster, which decides what `ludus.backend.device` and
`ludus.evaluation.exact` should weigh.

`auto_learning`: steps of PPO, whole batches, by size of the perceptron and rows of a step; `auto_acting`: answers of one perceptron that
takes observations from host memory and gives actions back there; both by their number of multiplications, written out on the CPU.
`auto_trees`: exploitability of one profile, by merged terminals. A figure of one size is how many times as fast as the core the GPU is.
The least of those that `auto` gives to the GPU should not be below 1; the greatest of the others says what it leaves lying.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant, Medians

if TYPE_CHECKING:
    from ludus.backend.device import CostKind

LEARNING = (
    (64, 128),
    (64, 256),
    (64, 512),
    (64, 1024),
    (128, 1024),
    (64, 4096),
    (256, 512),
    (256, 1024),
    (128, 8192),
    (512, 1024),
    (256, 8192),
    (1024, 1024),
)
"""Width of both hidden layers, and rows."""
ACTING = (
    (64, 64),
    (64, 1024),
    (256, 256),
    (256, 1024),
    (512, 512),
    (256, 4096),
    (512, 2048),
    (1024, 1024),
    (1024, 4096),
)
TREES = (
    "kuhn_poker(players=3)",
    "leduc_poker",
    "goofspiel(imp_info=True,num_cards=5,points_order=descending)",
    "liars_dice",
    "goofspiel(imp_info=True,num_cards=6,points_order=descending)",
    "liars_dice(numdice=1,dice_sides=7)",
)
SMALL = ((16, 64),)
EPOCHS, INPUTS = 8, 32
GIVEN, LEFT = "least of those that auto gives to the GPU", "greatest of those that it leaves"


def learning(options: Options) -> Mapping[str, float]:
    """Steps of an update that has EPOCHS of them."""
    from benchmarks.gpu_learning import Rows, ppo_of
    from ludus.backend.device import multiplications
    from ludus.core.types import CPU, DeviceChoice

    found = []
    for width, rows in SMALL if options.small else LEARNING:
        made = Rows((INPUTS,), rows, 1, EPOCHS)
        seconds = {}
        for place, choice in ("cpu", CPU), ("gpu", DeviceChoice(options.device)):
            learner, sample = ppo_of(made, choice, options.seed, hidden=(width, width))
            seconds[place] = median_seconds(partial(learner.update, sample), orders=2 if options.small else 5)
        size = multiplications(weight.shape for weight in learner.weights().values())
        name = f"{width}x{width}, {rows} rows: {size * rows} multiplications"
        found.append((name, seconds["cpu"] / seconds["gpu"], _gives(size, rows, "graph")))
    return _figures(found)


def acting(options: Options) -> Mapping[str, float]:
    """Answers of one policy."""
    from ludus.core.types import CPU, DeviceChoice
    from ludus.policies.action_values import initial_weights
    from ludus.policies.registry import build_policy
    from ludus.policies.specs import QHeadSpec, action_values_spec, body_config
    from ludus.rollout.inference.groups import Group, acting_placement

    found, rng = [], np.random.default_rng(options.seed)
    for width, rows in SMALL if options.small else ACTING:
        spec = action_values_spec(
            shape=(INPUTS,),
            actions=6,
            body=body_config(hidden=(width, width)),
            head=QHeadSpec(),
            core="none",
            width=width,
        )
        policy = build_policy(spec, initial_weights(spec, rng))
        seen, noise = rng.standard_normal((rows, INPUTS), np.float32), rng.random((rows, 1), np.float32)
        index, seconds = np.zeros(rows, np.int32), {}
        for place, choice in ("cpu", CPU), ("gpu", DeviceChoice(options.device, written=False)):
            group = Group([policy], "explore", acting_placement(policy, choice, rows))
            act = partial(group.act, seen, None, None, noise, index=index)
            seconds[place] = median_seconds(act, orders=2 if options.small else 30)
        size: int = policy.multiplications  # type: ignore[attr-defined]
        name = f"{width}x{width}, {rows} rows: {size * rows} multiplications"
        found.append((name, seconds["cpu"] / seconds["gpu"], _gives(size, rows, "acting")))
    return _figures(found)


def trees(options: Options) -> Mapping[str, float]:
    """Both answer alike, or the worker fails."""
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.envs.tree.tensors import PlacedTree
    from ludus.evaluation.exact import tree_on

    found = []
    for name in TREES[:1] if options.small else TREES:
        tree = compile_tree(name, node_limit=20_000_000)
        placed, seconds = PlacedTree(tree, options.device), {}
        plans = [tree.realization(p, tree.uniform(p)) for p in range(tree.num_players)]
        here, there = (each.exploitability(plans).nash_conv for each in (tree, placed))
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-9)
        for place, each in ("cpu", tree), ("gpu", placed):
            seconds[place] = median_seconds(partial(each.exploitability, plans), orders=2 if options.small else 15)
        terminals = tree.arrays.outcomes.weight.shape[1]
        chosen = tree_on(tree, "auto") is not tree
        found.append((f"{name}: {terminals} merged terminals", seconds["cpu"] / seconds["gpu"], chosen))
    return _figures(found)


def _gives(size: int, rows: int, kind: CostKind) -> bool:
    """Whether auto takes the GPU for so many multiplications of a row."""
    from ludus.backend.device import UpdateCost, resolve_placement
    from ludus.core.types import DeviceChoice

    return (
        resolve_placement(DeviceChoice("auto"), UpdateCost(size, rows, has_cpu_kernel=True, kind=kind)).device != "cpu"
    )


def _figures(found: Sequence[tuple[str, float, bool]]) -> Mapping[str, float]:
    """Of (size in words, times as fast as the core, whether auto takes the GPU)."""
    out = {f"{name}, times one core": times for name, times, _ in found}
    given, left = ([times for _, times, chosen in found if chosen == which] for which in (True, False))
    return out | ({GIVEN: min(given)} if given else {}) | ({LEFT: max(left)} if left else {})


KINDS: Mapping[str, Measure] = {"auto_learning": learning, "auto_acting": acting, "auto_trees": trees}
NAMES = {"auto_learning": "auto, learning", "auto_acting": "auto, acting", "auto_trees": "auto, trees"}

AT_MOST = {"auto_learning": "<= 1.5", "auto_acting": "<= 2", "auto_trees": "<= 2"}
"""What is wanted of LEFT."""


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return tuple(contestant(name, kind, device) for kind, name in NAMES.items())


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""

    def of(name: str, figure: str) -> Callable[[Medians], float]:
        return lambda m: m(name, figure)

    return (
        *(
            Bar(f"{name}, {GIVEN}, times one core", ">= 1", of(name, GIVEN), unit="x", quick=gpu)
            for name in NAMES.values()
        ),
        *(
            Bar(f"{name}, {LEFT}, times one core", AT_MOST[kind], of(name, LEFT), unit="x", quick=gpu)
            for kind, name in NAMES.items()
        ),
    )
