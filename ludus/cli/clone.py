"""ludus clone"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli.command import (
    Command,
    add_device,
    add_scenario,
    check_new,
    positive_number,
    runtime_overrides,
    scenario_of,
)
from ludus.cli.output import facts
from ludus.cli.progress_line import ProgressLine
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.machine import check_place

if TYPE_CHECKING:
    from ludus.algorithms.common.registry import Assignment
    from ludus.contrib.algorithms.bc.clone import Clone, Cloning, Scores
    from ludus.core.types import DeviceChoice, EnvSpec, PolicySpec
    from ludus.envs.config import Environment
    from ludus.envs.registry import TreeChoice
    from ludus.replay.parquet import Recorded

_SETTINGS = ("epochs", "batch", "learning_rate", "held_out", "patience")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE.parquet",
        type=Path,
        help="trajectories, from `ludus record --trajectories`; of kaggle/… also Kaggle's replays, a .json or a folder of them",
    )
    add_scenario(parser)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="POLICY.safetensors",
        help="output file: a policy of the scenario's algorithm",
    )
    parser.add_argument("--overwrite", action="store_true", help="overwrite the file of --out")
    parser.add_argument(
        "--players",
        metavar="PLAYER",
        nargs="+",
        default=[],
        help="players whose decisions are used, by number or by agent name (default: all)",
    )
    parser.add_argument(
        "--policies",
        metavar="NAME",
        nargs="+",
        default=[],
        help="policies whose decisions are used, RUN@PLAYER/POLICY or @PLAYER/POLICY (default: all)",
    )
    parser.add_argument(
        "--epochs", type=positive_number, help="maximum number of passes over the decisions (default: 50)"
    )
    parser.add_argument("--batch", type=positive_number, help="decisions per gradient step (default: 512)")
    parser.add_argument("--learning-rate", type=float, help="learning rate of Adam (default: 0.001)")
    parser.add_argument(
        "--held-out", type=float, help="fraction of the episodes held out to select the epoch (default: 0.1)"
    )
    parser.add_argument(
        "--patience", type=positive_number, help="stop after this many epochs without improvement (default: 5)"
    )
    add_device(parser)


def _execute(options: argparse.Namespace) -> int:
    _check_target(options)
    from ludus.contrib.algorithms.bc.clone import Cloning
    from ludus.policies.file import save_policy

    settings = {name: getattr(options, name) for name in _SETTINGS if getattr(options, name) is not None}
    config = Cloning(**settings)
    scenario = scenario_of(options, *runtime_overrides(options))
    recorded = _recorded(options.file, scenario.env)

    def policy(env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        return _policy(scenario.who_learns(scenario.population(env)).assigned(env), seats)

    cloned = _clone(recorded, scenario.env, policy, config, scenario.seed, scenario.runtime.device_choice, options)
    save_policy(options.out, cloned.spec, cloned.weights)
    _show(cloned, options.out)
    return 0


def _recorded(path: Path, env: Environment) -> Recorded:
    """Return the trajectories of a file, or of Kaggle's replays."""
    if path.suffix == ".json" or path.is_dir():
        from ludus.contrib.envs.kaggle_replays import read_replays

        return read_replays(path, env.id, env.options)
    from ludus.replay.parquet import read_trajectories

    return read_trajectories(path)


def _clone(
    recorded: Recorded,
    env: Environment,
    policy: Callable[[EnvSpec, tuple[int, ...]], PolicySpec],
    config: Cloning,
    seed: int,
    device: DeviceChoice,
    options: argparse.Namespace,
) -> Clone:
    from ludus.contrib.algorithms.bc.clone import clone
    from ludus.contrib.algorithms.bc.demonstrations import check_environment

    played = env.played
    check_environment(recorded.origin, played.model_dump(mode="json"))
    vector = played.model_copy(update={"tree": _tree(recorded, env)}).make(num_envs=1)
    try:
        return clone(
            recorded,
            vector.spec,
            policy,
            config,
            players=options.players,
            policies=options.policies,
            seed=seed,
            device=device,
            tell=_Progress(),
        )
    finally:
        vector.close()


def _tree(recorded: Recorded, env: Environment) -> TreeChoice:
    """Return whether to compile the game: as it was where decisions were recorded. An observation is then the number of an information
    state."""
    if not env.id.startswith("openspiel/"):
        return env.tree
    compiled = recorded.trajectories[0].observation.shape[1:] != recorded.origin.observation.shape
    return "on" if compiled else "off"


def _policy(assigned: Sequence[Assignment], seats: tuple[int, ...]) -> PolicySpec:
    """Return what the algorithm trains for the populations of these players, each as a whole. Raises ConfigError if it is not one and the
    same."""
    own = [assignment for assignment in assigned if set(assignment.seats) & set(seats)]
    if any(assignment.computed for assignment in own):
        raise ScenarioError(
            "the scenario's algorithm computes its policies, and trains no network to clone into; name one that learns, "
            "such as algorithm=ppo."
        )
    groups, specs = [assignment.seats for assignment in own], [assignment.policy for assignment in own]
    if any((spec.kind, dict(spec.config)) != (specs[0].kind, dict(specs[0].config)) for spec in specs):
        names = " and ".join(", ".join(map(str, group)) for group in groups)
        raise ConfigError(
            f"players {', '.join(map(str, seats))} are of {len(groups)} populations, whose networks differ: {names}. Choose those of one "
            "with --players, and clone the others into files of their own."
        )
    return specs[0]


def _check_target(options: argparse.Namespace) -> None:
    path: Path = options.out
    if path.suffix != ".safetensors":
        raise ConfigError(f"--out {str(path)!r} was given; a name that ends in .safetensors is needed.")
    check_place(path)
    check_new("--out", path, options)


class _Progress(ProgressLine):
    """A line a second, with the time left at most, once it takes long."""

    def __init__(self) -> None:
        super().__init__(quiet=2.0)

    def __call__(self, scores: Scores, epochs: int) -> None:
        if not self.due():
            return
        from ludus.apps.common.progress import duration

        left = duration((time.monotonic() - self.begun) / scores.epoch * (epochs - scores.epoch))
        loss = scores.learned if math.isnan(scores.held) else scores.held
        self.say(f"epoch {scores.epoch} of {epochs}, {loss:.4f} nats, at most {left} left")


def _show(cloned: Clone, path: Path) -> None:
    pairs = [("file", str(path)), ("policy", cloned.spec.kind), ("computed on", str(cloned.placement))]
    for what, k in (("learned from", 0), ("held out", 1)):
        pairs.append((what, f"{cloned.decisions[k]:,} decisions of {cloned.episodes[k]:,} episodes"))
    best = cloned.best
    pairs.append(("epoch", f"{best.epoch}, of {cloned.epochs[-1].epoch}"))
    if not math.isnan(best.held):
        pairs.append(
            ("held out, -log p", f"{best.held:.4f} nats; {cloned.floor:.4f} of the recorded policies themselves")
        )
    elif not math.isnan(best.learned):
        pairs.append(("learned, -log p", f"{best.learned:.4f} nats"))
    if not math.isnan(best.accuracy):
        pairs.append(("held out, most probable action taken", f"{best.accuracy:.1%}"))
    facts("Clone", pairs)


COMMAND = Command(
    name="clone",
    summary="Behaviour cloning: train a policy on recorded trajectories and write it as a file that runs can start from.",
    examples=(
        ("ludus clone games.parquet leduc --out cloned.safetensors", "a policy of the preset's algorithm"),
        (
            "ludus clone games.parquet tag.yaml --players adversary --out a.safetensors",
            "from the decisions of all agents named adversary_…",
        ),
        (
            "ludus clone games.parquet my.yaml --players 0 --policies @0/0-12 --out p.safetensors",
            "from the decisions of one policy",
        ),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
