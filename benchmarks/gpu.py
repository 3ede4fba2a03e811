"""What a GPU does, beside the bare limit, one core, or a peer in the same run; each part says what it measures.

    python -m benchmarks.gpu [--parts leduc nash-conv …] [--device cuda:1] [--quick] [--again]
    python -m benchmarks.gpu --report                bars from the stored results; measures nothing
    python -m benchmarks.gpu --parts host nash-conv-core  what needs no GPU, on any machine, before
    python -m benchmarks.gpu --device cpu            the same code, small, on the CPU: to see that it runs; bars stay unjudged

Parts are measured in the order of their importance, contestants of a part turn by turn. Each contestant has a result file in
benchmarks/results/gpu, written anew after each of its repetitions (`--quick`: in gpu.quick, which git ignores): a measurement that is
stopped goes on where it stopped. What is there is not measured again, unless it is of another GPU, or of another commit and not complete;
`--again` measures anew whatever is of another commit. Contestants whose packages are missing are left out, which is said.

Without a GPU nothing else is measured, and every bar is unjudged. Figures are medians over the orders of a process, and over processes,
three unless a part says otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import cast

from rich.console import Console

from benchmarks import gpu_acting, gpu_auto, gpu_jax, gpu_learning, gpu_resident, gpu_runs, gpu_trees, gpu_vmas
from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.gpu_options import Measure, Options, Part
from benchmarks.gpu_store import Store, file_name
from benchmarks.harness import Bar, Medians, figures_table, interpreter
from benchmarks.lines import Lines
from benchmarks.machine import ROOT, commit

PACKAGES = ("ludus", "numpy", "numba", "torch", "open-spiel", "jax", "jaxmarl", "pgx", "flax", "optax", "vmas")
MODULES = cast(
    Sequence[Part], (gpu_runs, gpu_jax, gpu_trees, gpu_resident, gpu_learning, gpu_acting, gpu_auto, gpu_vmas)
)
KINDS: dict[str, Measure] = {kind: measure for module in MODULES for kind, measure in module.KINDS.items()}
PARTS: Mapping[str, Sequence[str]] = {
    "leduc": ("leduc", "leduc_core", "leduc_core_own"),
    "launches": ("launches",),
    "start": ("start", "start_core"),
    "auto-learning": ("auto_learning",),
    "dqn": ("dqn", "dqn_limit"),
    "cartpole": ("cartpole", "cartpole_core"),
    "nash-conv": ("nash_conv_gpu",),
    "host": ("leduc_host",),
    "nash-conv-core": ("nash_conv_core", "nash_conv_program"),
    "resident": ("resident_mmd", "resident_ppo"),
    "trees": ("play", "nash_conv", "compiled"),
    "auto": ("auto_acting", "auto_trees"),
    "sac": ("sac", "sac_limit"),
    "networks": ("frames", "frames_limit", "attending"),
    "smax": ("smax", "jaxmarl_smax"),
    "overcooked": ("overcooked", "jaxmarl_smax_overcooked"),
    "connect-four": ("connect_four", "connect_four_jax"),
    "vmas": ("vmas_mappo", "vmas_steps", "vmas_learner"),
    "stack": ("stack",),
    "server": ("server", "copies"),
    "sb3": ("sb3_rollout_updates",),
}
"""Kinds of workers and environments of peers, in the order of importance."""
TOGETHER = {"nash_conv_gpu", "nash_conv_core", "nash_conv_program"}
ANYWHERE = {"leduc_host", *TOGETHER} - {"nash_conv_gpu"}
"""Kinds whose repetitions are not timed and share the machine, and kinds that need no GPU."""
NEEDS = {
    **dict.fromkeys(("vmas_mappo", "vmas_steps"), ("vmas",)),
    **dict.fromkeys(("server", "copies"), ("ray",)),
    **dict.fromkeys(("smax", "overcooked"), ("jax", "jaxmarl")),
    "connect_four": ("jax", "pgx"),
    "connect_four_jax": ("jax", "pgx", "flax", "optax"),
}
"""Packages of kinds that not every installation has."""
RESULTS = ROOT / "benchmarks" / "results"


def contestants(device: str) -> dict[str, Contestant]:
    """Who is measured on this device, by the name of the result file."""
    return {file_name(each): each for module in MODULES for each in module.contestants(device)}


def bars(device: str) -> tuple[Bar, ...]:
    """What is wanted. Bars are a GPU's."""
    return tuple(bar for module in MODULES for bar in module.bars(gpu=device != "cpu"))


def medians(store: Store, device: str = "cuda") -> Medians:
    """What is stored, by contestant."""
    found = {each.name: store.repetitions(each) for each in contestants(device).values()}
    return Medians({name: many for name, many in found.items() if many})


def work(argv: Sequence[str]) -> int:
    """A worker: prints the figures of one kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=KINDS, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(PACKAGES)
    lines.figures(dict(KINDS[args.worker](Options(args.device, args.seed, args.quick))))
    return 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One call of the command.

    Attributes:
        store: Where results are.
        quick: Whether workers are to be.
        core: Where timed workers run.
        cores: Where others run, one each.
        pythons: Interpreters of peers, as `--peer-python` says.
        say: Prints a line about how it goes.
    """

    store: Store
    quick: bool
    core: int
    cores: Sequence[int]
    pythons: Sequence[str]
    say: Callable[[str], None]

    def part(self, many: Mapping[str, Contestant]) -> bool:
        """Measure what is missing of a part, and return whether all went well. many: contestants by kind."""
        fine, left = True, {}
        for kind, contestant in many.items():
            reason = self._missing(kind, contestant)
            if reason:
                self.say(f"{contestant.name}: not measured, {reason}")
            else:
                left[kind] = self._seeds(kind, contestant)
        together = {kind: seeds for kind, seeds in left.items() if kind in TOGETHER}
        for kind, seeds in together.items():
            fine &= self._at_once(kind, many[kind], seeds)
        timed = {kind: seeds for kind, seeds in left.items() if kind not in TOGETHER}
        for turn in range(max(map(len, timed.values()), default=0)):
            for kind, seeds in timed.items():
                if turn < len(seeds):
                    fine &= self._keep(kind, many[kind], self._one(many[kind], seeds[turn], self.core))
        return fine

    def _missing(self, kind: str, contestant: Contestant) -> str:
        """Why the contestant cannot be measured; "" if it can."""
        absent = [package for package in NEEDS.get(kind, ()) if find_spec(package) is None]
        if absent:
            return f"{' and '.join(absent)} not installed"
        there = interpreter(contestant, self.pythons).exists()
        return "" if there else f"python -m benchmarks.harness setup {contestant.peer} builds its environment"

    def _seeds(self, kind: str, contestant: Contestant) -> list[int]:
        """Those that are not measured yet."""
        seeds = contestant.quick_seeds if self.quick else contestant.seeds
        if kind == "nash_conv_gpu" and not self.quick:
            timed = self.store.repetitions(contestants("cuda")["leduc"])
            seconds = Medians({"leduc": timed})("leduc", gpu_runs.SECONDS) if timed else float("inf")
            if seconds > gpu_runs.SLOW:
                self.say(f"{contestant.name}: {gpu_runs.FEW} seeds, since a run takes more than {gpu_runs.SLOW:g} s")
                seeds = seeds[: gpu_runs.FEW]
        done = {each.seed for each in self.store.counted(contestant, seeds, self._gpu(kind))}
        if done:
            stored = self.store.read(contestant)
            self.say(f"{contestant.name}: {len(done)} repetitions are there, of {stored['date']}")
        return [seed for seed in seeds if seed not in done]

    def _one(self, contestant: Contestant, seed: int, core: int) -> Repetition:
        python = interpreter(contestant, self.pythons)
        return measure(contestant, python=python, core=core, seed=seed, quick=self.quick)

    def _at_once(self, kind: str, contestant: Contestant, seeds: Sequence[int]) -> bool:
        free: SimpleQueue[int] = SimpleQueue()
        for core in self.cores:
            free.put(core)

        def one(seed: int) -> Repetition:
            core = free.get()
            try:
                return self._one(contestant, seed, core)
            finally:
                free.put(core)

        with ThreadPoolExecutor(len(self.cores)) as pool:
            asked = [pool.submit(one, seed) for seed in seeds]
            return all([self._keep(kind, contestant, each.result()) for each in as_completed(asked)])

    def _keep(self, kind: str, contestant: Contestant, repetition: Repetition) -> bool:
        """Store a repetition that has figures, and return whether it has."""
        wall = repetition.figures.get("wall seconds", float("nan"))
        self.say(f"{contestant.name}, seed {repetition.seed}: {wall:.1f} s {repetition.error or ''}")
        if repetition.error:
            return False
        seeds = contestant.quick_seeds if self.quick else contestant.seeds
        kept = self.store.counted(contestant, seeds, self._gpu(kind))
        self.store.add(contestant, repetition, kept, self._gpu(kind))
        return True

    def _gpu(self, kind: str) -> str:
        return "" if kind in ANYWHERE else self.store.gpu


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    from ludus.backend.device import gpu_count, require_gpu

    args = _parser().parse_args(argv)
    small = args.device == "cpu"
    args.quick |= small
    folder = args.results or RESULTS / ("gpu.quick" if args.quick else "gpu")
    on_gpu = small or (args.device.startswith("cuda") and gpu_count() > 0)
    device = require_gpu(args.device) if on_gpu and not small else args.device
    needs_none = {kind for part in args.parts for kind in PARTS[part]} <= ANYWHERE
    store = Store(folder, _gpu_name(device) if on_gpu and not small else "", commit(), args.again)
    if small:
        print("on the CPU, small: this shows that the code runs, and says nothing of a GPU")
    elif not on_gpu and not args.report:
        print("there is no GPU: nothing is measured" + " but what needs none" * needs_none)
    console = Console(stderr=True)
    cores = sorted(os.sched_getaffinity(0))
    measurement = Measurement(
        store, args.quick, args.core, cores[: args.at_once], args.peer_python, lambda line: console.print(line)
    )
    known, fine = contestants(device), True
    for part in () if args.report else args.parts:
        if on_gpu or needs_none:
            fine &= measurement.part({kind: known[kind] for kind in PARTS[part] if kind in known})
    found = medians(store, device) if on_gpu or args.report else Medians({})
    many = {each.name: found.repetitions(each.name) for each in known.values() if each.name in found.names}
    if many:
        Console().print(figures_table("gpu", tuple(known.values()), many))
    for bar in bars(device):
        print(bar.judge(found, quick=args.quick).line())
    return 0 if fine else 1


def _gpu_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = os.sched_getaffinity(0)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=tuple(PARTS), help="measure these, in this order")
    parser.add_argument("--quick", action="store_true", help="one repetition, of fewer orders")
    parser.add_argument("--again", action="store_true", help="measure again what is stored of another commit")
    parser.add_argument("--report", action="store_true", help="print what is stored, and measure nothing")
    parser.add_argument("--core", type=int, default=max(cores), help="the core that timed workers run on")
    parser.add_argument("--at-once", type=int, default=max(1, len(cores) - 1), help="workers that are not timed")
    parser.add_argument(
        "--peer-python", action="append", default=[], metavar="[PEER=]PATH", help="a peer's interpreter"
    )
    parser.add_argument("--results", type=Path, help="folder of result files")
    return parser


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]) if "--worker" in sys.argv else main())
