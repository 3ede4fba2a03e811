"""Do the learners learn? Tasks with a published score to reach, each with its budget, and games whose exploitability is computed exactly.

    python -m benchmarks.learning [TASK …] [--seeds 0 1 …] [--core 0]
    python -m benchmarks.learning --list
    python -m benchmarks.learning --report      prints what is measured, and measures nothing
    python -m benchmarks.learning --plot docs/images/teams.svg      likewise, and draws the curves of teams on simple_spread
    python -m benchmarks.learning --bound       the best that can be had in speaker-listener, by search; measures nothing
    python -m benchmarks.learning --quick       a twentieth of the short tasks' budgets, one seed; writes nothing, judges nothing

One run per task and seed, on one core; its result is a file of its own, benchmarks/results/learning/TASK/SEED.json, with machine, date,
commit and settings. Runs that have one are not made again, so that the command can be stopped and goes on; one with other settings than
today's does not count. Tasks named SHORT or LONG stand for all of their length; none stands for all. The table shows means over the seeds
with 95% intervals (Student's t) beside the published score; bars are judged where all of a task's own seeds are there. A task that was not
played is `unjudged`.

Scores: the mean return of the trained policy over 100 episodes that are not in training, played greedily (Pong, as its published score was,
foraging, where greedy agents can wait for each other for ever, and behind the door, where greedy ones can walk in circles: with their own
randomness; CartPole by MuZero: with its search); of the memory tasks the share of right choices of 1,000; of Leduc poker, exploitability of
what is announced: the slow copy (MMD) or the average policy (R-NaD, NFSP); of tic-tac-toe, that of the newest policy.
`seconds` are those of training, imports and compilation included.

Where their environments are built, peers are trained too, with the same steps and seeds (`python -m benchmarks.harness setup sb3_learning
epymarl openspiel_rnad`): Stable-Baselines3 on HalfCheetah, Hopper and, by DQN, CartPole; OpenSpiel's R-NaD on Leduc; EPyMARL on MPE2's
teams and in foraging. There ours count 40,000 episodes, and it the 2M steps that those have at most: they end with the last food, so it
plays more of them. Bars beside a peer are of the interval of the ratio of both means (Fieller): its upper end is wanted at 1, its lower
at 0.9. Of exploitability, of which less is better, it is the peer's by ours.

Teams (MPE2) are one player, whose return is the sum of its agents'. The one run of speaker-listener reports three points: it is scored
beside training after 1M and 2M steps, with the same number of episodes, and at the end, after 5M. The published score is beyond what
`--bound` finds: MPE2 moves agents a step later than the environment that it is of.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks import learning_bound
from benchmarks.contestants import Repetition
from benchmarks.harness import Bar, Medians, Missing
from benchmarks.learning_cells import QUICK, RESULTS, Run, all_runs, peer_of, python, stored, wanted
from benchmarks.learning_plot import svg
from benchmarks.learning_task import LearningTask, point_of
from benchmarks.learning_tasks import TASKS
from benchmarks.psro_family_cells import interval, ratio_interval

LOWER = ">= 0.9"
"""Wanted of the lower end, beside a peer."""
_LENGTHS = {"SHORT": "S", "LONG": "L"}
_COLUMNS = ("task", "budget", "seeds", "score", "published", "peer here", "wanted", "seconds")


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    names = chosen(args.tasks or (["SHORT"] if args.quick else list(TASKS)))
    if args.bound:
        Console(width=140).print(learning_bound.table(500))
        return 0
    if args.list:
        _print_tasks(names)
        return 0
    runs = wanted(names, (0,) if args.quick and args.seeds is None else args.seeds)
    if args.report or args.plot:
        found = [(run, repetition) for run in runs if (repetition := stored(run, args.results))]
    else:
        found = list(all_runs(_possible(runs), core=args.core, quick=args.quick, folder=args.results))
    by_name = grouped(found)
    if args.plot:
        args.plot.write_text(svg(judged(by_name)), encoding="utf-8")
    Console(width=None if sys.stdout.isatty() else 140).print(table(names, by_name, quick=args.quick))
    if not args.quick:
        print("\n".join(bar.judge(Medians(judged(by_name))).line() for bar in bars(names)))
    return 1 if any(repetition.error for _, repetition in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="a name, SHORT or LONG; all, if none is given")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 to 4 of short tasks, 0 to 2 of long ones")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small version that writes nothing")
    parser.add_argument("--list", action="store_true", help="print the tasks, and run none")
    parser.add_argument(
        "--bound", action="store_true", help="print the best return of speaker-listener, and run nothing"
    )
    parser.add_argument("--report", action="store_true", help="print what is measured, and run none")
    parser.add_argument("--plot", type=Path, help="a picture to write of teams' curves; runs none")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def chosen(given: Sequence[str]) -> list[str]:
    """The tasks that these words name, each once, in the order of `TASKS`. Exits with the known ones for a word that names none."""
    for word in given:
        if word not in TASKS and word not in _LENGTHS:
            raise SystemExit(f"no task is called {word!r}; there are {', '.join([*_LENGTHS, *TASKS])}")
    lengths = {_LENGTHS[word] for word in given if word in _LENGTHS}
    return [name for name, task in TASKS.items() if name in given or task.length in lengths]


def grouped(found: Sequence[tuple[Run, Repetition]]) -> dict[str, list[Repetition]]:
    """By contestant, the failed ones left out."""
    out: dict[str, list[Repetition]] = {}
    for run, repetition in found:
        if not repetition.error:
            out.setdefault(run.contestant, []).append(repetition)
    return out


def judged(found: Mapping[str, Sequence[Repetition]]) -> dict[str, list[Repetition]]:
    """Of each contestant the runs of its task's own seeds: others, which somebody chose, prove nothing."""
    own = {contestant: task.seeds for task in TASKS.values() for contestant in (task.name, peer_of(task.name))}
    return {name: [r for r in many if r.seed in own[name]] for name, many in found.items()}


def bars(names: Sequence[str]) -> list[Bar]:
    """Those of the tasks that have some."""
    return [bar for name in names if TASKS[name].wanted for bar in _bars(TASKS[name])]


def scores(medians: Medians, contestant: str, seeds: Sequence[int]) -> list[float]:
    """Of a contestant's runs, at least as many as `seeds`. Raises Missing."""
    found = medians.values(contestant, "score")
    if len(found) < len(seeds):
        raise Missing(f"{contestant!r} has {len(found)} seeds of {len(seeds)}")
    return list(found)


def _bars(task: LearningTask) -> list[Bar]:
    """One; beside a peer two, of both ends of the interval of the means' ratio."""
    if not task.peer:
        name = f"{task.name}, mean {task.score} of {len(task.seeds)} seeds"
        return [Bar(name, task.wanted, lambda m: mean(scores(m, task.name, task.seeds)), quick=False)]

    small = task.score == "exploitability"  # less is better
    of, by = (peer_of(task.name), task.name) if small else (task.name, peer_of(task.name))

    def ratio(medians: Medians, end: int) -> float:
        upper, lower = (scores(medians, name, task.seeds) for name in (of, by))
        if mean(lower) <= 0 or (found := ratio_interval(upper, lower)) is None:
            raise Missing(f"a share of {by!r} says nothing: its mean score may be 0, or there is one seed")
        return found[end]

    what = (
        f"{task.peer.name}'s mean {task.score} as a share of ours"
        if small
        else f"mean return as a share of {task.peer.name}'s"
    )
    name = f"{task.name}, {what}, 95%"
    return [
        Bar(f"{name} up to", task.wanted, lambda m: ratio(m, 1), quick=False),
        Bar(f"{name} from", LOWER, lambda m: ratio(m, 0), quick=False),
    ]


def table(names: Sequence[str], found: Mapping[str, Sequence[Repetition]], *, quick: bool = False) -> Table:
    """A row for each task; one that was not played is unjudged."""
    after = f", after {QUICK:.0%} of the budgets" if quick else ""
    out = Table(title=f"means over seeds, with 95% intervals{after}")
    for column in _COLUMNS:
        out.add_column(column, justify="left" if column == "task" else "right", no_wrap=column in ("task", "score"))
    for name in names:
        task, many = TASKS[name], found.get(name, ())
        peers = interval(_figures(found.get(peer_of(name), ()), "score"))
        seconds = f"{mean(_figures(many, 'seconds')):.0f}" if many else ""
        row = (
            f"{task.budget:,} {task.unit}",
            str(len(many)),
            interval(_figures(many, "score")) if many else "unjudged",
            _published(task),
            peers,
        )
        out.add_row(name, *row, task.wanted, seconds)
        for point in task.points:
            scored = [repetition for repetition in many if point_of(point) in repetition.figures]
            if scored:
                then = (f"{point:,} {task.unit}", str(len(scored)), interval(_figures(scored, point_of(point))))
                out.add_row("  on the way", *then, "", "", "", "")
    return out


def _figures(many: Sequence[Repetition], figure: str) -> list[float]:
    return [repetition.figures[figure] for repetition in many]


def _published(task: LearningTask) -> str:
    return "" if task.published is None else f"{task.published:g}"


def _print_tasks(names: Sequence[str]) -> None:
    for task in (TASKS[name] for name in names):
        budget, bar = f"{task.budget:,} {task.unit}", f"{task.score} {task.wanted}"
        published = f"published {task.published:g}, {task.source}" if task.source else ""
        print(f"{task.name:26}{task.length:3}{len(task.seeds)} seeds  {budget:20}{bar:22}{published}".rstrip())


def _possible(runs: Sequence[Run]) -> list[Run]:
    """Those whose interpreter is there; says which are not."""
    missing = [run for run in runs if not python(run).exists()]
    for peer in dict.fromkeys(TASKS[run.task].peer for run in missing):
        if peer:
            print(f"{peer.name} is not run: python -m benchmarks.harness setup {peer.folder}", file=sys.stderr)
    return [run for run in runs if run not in missing]


if __name__ == "__main__":
    sys.exit(main())
