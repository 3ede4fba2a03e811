"""The tables of `benchmarks.psro_family` in Markdown: each finding's verdict, and the means of all cells."""

from __future__ import annotations

from statistics import mean

from benchmarks.psro_family_cells import SEEDS, Cells
from benchmarks.psro_family_findings import (
    Finding,
    as_good_as,
    average_converges,
    better_population,
    faster_at_first,
    gets_stuck,
    hardly_rises,
    less_exploitable,
    newest_is_not_the_best,
    rises_at_times,
    solves_kuhn,
)
from benchmarks.psro_family_methods import GAMES, METHODS

HOLDS = {True: "yes", False: "**no**"}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

FINDINGS = (
    Finding(
        "psro",
        "McMahan et al. 2003; Lanctot et al. 2017",
        "the meta-strategies approach an equilibrium",
        solves_kuhn("psro"),
    ),
    Finding("psro", "McAleer et al. 2022, Anytime PSRO", "exploitability can rise between generations", rises_at_times),
    Finding(
        "psro, sequential",
        "McMahan et al. 2003",
        "the order of the responses does not matter",
        as_good_as("psro, sequential", "psro"),
    ),
    Finding(
        "psro, uniform",
        "Robinson 1951",
        "the mean of the responses approaches an equilibrium",
        average_converges("psro, uniform"),
    ),
    Finding("psro, PRD", "Lanctot et al. 2017", "it serves as well as the meta-Nash", as_good_as("psro, PRD", "psro")),
    Finding(
        "psro, regret matching+",
        "Tammelin 2014",
        "it serves as well as the meta-Nash",
        as_good_as("psro, regret matching+", "psro"),
    ),
    Finding(
        "alpha-psro",
        "Muller et al. 2020",
        "competitive with Nash in Kuhn and Leduc poker",
        as_good_as("alpha-psro", "psro"),
    ),
    Finding("jpsro, CCE", "Marris et al. 2021", "the equilibrium's gap goes to zero", solves_kuhn("jpsro, CCE")),
    Finding("rectified", "McAleer et al. 2020", "it fails to converge even in small games", gets_stuck),
    Finding(
        "anytime",
        "McAleer et al. 2022",
        "exploitability does not rise (tested: all rises are less than half of PSRO's)",
        hardly_rises,
    ),
    Finding(
        "self-play psro",
        "McAleer et al. 2022, Self-Play PSRO",
        "much faster in the first generations",
        faster_at_first("self-play psro", ("psro", "anytime")),
    ),
    Finding("efficient", "Zhou et al. 2022", "as exploitable as PSRO", as_good_as("efficient", "psro")),
    Finding(
        "xdo",
        "McAleer et al. 2021",
        "less exploitable than PSRO after far fewer generations",
        faster_at_first("xdo", ("psro",), share=0.25),
    ),
    Finding(
        "nxdo",
        "McAleer et al. 2021, with continuous actions",
        "less exploitable than PSRO",
        less_exploitable("nxdo", "psro"),
    ),
    Finding("odo", "Dinh et al. 2022", "nearer an equilibrium than PSRO", less_exploitable("odo", "psro")),
    Finding(
        "psro, behavioural diversity",
        "Liu et al. 2021",
        "diverse populations are less exploitable",
        better_population("psro, behavioural diversity", "psro"),
    ),
    Finding(
        "psro, response diversity",
        "Liu et al. 2021",
        "diverse populations are less exploitable",
        better_population("psro, response diversity", "psro"),
    ),
    Finding("neupl", "Liu et al. 2022", "its meta-Nash approaches an equilibrium", solves_kuhn("neupl")),
    Finding(
        "pipeline",
        "McAleer et al. 2020",
        "it converges, which rectified PSRO does not",
        less_exploitable("pipeline", "rectified"),
    ),
    Finding("self-play", "Balduzzi et al. 2019", "the newest policy need not be the best", newest_is_not_the_best),
    Finding(
        "self-play, past 20%",
        "Berner et al. 2019",
        "a share of the past keeps self-play from collapsing",
        less_exploitable("self-play, past 20%", "self-play"),
    ),
    Finding(
        "fictitious self-play",
        "Heinrich et al. 2015",
        "the average approaches an equilibrium",
        average_converges("fictitious self-play"),
    ),
    Finding(
        "pfsp",
        "Vinyals et al. 2019",
        "the population is more robust than self-play's",
        better_population("pfsp", "self-play"),
    ),
    Finding(
        "league",
        "Vinyals et al. 2019",
        "exploiters make the main agents more robust",
        less_exploitable("league", "pfsp"),
    ),
)


def report(cells: Cells) -> str:
    """Both tables."""
    return f"{findings_table(cells)}\n\n{means_table(cells)}"


def findings_table(cells: Cells) -> str:
    """`method | finding | here | holds?`, one row per finding that is decided, and a line with the methods of the others."""
    lines = ["| method | finding | here: exploitability | holds |", "| --- | --- | --- | --- |"]
    undecided = []
    for finding in FINDINGS:
        verdict = finding.judge(cells)
        if verdict and verdict.holds is None:
            undecided.append(f"`{finding.method}` ({finding.claim}, {finding.source})")
        else:
            here, holds = (verdict.numbers, HOLDS[verdict.holds]) if verdict else ("no cells yet", "-")
            lines.append(f"| `{finding.method}` | {finding.claim} ({finding.source}) | {here} | {holds} |")
    return "\n".join([*lines, *(["", f"Undecided: {'; '.join(undecided)}."] if undecided else [])])


def means_table(cells: Cells) -> str:
    """Per method and game, except Kuhn poker, which most solve: mean exploitability of what is announced / of the population's least
    exploitable mixture, in the end, and the number of seeds if not all."""
    games = [game for game in GAMES if cells.methods(game) and game != "kuhn"]
    lines = ["| method | " + " | ".join(games) + " |", "| --- |" + " --- |" * len(games)]
    for method in METHODS:
        if any(cells(game, method) for game in games):
            lines.append(f"| `{method}` | " + " | ".join(_means(cells, game, method) for game in games) + " |")
    return "\n".join(lines)


def _means(cells: Cells, game: str, method: str) -> str:
    some = cells(game, method)
    if not some:
        return "-"
    seeds = "" if len(some) == len(SEEDS) else " (1 seed)" if len(some) == 1 else f" ({len(some)} seeds)"
    return f"{mean(c.end for c in some):.3f} / {mean(c.population_at(1.0) for c in some):.3f}{seeds}"


def inserted(page: str, measured: str, *, begin: str = BEGIN, end: str = END) -> str:
    """The page with what is between the lines `begin` and `end` replaced. Raises ValueError if it lacks them."""
    before, top, rest = page.partition(begin)
    _, bottom, after = rest.partition(end)
    if not top or not bottom:
        raise ValueError(f"the page has no part between {begin} and {end}; add these lines where the tables belong.")
    return f"{before}{begin}\n\n{measured}\n\n{end}{after}"
