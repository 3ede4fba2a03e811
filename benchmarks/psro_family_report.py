"""The tables of `benchmarks.psro_family` in Markdown: what each finding came to, and the means of all cells."""

from __future__ import annotations

from benchmarks.psro_family_cells import SEEDS, Cells, interval
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

HOLDS = {True: "yes", False: "**no**", None: "undecided"}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

FINDINGS = (
    Finding(
        "psro",
        "Lanctot et al. 2017; McMahan et al. 2003",
        "with double oracle's meta-Nash and good responses the meta-strategies approach an equilibrium",
        solves_kuhn("psro"),
    ),
    Finding(
        "psro",
        "McAleer et al. 2022, Anytime PSRO, abstract",
        "PSRO's exploitability can rise from one generation to the next",
        rises_at_times,
    ),
    Finding(
        "psro, sequential",
        "McMahan et al. 2003, double oracle",
        "an equilibrium is reached, and the order of the responses does not matter for that",
        as_good_as("psro, sequential", "psro"),
    ),
    Finding(
        "psro, uniform",
        "Lanctot et al. 2017: PSRO with uniform meta-strategies is fictitious play; Robinson 1951",
        "the mean of the responses approaches an equilibrium",
        average_converges("psro, uniform"),
    ),
    Finding(
        "psro, PRD",
        "Lanctot et al. 2017, meta-strategy solvers",
        "meta-strategies that keep exploring serve as well as the meta-Nash",
        as_good_as("psro, PRD", "psro"),
    ),
    Finding(
        "psro, regret matching+",
        "Tammelin 2014",
        "its mean approaches a Nash equilibrium of the meta-game, so that it serves as well as the linear program",
        as_good_as("psro, regret matching+", "psro"),
    ),
    Finding(
        "alpha-psro",
        "Muller et al. 2020, abstract",
        "competitive with an exact Nash solver in two-player Kuhn and Leduc poker",
        as_good_as("alpha-psro", "psro"),
    ),
    Finding(
        "jpsro, CCE",
        "Marris et al. 2021, abstract",
        "the gap of the coarse correlated equilibrium goes to zero",
        solves_kuhn("jpsro, CCE"),
    ),
    Finding(
        "rectified",
        "McAleer et al. 2020, Pipeline PSRO, abstract",
        "rectified PSRO (Balduzzi et al. 2019) fails to converge even in small games",
        gets_stuck,
    ),
    Finding(
        "anytime",
        "McAleer et al. 2022, abstract",
        "exploitability does not rise, up to the errors of responses and regret (tested: all rises together are less than half of PSRO's)",
        hardly_rises,
    ),
    Finding(
        "self-play psro",
        "McAleer et al. 2022, Self-Play PSRO, abstract",
        "much faster than PSRO and anytime PSRO in the first generations",
        faster_at_first("self-play psro", ("psro", "anytime")),
    ),
    Finding(
        "efficient",
        "Zhou et al. 2022, abstract",
        "without a meta-game, exploitability similar to PSRO's in Kuhn and Leduc poker",
        as_good_as("efficient", "psro"),
    ),
    Finding(
        "xdo",
        "McAleer et al. 2021, XDO, abstract",
        "less exploitable than PSRO in Leduc poker, after far fewer generations",
        faster_at_first("xdo", ("psro",), share=0.25),
    ),
    Finding(
        "nxdo",
        "McAleer et al. 2021, XDO, abstract: in a game with continuous actions",
        "less exploitable than PSRO where networks learn in the restricted game too",
        less_exploitable("nxdo", "psro"),
    ),
    Finding(
        "odo",
        "Dinh et al. 2022, abstract",
        "nearer an equilibrium than PSRO in Leduc poker",
        less_exploitable("odo", "psro"),
    ),
    Finding(
        "psro, behavioural diversity",
        "Liu et al. 2021, abstract",
        "populations that are made diverse are less exploitable",
        better_population("psro, behavioural diversity", "psro"),
    ),
    Finding(
        "psro, response diversity",
        "Liu et al. 2021, abstract",
        "populations that are made diverse are less exploitable",
        better_population("psro, response diversity", "psro"),
    ),
    Finding(
        "neupl",
        "Liu et al. 2022, NeuPL, abstract",
        "it converges to a population of best responses (tested: with the meta-Nash, what is announced approaches an equilibrium)",
        solves_kuhn("neupl"),
    ),
    Finding(
        "pipeline",
        "McAleer et al. 2020, abstract",
        "it converges to an approximate equilibrium, which rectified PSRO does not",
        less_exploitable("pipeline", "rectified"),
    ),
    Finding(
        "self-play",
        "Balduzzi et al. 2019, introduction",
        "where strategies go in cycles, the newest policy of self-play need not be better than earlier ones",
        newest_is_not_the_best,
    ),
    Finding(
        "self-play, past 20%",
        "Berner et al. 2019, appendix on opponents",
        "a share of games against the past keeps self-play from collapsing",
        less_exploitable("self-play, past 20%", "self-play"),
    ),
    Finding(
        "fictitious self-play",
        "Heinrich et al. 2015, abstract",
        "the average approaches an equilibrium in poker",
        average_converges("fictitious self-play"),
    ),
    Finding(
        "pfsp",
        "Vinyals et al. 2019, methods",
        "playing the past by win rates makes a population more robust than self-play",
        better_population("pfsp", "self-play"),
    ),
    Finding(
        "league",
        "Vinyals et al. 2019, figure 3 (ablation of the league)",
        "exploiters make the main agents more robust than self-play and its past alone",
        less_exploitable("league", "pfsp"),
    ),
)


def report(cells: Cells) -> str:
    """Both tables."""
    return f"{findings_table(cells)}\n\n{means_table(cells)}"


def findings_table(cells: Cells) -> str:
    """`method | finding | here | holds?`, one row per finding."""
    lines = ["| method | finding of its authors | here: exploitability | holds |", "| --- | --- | --- | --- |"]
    for finding in FINDINGS:
        verdict = finding.judge(cells)
        here, holds = (verdict.numbers, HOLDS[verdict.holds]) if verdict else ("no cells yet", "-")
        lines.append(f"| `{finding.method}` | {finding.claim} ({finding.source}) | {here} | {holds} |")
    return "\n".join(lines)


def means_table(cells: Cells) -> str:
    """Per method and game: exploitability of what is announced / of the population's least exploitable mixture, in the end, and how many
    seeds there are if not all."""
    games = [game for game in GAMES if cells.methods(game)]
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
    announced, least = interval([c.end for c in some]), interval([c.population_at(1.0) for c in some])
    return f"{announced} / {least}{seeds}"


def inserted(page: str, measured: str, *, begin: str = BEGIN, end: str = END) -> str:
    """The page with what is between the lines `begin` and `end` replaced. Raises ValueError if it lacks them."""
    before, top, rest = page.partition(begin)
    _, bottom, after = rest.partition(end)
    if not top or not bottom:
        raise ValueError(f"the page has no part between {begin} and {end}; add these lines where the tables belong.")
    return f"{before}{begin}\n\n{measured}\n\n{end}{after}"
