"""Common part of `train` and `resume`: a run that is watched and can be stopped, and its results."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from ludus.apps.common.progress import duration, number, progress_for, report_compilation, signed
from ludus.cli.background_page import open_page
from ludus.cli.output import facts, mean_cells, statistics_table, stream, table, write, write_json
from ludus.core.errors import ConfigError, RunWarning
from ludus.core.recorders import PARTS
from ludus.metagame.solvers.confidence import student
from ludus.reporting.curves import newest as newest_of
from ludus.reporting.curves import short
from ludus.runs.control import StopRequest, stop_on_signals
from ludus.runs.driver import COMPLETE
from ludus.storage.base import GenerationRecord, Observer
from ludus.storage.database import FILE
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import RUNS

if TYPE_CHECKING:
    from ludus.runs.runner import Result

FAILED = 3
"""Exit code of a run that is over, and of which no response was trained to its end."""
_EXPLOIT = 10_000
"""Episodes that an exploiter is trained for, where one is proposed and the run trained none itself."""
_NEWEST = 3
"""Policies of each population whose statistics are shown."""


def execute(
    go: Callable[[Observer, StopRequest], Result], *, profile: bool = False, page: bool = False, as_json: bool = False
) -> int:
    """Run what `go` runs, with its progress shown and stopped by signals, and show the result; the exit code. profile: show where its time
    went, too. page: open its page beside it, which stays until Ctrl-C if the run came to its end and somebody is there. as_json: show it as
    JSON. Raises ConfigError for that with `profile`."""
    if as_json and profile:
        raise ConfigError("--json and --profile were both given; `--profile` prints tables. Give one of them.")
    with ExitStack() as beside, warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # which are shown as they come, and with the results
        with (
            closing(progress_for()) as progress,
            stop_on_signals(tell=progress.stopping) as stop,
            report_compilation(progress.message),
        ):
            observer, opened = beside.enter_context(open_page(progress, wanted=page))
            result = go(observer, stop)
        if as_json:
            write_json(result.as_json())
        else:
            _show(result, profile=profile, stopped=stop.requested)
        code = _status(result, stop.status)
        if opened is not None and not stop.requested:
            stream().flush()
            opened.wait_until_closed()
    return code


def _show(result: Result, *, profile: bool, stopped: bool) -> None:
    show_result(result)
    if profile:
        show_profile(result.run_dir)
    if stopped:
        write(f"\nContinue with: ludus resume {quote(str(result.run_dir))}")
    elif not result.summary.failed:
        print_next_commands(result)


def show_result(result: Result) -> None:
    """The table of results on standard output."""
    last = result.generations[-1] if result.generations else None
    pairs = [("generations", str(last.number if last else 0))]
    if last is not None:
        pairs += _alone(result) if len(last.marginals) == 1 else _together(result, last)
        sizes = [len(members) for members in result.populations]
        shared = ", shared by the players" if len(sizes) < len(last.sizes) else ""
        pairs.append(("policies", " + ".join(str(size) for size in sizes) + shared))
        if last.episodes:  # a computed oracle plays none
            pairs.append(("episodes", f"{last.episodes:,} of training"))
    summary = result.summary
    pairs += [("device", place) for place in summary.learned_on]
    if summary.failures:
        which = "every response" if summary.failed else f"{summary.failures} of {summary.trained} responses"
        pairs.append(("failed", f"{which}; the first: {summary.failure}"))
    pairs += [("warning", event.text) for event in result.warnings]
    pairs.append(("time", duration(result.seconds)))
    pairs.append(("stopped", result.stopped_by))
    pairs.append(("run", str(result.run_dir)))
    if result.report is not None:
        pairs.append(("report", str(result.report)))
    facts("Results", pairs)
    _show_statistics(result)


def _show_statistics(result: Result) -> None:
    """A table of the newest policies, where the environment counts something."""
    tables = [(k, statistics) for k, statistics in enumerate(result.statistics) if statistics is not None]
    if not tables:
        return
    rows = [
        [str(which), member.ref.policy, *mean_cells(statistics, member.index)]
        for which, statistics in tables
        for member in result.populations[which][-_NEWEST:]
        if statistics.n[member.index].any()
    ]
    statistics_table(
        ("population", "policy"),
        rows,
        tables[0][1].names,
        title="Statistics of the newest policies, means per episode",
        left=(0, 1),
    )


def print_next_commands(result: Result) -> None:
    """Commands that somebody may want to type now."""
    last = result.generations[-1] if result.generations else None
    if last is None:
        return
    default_dir = RUNS / result.run_dir.name  # which its name stands for, unless a folder of that name is nearer
    near = default_dir.resolve() == result.run_dir.resolve() and not Path(result.run_dir.name, FILE).exists()
    run = result.run_dir.name if near else str(result.run_dir)
    commands = []
    if len(last.marginals) > 1:
        if last.nash_conv is None:
            commands.append(
                (
                    f"evaluate {quote(run)} --exploit {_of_a_response(result)}",
                    "a lower bound on NashConv, by trained best responses",
                )
            )
        best = _best(result)
        earlier = [] if best is None or best is last else [quote(f"{run}@{best.number}")]
        entrants = [quote(f"{run}@meta"), *earlier, quote(f"{run}@best"), "random"]
        # A folder for each generation: the same names are others once the run has gone on.
        results = quote(f"tournaments/{result.run_dir.name}-{last.number}")
        commands.append((f"tournament {' '.join(entrants)} --dir {results}", "a tournament of its policies"))
    commands.append((f"record {quote(f'{run}@best')}", "record an episode"))
    if len(last.marginals) > 1 and result.summary.stopped_by == COMPLETE and result.scenario.generations is not None:
        commands.append((f"resume {quote(run)} generations={2 * max(1, last.number)}", "continue"))
    facts("Next", [(f"ludus {command}", why) for command, why in commands])


def _of_a_response(result: Result) -> int:
    """Return episodes that the run's own responses were trained for on average, to two digits."""
    trained, episodes = result.summary.trained, result.summary.episodes
    return int(float(f"{episodes / trained:.1e}")) if trained and episodes >= trained else _EXPLOIT


def _together(result: Result, last: GenerationRecord) -> Iterator[tuple[str, str]]:
    """Yield how good the last meta-strategies are, where there are opponents."""
    best = _best(result)
    if last.nash_conv is None or best is None:
        yield "NashConv", f"not computed: {_why_not(result)}"
    else:
        bound = "" if last.exact else " (at least)"
        which = "" if best is last else f"; best {number(best.nash_conv)} after generation {best.number}"
        yield "NashConv", f"{number(last.nash_conv)}{bound}, what best responses to the mixture gain in all{which}"
        if len(last.marginals) == 2:
            yield "exploitability", f"{number(last.nash_conv / 2)}{bound}, the mean of both players"
    if any(math.isfinite(value) for value in last.responses):
        yield "best response", f"payoff against the mixture it was trained against: {_by_player(last.responses)}"
    elif returns := _in_training(result, last):
        yield "in training", f"mean return of the newest policy in its last rollout: {returns}"
    if (against := _against_random(result, last)) is not None:
        yield "against random", f"payoff of the mixture against the policy that plays at random: {against}"


def _alone(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what policies of a single player earn, by the episodes of evaluation; without one, by the newest of training."""
    payoffs, members = result.payoffs, result.populations[0]
    known = np.flatnonzero(np.isfinite(payoffs.mean[0]))
    if not len(known):
        with Reader(result.run_dir, check=False) as reader:
            curves = reader.curves()
        numbers = newest_of(curves[-1].curve) if curves else {}
        if "return" in numbers:
            spread = f" ± {short(numbers['return_spread'])}" if "return_spread" in numbers else ""
            yield (
                "return",
                f"{short(numbers['return'])}{spread} of policy {curves[-1].policy}, in the newest episodes of its training",
            )
        return
    newest, best = int(known[-1]), int(known[np.argmax(payoffs.mean[0][known])])

    def estimate(k: int) -> str:
        n, mean = int(payoffs.count[k]), payoffs.mean[0][k]
        if n < 2:
            return short(mean)
        half = student(n) * math.sqrt(payoffs.m2[0][k] / (n - 1) / n)
        return f"{short(mean)} ± {short(half)}"

    of = "" if payoffs.exact[newest] else f" (95% interval, {payoffs.count[newest]:,} episodes)"
    yield "return", f"{estimate(newest)} of policy {members[newest].ref.policy}{of}"
    if best != newest:
        yield "best return", f"{estimate(best)} of policy {members[best].ref.policy}"
    if members[0].spec.kind == "random" and 0 in known and newest:
        yield "random return", f"{estimate(0)} of the policy that plays at random"


def _best(result: Result) -> GenerationRecord | None:
    """Return the generation of the least NashConv, the last one of several; None where it was not computed."""
    known = [
        record for record in result.generations if record.nash_conv is not None and math.isfinite(record.nash_conv)
    ]
    return min(reversed(known), key=lambda record: record.nash_conv or 0.0, default=None)


def _why_not(result: Result) -> str:
    if result.scenario.evaluation.exploitability == "off":
        return "evaluation.exploitability is off"
    if any(record.spec.kind == "bot" for members in result.populations for record in members):
        return "a bot plays a part, whose strategy nobody can read, or the game is not enumerated"
    return "the game is not enumerated: not one of OpenSpiel, too large, wrapped, or env.tree is off"


def _against_random(result: Result, last: GenerationRecord) -> str | None:
    """From the payoffs that the run has recorded; None where they do not say. With the share of episodes that were won, where they were
    played."""
    if any(not members or members[0].spec.kind != "random" for members in result.populations):
        return None
    payoffs, players = result.payoffs, len(last.marginals)
    profiles = [
        [(k, tuple(k if seat == p else 0 for seat in range(players))) for k in np.flatnonzero(marginal).tolist()]
        for p, marginal in enumerate(last.marginals)
    ]
    earned = [
        sum(last.marginals[p][k] * float(payoffs.mean[(p, *profile)]) for k, profile in played)
        for p, played in enumerate(profiles)
    ]
    if not all(map(math.isfinite, earned)):
        return None
    with Reader(result.run_dir, check=False) as reader:
        counted = reader.wins([profile for played in profiles for _, profile in played])
    if any(profile not in counted for played in profiles for _, profile in played):
        return _by_player(earned)  # computed, or episodes without a winner
    won = [
        sum(last.marginals[p][k] * counted[profile][p][0] / sum(counted[profile][p]) for k, profile in played)
        for p, played in enumerate(profiles)
    ]
    shares = ", ".join(f"{100 * share:.0f}% (player {p})" for p, share in enumerate(won))
    return f"{_by_player(earned)}; it wins {shares} of the episodes"


def _in_training(result: Result, last: GenerationRecord) -> str:
    """Return what learners earned while they learned, whose policies were not evaluated against what they met."""
    returns = {}
    with Reader(result.run_dir, check=False) as reader:
        for population in range(len(result.populations)):
            series = reader.metrics(f"response/{population}/return", "generations")
            if len(series.step) and series.step[-1] == last.number:
                returns[population] = float(series.value[-1])
    return ", ".join(f"{signed(value, 3)} (population {p})" for p, value in returns.items() if math.isfinite(value))


def _by_player(values: Sequence[float]) -> str:
    texts = [(p, signed(value, 3)) for p, value in enumerate(values) if math.isfinite(value)]
    return ", ".join(f"{value} (player {p})" for p, value in texts)


def show_profile(run_dir: Path) -> None:
    """Where the time of a run's generations went, and what its rollouts did, as its database holds it."""
    with Reader(run_dir) as reader:
        names = [name for name, counter in reader.metric_names() if counter == "generations"]
        totals = {name: float(np.nansum(reader.metrics(name, "generations").value)) for name in names}
        last = reader.last_generation()
    wall = 0.0 if last is None else last.seconds
    seconds = {part: totals.get(f"seconds/{part}", 0.0) for part in PARTS}
    seconds["other"] = max(0.0, wall - sum(seconds.values()))
    rows = [
        (
            part,
            duration(value) if value >= 60 else f"{value:.2f}s",
            f"{100 * value / wall:.1f}%",
            PARTS.get(part, "time that is not measured separately"),
        )
        for part, value in sorted(seconds.items(), key=lambda item: (item[0] == "other", -item[1]))
        if value and wall
    ]
    table(("part", "time", "share", "what it is"), rows, title="Profile", left=(0, 3), spare=(3,))
    counts = {name.partition("/")[2]: value for name, value in totals.items() if name.startswith("rollout/")}
    playing = sum(seconds[part] for part in ("environment", "inference", "writing", "waiting", "rollout"))
    if counts and playing:
        rates = [
            (name.replace("_", " "), f"{value:,.0f} ({value / playing:,.0f} per second)")
            for name, value in counts.items()
        ]
        facts("Rollouts, training and evaluation", rates)


def _status(result: Result, stopped: int) -> int:
    """Return the exit code; `stopped` is 0 unless a stop has another."""
    if not result.summary.failed or stopped:
        return stopped
    sys.stderr.write(
        "error: every response of this run failed; its policies are unchanged. The report lists the failures.\n"
    )
    return FAILED
