"""Battles in SMAX, which stands in for StarCraft's micromanagement: the share won after a budget of training.

    python -m benchmarks.smax [--presets smax-3m …] [--seeds 0 1 2] [--budget N] [--core 0] [--alone] [--report] [--quick]

One run per cell (preset, seed, budget), on one core: `smax-3m` and `smax-2s3z` train MAPPO, `smax-3m-qmix` and `smax-2s3z-qmix` QMIX,
against JaxMARL's scripted enemies, for as long as the preset says. Then 128 battles are played greedily that training never
saw. A cell's result is a file of its own, benchmarks/results/smax/PRESET-SEED-BUDGET.json, and is not measured again; a run is kept in
runs/benchmarks until its result is there, so that the command can be stopped and goes on. `--report` prints what is there. `--quick` trains
for a hundredth of the budget and writes nothing.

The bars compare with JaxMARL's own training of the same map for as many steps as ours took, as files likewise,
`jaxmarl-PRESET-SEED-BUDGET.json`: its MAPPO and its QMIX are trained too where their environment is built (`python -m benchmarks.harness
setup jaxmarl_smax`), unless `--alone`. Its QMIX is made for an accelerator and does some 80 to 120 steps a second on a core. What was not
played is `unjudged`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.harness import Bar, Medians, python_of
from benchmarks.machine import ROOT
from benchmarks.results import same_scenario, write_cell
from benchmarks.smax_run import scenario
from ludus.runs.scenario_files import load_scenario

RESULTS = ROOT / "benchmarks" / "results" / "smax"
PEER = "jaxmarl_smax"
PRESETS = ("smax-3m", "smax-2s3z", "smax-3m-qmix", "smax-2s3z-qmix")
PEERS = {
    "smax-3m": ("run", "3m"),
    "smax-2s3z": ("run", "2s3z"),
    "smax-3m-qmix": ("qmix", "3m"),
    "smax-2s3z-qmix": ("qmix", "2s3z"),
}
"""What trains JaxMARL's own, and in which map."""
_SHOWN = ("win rate", "win rate by chance", "return", "env_steps", "seconds")


def peer_of(preset: str) -> str:
    """The name of JaxMARL's runs of the same."""
    return f"jaxmarl-{preset}"


def bar(preset: str) -> Bar:
    """At most five points in a hundred below JaxMARL's own code."""

    def behind(medians: Medians) -> float:
        return medians(preset, "win rate") - medians(peer_of(preset), "win rate")

    return Bar(f"{preset}, win rate above JaxMARL's for as many steps", ">= -0.05", behind, quick=False)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    found: dict[str, list[Repetition]] = {}
    failed = False
    for seed in args.seeds:
        for preset in args.presets:
            budget = _budget(preset, args)
            ours: Repetition | None = None
            for name in (preset, peer_of(preset)):
                path = args.results / f"{name}-{seed}-{budget}.json"
                wanted = scenario(preset, seed, budget).to_yaml() if name == preset else ""
                repetition = stored(path, wanted)
                if repetition is None and not args.report:
                    worker = _ours(preset, budget, path.stem) if name == preset else _peer(preset, ours, args)
                    repetition = _measured(worker, seed, path, wanted, args) if worker else None
                if repetition is not None and repetition.error:
                    failed = True
                    break
                if repetition is not None:
                    found.setdefault(name, []).append(repetition)
                ours = repetition
    medians = Medians(found)
    table = Table("cell", "seeds", *_SHOWN, title="battles won in SMAX: medians over seeds")
    for name, many in found.items():
        figures = [f"{medians(name, figure):,.4g}" if figure in many[0].figures else "" for figure in _SHOWN]
        table.add_row(name, str(len(many)), *figures)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for preset in args.presets:
        print(bar(preset).judge(medians, quick=args.quick).line())
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument(
        "--budget",
        type=int,
        help="of training, in the preset's own unit (decisions of all units, or episodes); default: its own",
    )
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="train none of JaxMARL's own")
    parser.add_argument("--report", action="store_true", help="print what is measured, and run none")
    parser.add_argument("--quick", action="store_true", help="a small version that writes nothing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def _budget(preset: str, args: argparse.Namespace) -> int:
    limit = load_scenario(preset).model_dump()["response"]  # {decisions: so many}, or episodes
    whole: int = args.budget or int(next(iter(limit.values())))
    return whole // 100 if args.quick else whole


def stored(path: Path, wanted: str) -> Repetition | None:
    """What was measured; None if nothing was, or with another scenario than `wanted`, which is said. A peer's (wanted: "") tells none."""
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    if wanted and not same_scenario(document["settings"], wanted):
        print(f"{path.stem}: measured with other settings, which do not count", file=sys.stderr)
        return None
    return Repetition(**document["repetition"])


def _ours(preset: str, budget: int, name: str) -> Contestant:
    folder = ROOT / "runs" / "benchmarks" / name
    arguments = ("--preset", preset, "--budget", str(budget), "--folder", str(folder))
    return Contestant(preset, "benchmarks.smax_run", arguments=arguments, timeout_s=24 * 3600)


def _peer(preset: str, ours: Repetition | None, args: argparse.Namespace) -> Contestant | None:
    """For as many steps as ours took; None where it is not built or not wanted."""
    if ours is None or args.alone or not python_of(PEER).exists():
        return None
    module, name = PEERS[preset]
    module = f"benchmarks.peers.{PEER}.{module}"
    arguments = ("--map", name, "--steps", str(int(ours.figures["env_steps"])))
    return Contestant(peer_of(preset), module, arguments=arguments, peer=PEER, timeout_s=24 * 3600)


def _measured(worker: Contestant, seed: int, path: Path, wanted: str, args: argparse.Namespace) -> Repetition:
    repetition = measure(worker, python=python_of(worker.peer), core=args.core, seed=seed, quick=args.quick)
    if not args.quick and not repetition.error:
        write_cell(path, repetition, settings=wanted)
    return repetition


if __name__ == "__main__":
    sys.exit(main())
