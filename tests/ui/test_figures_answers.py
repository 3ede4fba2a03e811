"""The first screen's answers, worked by hand from small databases."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.apps.ui.figures.answers import Answers, answers
from ludus.apps.ui.figures.experiment import experiment, mean_improvement
from ludus.apps.ui.figures.improvement import (
    NONE,
    Estimate,
    Improvement,
    newest_return,
    training_blocks,
    trend,
    verdict_of,
)
from ludus.apps.ui.figures.panels import PANELS
from ludus.core.jsonable import to_json
from ludus.core.types import Match, PolicySpec
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.store import Store

Results = Mapping[tuple[int, int], tuple[int, int, int]]
"""profile -> (won, drawn, lost) of player 0."""


def _answers(run_dir: Path) -> Answers:
    with Reader(run_dir) as reader:
        answer = answers(reader)
    json.loads(to_json(answer))  # all of it has a form in JSON
    return answer


def _exact(
    run_dir: Path, payoffs: Sequence[Sequence[float]], strategies: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> Path:
    """A zero-sum run of one population with computed payoffs of player 0, and a generation for each pair of meta-strategies."""
    table = np.array(payoffs, np.float64)
    facts = {"population": (0, 0), "utility_range": ((-1.0, 1.0),) * 2}
    with Store.create(run_dir, synthetic.info(run_dir, **facts)) as store:
        for place in range(len(table)):
            store.policy_added(synthetic.policy(0, place, generation=place))
        profiles = np.array([*np.ndindex(table.shape)])
        store.payoffs_recorded(profiles, np.stack([table.ravel(), -table.ravel()], axis=1))
        for number, marginals in enumerate(strategies):
            rows = tuple(tuple(row) for row in marginals)
            store.generation_done(GenerationRecord(number, 1.0 + number, 0, None, marginals=rows))
        store.commit("c1")
    return run_dir


def _self_play(run_dir: Path, results: Results, *, versions: int, **facts: object) -> Path:
    """Self-play of one population: version 0 plays at random, and generation k plays version k alone."""
    facts = {"population": (0, 0), "utility_range": ((-1.0, 1.0),) * 2, **facts}
    with Store.create(run_dir, synthetic.info(run_dir, **facts)) as store:
        for place in range(versions):
            record = synthetic.policy(0, place, generation=place)
            store.policy_added(replace(record, spec=PolicySpec("random", {})) if place == 0 else record)
            row = tuple(float(k == place) for k in range(place + 1))
            store.generation_done(GenerationRecord(place, 1.0 + place, 100 * place, None, marginals=(row, row)))
        store.matches_recorded([_match(k, profile, ends) for k, (profile, ends) in enumerate(results.items())])
        store.commit("c1")
    return run_dir


def _match(k: int, profile: tuple[int, int], ends: tuple[int, int, int]) -> Match:
    won, drawn, lost = ends
    n = won + drawn + lost
    mean = (won - lost) / n
    m2 = won + lost - n * mean**2
    seats = tuple(synthetic.policy(0, place).ref for place in profile)
    return Match(f"m{k}", profile, seats, n, np.array([mean, -mean]), np.array([m2, m2]), (ends, (lost, drawn, won)))


# --------------------------------------------------------------------------------------------------------------------
# Does it improve?


def test_a_trend_is_a_line_of_least_squares() -> None:
    change = trend([8.0, 6.0, 4.0, 2.0])
    assert change is not None
    assert (change.change, change.span) == (pytest.approx(-6.0), 3)
    assert change.half_width == pytest.approx(0.0, abs=1e-9)
    # Of 0, 1, 0, 1 around their mean: gradient 0.2; the rest is (-0.2, 0.6, -0.6, 0.2), its squares sum to 0.8. With 2 degrees of freedom
    # the gradient's error is sqrt(0.4 / 5), and Student's t is 4.302653.
    change = trend([0.0, 1.0, 0.0, 1.0])
    assert change is not None
    assert (change.change, change.half_width) == pytest.approx((0.6, 3 * 4.302653 * math.sqrt(0.08)))
    assert trend([1.0, 2.0, math.nan, 3.0]) is None, "three values"
    # Of many, the last ten alone; over five steps.
    change = trend([100.0, *np.arange(10.0)])
    assert change is not None
    assert (change.change, change.span) == (pytest.approx(5.0), 5)
    assert [verdict_of(*values) for values in ((2.0, 1.0), (0.5, 1.0), (-2.0, 1.0))] == [
        "improves",
        "no measurable change",
        "gets worse",
    ]
    assert verdict_of(-2.0, 1.0, lower_is_better=True) == "improves"


@pytest.mark.parametrize(
    ("values", "exact", "verdict", "begin"),
    [
        ([4.0, 3.0, 2.0, 1.0], True, "improves", "Improves: NashConv changed by −3.00 ± 0.00 over the last 3 gen"),
        ([1.0, 2.0, 1.0, 2.0], True, "no measurable change", "No measurable change: NashConv changed by +"),
        ([4.0, 3.0, 2.0, 1.0], False, "improves", "Improves: the bound changed by −3"),
        ([4.0, 3.0], True, "not yet known", "Not yet known: a trend needs 4 generations."),
        ([4.0, 1e-4, 1e-4, 1e-4], True, "nothing is left to gain", "Nothing is left to gain"),
    ],
)
def test_nash_conv_says_whether_a_run_improves(
    tmp_path: Path, values: list[float], exact: bool, verdict: str, begin: str
) -> None:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        for player in range(2):
            store.policy_added(synthetic.policy(player, 0))
        for number, value in enumerate(values):
            record = GenerationRecord(number, 1.0, 0, value, gains=(value / 2,) * 2, marginals=((1.0,), (1.0,)))
            store.generation_done(replace(record, exact=exact))
        store.commit("c1")
    answer = _answers(tmp_path / "run")
    improves = answer.improvement
    assert (improves.verdict, improves.measure) == (verdict, "NashConv" if exact else "NashConv, at least")
    assert improves.sentence.startswith(begin)
    assert improves.sentence.lower().startswith(verdict), "an experiment's table has the verdict alone"
    assert (improves.x, improves.values) == ([float(k) for k in range(len(values))], values)
    assert (answer.table, answer.cycle) == (None, None), "one policy of each player"
    assert [(mixed.policies, mixed.probability) for mixed in answer.mixtures] == [(["p0"], [1.0])] * 2


def test_games_say_whether_self_play_improves(tmp_path: Path) -> None:
    """Version 2 has won 80 and drawn 20 of 100 games against the first, over both seats, and 70 of 100 against the one before."""
    results = {(2, 0): (40, 10, 0), (0, 2): (0, 10, 40), (1, 0): (30, 0, 20), (2, 1): (35, 0, 15), (1, 2): (15, 0, 35)}
    improves = _answers(_self_play(tmp_path / "run", results, versions=3)).improvement
    assert (improves.measure, improves.par, improves.of) == ("win rate", 0.5, "of generation 2 against random play")
    # Agresti and Coull, of each seat: (45 + 1.9207) / (50 + 3.8415) = 0.8715. The mean of both seats has half of a seat's variance.
    half = 1.959964 * math.sqrt(0.8715 * 0.1285 / 53.8415 / 2)
    assert (improves.now.value, improves.now.low) == pytest.approx((0.9, 0.9 - half), abs=1e-3)
    assert improves.now.high == pytest.approx(0.9 + half, abs=1e-3)
    assert improves.values == pytest.approx([0.5, 0.6, 0.9])
    assert [(one.who, one.estimate.value, one.games) for one in improves.against] == [
        ("random play", 0.9, 100),
        ("generation 1, the one before", 0.7, 100),
    ]
    assert (improves.who, improves.opponent) == ("generation 2", "random play"), "whose games, and against whom"
    # (35 + 1.9207) / 53.8415 = 0.6857, whose interval is ± 0.0877: 0.7 is more than that above 0.5.
    assert (improves.verdict, improves.sentence) == (
        "improves",
        "Improves since the previous generation: the newest strategies win 70% ± 9% of their games against those of 1 generation before.",
    )


def test_equals_do_not_improve_and_what_was_not_played_is_not_known(tmp_path: Path) -> None:
    few = {(1, 0): (6, 0, 4), (0, 1): (5, 0, 5)}
    improves = _answers(_self_play(tmp_path / "few", few, versions=2)).improvement
    assert improves.verdict == "no measurable change", "11 of 20 games"
    lost = {(1, 0): (10, 0, 40)}
    assert _answers(_self_play(tmp_path / "lost", lost, versions=2)).improvement.verdict == "gets worse"
    none = _answers(_self_play(tmp_path / "none", {}, versions=3, text="scenario: self_play\ncells: needed\n"))
    assert (none.improvement.verdict, none.improvement.measure, none.table) == ("not yet known", "", None)
    assert none.improvement.sentence.endswith("With cells=progress they do.")
    assert [mixed.policies for mixed in none.mixtures] == [["p2"]]
    assert none.cycle is not None
    assert none.cycle.sentence == "No cycle among the policies that are played."
    gap = {(2, 1): (26, 0, 24)}  # the newest has not met the first
    improves = _answers(_self_play(tmp_path / "gap", gap, versions=3)).improvement
    assert (improves.verdict, improves.now.value) == ("no measurable change", None)
    assert [one.who for one in improves.against] == ["generation 1, the one before"]


def test_of_few_games_those_against_the_generation_before_count(tmp_path: Path) -> None:
    results = {(3, 0): (30, 0, 20), (3, 2): (40, 0, 10), (2, 3): (10, 0, 40)}  # none against the second
    improves = _answers(_self_play(tmp_path / "run", results, versions=4)).improvement
    assert (improves.verdict, improves.over) == ("improves", "the last generation")
    assert improves.sentence.startswith("Improves since the previous generation: the newest strategies win 80% ± ")


def test_the_first_words_say_since_when_a_run_improves(tmp_path: Path) -> None:
    """Version 7 beats version 2 of five generations before, and is even with version 6."""
    before, even, lost = (90, 0, 10), (50, 0, 50), (10, 0, 90)
    improves = _answers(_self_play(tmp_path / "even", {(7, 2): before, (7, 6): even}, versions=8)).improvement
    assert improves.verdict == "improves"
    assert improves.sentence.split(":")[0] == (
        "Improves since generation 2; no measurable change since the previous generation"
    )
    improves = _answers(_self_play(tmp_path / "lost", {(7, 2): before, (7, 6): lost}, versions=8)).improvement
    assert improves.sentence.startswith("Improves since generation 2; gets worse since the previous generation: ")
    improves = _answers(_self_play(tmp_path / "both", {(7, 2): before, (7, 6): before}, versions=8)).improvement
    assert improves.sentence.startswith("Improves since generation 2 and since the previous generation: ")
    improves = _answers(_self_play(tmp_path / "alone", {(7, 2): before}, versions=8)).improvement
    assert improves.sentence.startswith("Improves since generation 2: "), "versions 7 and 6 have not met"
    improves = _answers(_self_play(tmp_path / "start", {(1, 0): before}, versions=2)).improvement
    assert improves.sentence.startswith("Improves since the start: ")


def test_payoffs_say_it_where_winners_were_not_counted(tmp_path: Path) -> None:
    """Player 0's second policy earns 0.5 against the first, 0.2 more than the first against itself does on average over the seats."""
    strategies = [([1.0], [1.0]), ([0.0, 1.0], [0.0, 1.0])]
    improves = _answers(_exact(tmp_path / "run", [[0.0, -0.5], [0.5, 0.0]], strategies)).improvement
    assert (improves.measure, improves.now.value, improves.par) == ("payoff", 0.5, 0.0)
    assert improves.verdict == "improves"
    assert improves.sentence == (
        "Improves since the start: the newest strategies earn +0.50 ± 0.00 more against those of 1 generation before "
        "than these earn themselves."
    )


def test_policies_that_are_only_compared_are_not_said_to_improve(tmp_path: Path) -> None:
    results = {(1, 0): (40, 0, 10), (0, 1): (10, 0, 40)}
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir, population=(0, 0), generations=0)) as store:
        for place in range(2):
            store.policy_added(synthetic.policy(0, place))
        store.matches_recorded([_match(k, profile, ends) for k, (profile, ends) in enumerate(results.items())])
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=((0.0, 1.0),) * 2))
        store.commit("c1")
    improves = _answers(run_dir).improvement
    assert (improves.verdict, improves.now.value) == ("nothing is trained", 0.8)
    assert improves.of == "of the meta-strategy against the start"


def test_before_the_first_generation_nothing_is_known(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        store.policy_added(synthetic.policy(0, 0))
        store.policy_added(synthetic.policy(1, 0))
        store.commit("c1")
    answer = _answers(tmp_path / "run")
    assert answer.improvement.sentence == "Not yet known: the first generation has not finished."
    assert (answer.table, answer.mixtures, answer.cycle, answer.recent) == (None, [], None, None)
    answer = _answers(_self_play(tmp_path / "first", {}, versions=1))
    assert answer.improvement.sentence == "Not yet known: generation 0 is the start, and generation 1 has not finished."
    assert (answer.generation, len(answer.mixtures)) == (0, 1), "the mixture of generation 0 is known"


# --------------------------------------------------------------------------------------------------------------------
# A single agent.


def _single(run_dir: Path, *, iterations: int, evaluated: bool, **facts: object) -> Path:
    task = replace(synthetic.training(0, 1), seats=(0,))
    with Store.create(run_dir, synthetic.info(run_dir, players=1, population=(0,), **facts)) as store:
        for place in range(2):
            store.policy_added(synthetic.policy(0, place, generation=place))
        store.task_started(task)
        store.curve_recorded(task.id, synthetic.curve(iterations))
        if evaluated:
            match = Match("m0", (1,), (synthetic.policy(0, 1).ref,), 4, np.array([10.0]), np.array([12.0]), ())
            store.matches_recorded([match])
        store.commit("c1")
    return run_dir


def test_return_of_a_single_agent(tmp_path: Path) -> None:
    with Reader(_single(tmp_path / "evaluated", iterations=40, evaluated=True)) as reader:
        newest = newest_return(reader)
    assert newest is not None
    # Four episodes, squares around the mean sum to 12: the error is sqrt(12 / 3 / 4) = 1, Student's t 3.182446.
    assert (newest.value, newest.half_width, newest.episodes) == (10.0, pytest.approx(3.182446, abs=1e-4), 4)
    assert newest.of == "policy p1, 4 episodes of evaluation"
    # Two episodes each second, of returns k and k + 2: the last hundred are those of the last 50 of 60 seconds.
    run_dir = _single(tmp_path / "trained", iterations=60, evaluated=False)
    with Reader(run_dir) as reader:
        newest = newest_return(reader)
    assert newest is not None
    assert (newest.value, newest.of) == (36.5, "policy 0-1, the newest 100 episodes of its training")
    answer = _answers(run_dir)
    assert (answer.improvement.measure, answer.improvement.verdict) == ("return", "improves")
    assert "+15" in answer.improvement.sentence, "a quarter of 60 seconds, one more each"
    assert (answer.table, answer.mixtures, answer.cycle) == (None, [], None)
    assert answer.recent is not None
    assert len(answer.recent.returns) == 60
    with Reader(_single(tmp_path / "none", iterations=0, evaluated=False)) as reader:
        assert newest_return(reader) is None


def test_a_training_is_cut_into_parts_by_decisions() -> None:
    means = training_blocks(synthetic.curve(40))
    assert means == pytest.approx([2.5 + 2 * k for k in range(20)])  # of two seconds each: k + 1 on average
    assert len(training_blocks(synthetic.curve(0))) == 0


def test_an_experiment_is_the_mean_over_its_seeds(tmp_path: Path) -> None:
    """Three runs, of which the returns end at 36.5, 46.5 and 56.5: the mean of the last 100 of 2 · n episodes is n - 23.5."""
    folders = [
        _single(
            tmp_path / f"seed-{k}",
            iterations=60 + 10 * k,
            evaluated=False,
            text=f"scenario: x\nseed: {k}\n",
            seed=k,
            utility_range=((-math.inf, math.inf),),
        )
        for k in range(3)
    ]
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(folder)) for folder in folders]
        (group,) = experiment([(f"id{k}", f"x/seed-{k}", reader) for k, reader in enumerate(readers)])
    assert group.settings == ""
    assert [(run.id, run.seed, run.now.value) for run in group.runs] == [
        ("id0", 0, 36.5),
        ("id1", 1, 46.5),
        ("id2", 2, 56.5),
    ]
    # The standard deviation is 10, Student's t with two degrees of freedom 4.302653.
    half = 4.302653 * 10 / math.sqrt(3)
    now = group.improvement.now
    assert (now.value, now.low, now.high) == pytest.approx((46.5, 46.5 - half, 46.5 + half), rel=1e-4)
    # Each return rises by one a second; a quarter of a training is 15, 17.5 or 20 seconds.
    change = group.improvement.change
    assert change.value == pytest.approx(17.5, abs=0.2)
    assert group.improvement.verdict == "improves"
    assert group.improvement.sentence.startswith("Improves: the mean over 3 seeds changed by +17.")
    assert len(group.improvement.low) == len(group.improvement.x) == 100
    known = [value for value in group.improvement.values if value is not None]
    assert group.improvement.frame == pytest.approx((min(known), max(known))), "three curves of one shape"


@pytest.mark.parametrize(
    ("measure", "limits"), [("return", (0.0, 50.0)), ("win rate", (0.0, 1.0)), ("NashConv", (0.0, 50.0))]
)
def test_intervals_over_seeds_end_at_the_utility_range(measure: str, limits: tuple[float, float]) -> None:
    """Of two seeds at 10% and 90% of the range, Student's interval is ± 5.08 of it."""
    low, high = limits
    answers = [
        Improvement(
            measure,
            "improves",
            "",
            NONE,
            "",
            Estimate(value),
            "",
            None,
            [],
            "decisions",
            [0.0, 1.0],
            [value] * 2,
            [],
            [],
        )
        for value in (low + 0.1 * (high - low), low + 0.9 * (high - low))
    ]
    mean = mean_improvement(answers, ((0.0, 50.0),))
    assert (set(mean.low), set(mean.high), mean.frame) == ({low}, {high}, None)
    free = mean_improvement(answers, ((-math.inf, math.inf),))
    if measure == "return":
        assert free.frame == (5.0, 45.0), "a chart shows what runs have reached"
        assert all(value is not None and value < low for value in free.low)


def test_runs_of_other_settings_are_a_group_of_their_own(tmp_path: Path) -> None:
    folders = [
        _single(
            tmp_path / f"run-{k}", iterations=40, evaluated=True, text=f"algorithm: {{gamma: 0.{9 - k}}}\nseed: {k}\n"
        )
        for k in range(2)
    ]
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(folder)) for folder in folders]
        groups = experiment([(f"id{k}", f"x/run-{k}", reader) for k, reader in enumerate(readers)])
    assert [(group.settings, len(group.runs)) for group in groups] == [
        ("algorithm.gamma=0.9", 1),
        ("algorithm.gamma=0.8", 1),
    ]
    assert groups[0].improvement.now.value == 10.0, "of one run, its own"


def test_several_players_have_no_return(tmp_path: Path) -> None:
    with Reader(_self_play(tmp_path / "run", {}, versions=2)) as reader:
        assert newest_return(reader) is None


# --------------------------------------------------------------------------------------------------------------------
# Who beats whom, what is played, where it cycles.

ROCK_PAPER_SCISSORS = [[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]


def test_rock_paper_scissors_cycles(tmp_path: Path) -> None:
    even = [1 / 3, 1 / 3, 1 / 3]
    answer = _answers(_exact(tmp_path / "run", ROCK_PAPER_SCISSORS, [(even, even)]))
    assert answer.cycle is not None
    # p1 beats p0, p2 beats p1, p0 beats p2.
    at = answer.cycle.policies.index("p0")
    assert [*answer.cycle.policies[at:], *answer.cycle.policies[:at]] == ["p0", "p2", "p1"]
    assert answer.cycle.sentence.count(" beats ") == 3
    assert answer.table is not None
    assert answer.table.rows.policies == ["p2", "p1", "p0"], "of equals the newest first"
    assert (answer.table.value[0], answer.table.middle, answer.table.middle_of) == ([0.0, 1.0, -1.0], 0.0, "")
    assert (answer.table.low, answer.table.high, answer.table.wins) == (-1.0, 1.0, True)
    assert answer.table.rows.count == 3
    assert "red in the row of A" in answer.cycle.meaning
    assert [(mixed.players, mixed.count) for mixed in answer.mixtures] == [([0, 1], 3)]


def test_what_is_not_played_and_noise_do_not_cycle(tmp_path: Path) -> None:
    two = [0.5, 0.5, 0.0]
    answer = _answers(_exact(tmp_path / "two", ROCK_PAPER_SCISSORS, [(two, two)]))
    assert answer.cycle is not None
    assert answer.cycle.sentence == "No cycle among the policies that are played."
    small = (1e-4 * np.array(ROCK_PAPER_SCISSORS)).tolist()  # of a range of 2
    even = [1 / 3, 1 / 3, 1 / 3]
    answer = _answers(_exact(tmp_path / "small", small, [(even, even)]))
    assert answer.cycle is not None
    assert answer.cycle.policies == []
    assert answer.table is not None
    assert answer.table.low == answer.table.high, "all earn the same"


@pytest.mark.parametrize(("games", "cycles"), [(10, False), (1000, True)])
def test_an_edge_of_a_cycle_is_above_its_interval(tmp_path: Path, games: int, cycles: bool) -> None:
    """Each wins 60% of its games: six of ten are noise, 600 of 1,000 are not."""
    won, lost = games * 6 // 10, games * 4 // 10
    results = {(1, 0): (won, 0, lost), (2, 1): (won, 0, lost), (0, 2): (won, 0, lost)}
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir, population=(0, 0), utility_range=((-1.0, 1.0),) * 2)) as store:
        for place in range(3):
            store.policy_added(synthetic.policy(0, place))
        store.matches_recorded([_match(k, profile, ends) for k, (profile, ends) in enumerate(results.items())])
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=((1 / 3,) * 3,) * 2))
        store.commit("c1")
    answer = _answers(run_dir)
    assert answer.cycle is not None
    assert bool(answer.cycle.policies) == cycles
    assert answer.table is not None
    assert answer.table.rate
    at = {name: k for k, name in enumerate(answer.table.rows.policies)}
    assert answer.table.value[at["p1"]][at["p0"]] == 0.6
    assert answer.table.games[at["p0"]][at["p1"]] == (lost, 0, won), "of the row"


def test_two_populations_cycle_by_what_is_above_the_value(tmp_path: Path) -> None:
    """Matching pennies: each policy beats one of the other player's, and loses to the other."""
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        for player in range(2):
            for place in range(2):
                store.policy_added(synthetic.policy(player, place))
        profiles = np.array([*np.ndindex(2, 2)])
        earned = np.array([1.0, -1.0, -1.0, 1.0])
        store.payoffs_recorded(profiles, np.stack([earned, -earned], axis=1))
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=((0.5, 0.5),) * 2))
        store.commit("c1")
    answer = _answers(tmp_path / "run")
    assert answer.cycle is not None
    order = answer.cycle.policies
    at = order.index("p0 (player 0)")  # both players call theirs p0 and p1
    assert [*order[at:], *order[:at]] == ["p0 (player 0)", "p0 (player 1)", "p1 (player 0)", "p1 (player 1)"]


def test_a_table_of_two_populations_is_coloured_as_its_cycles_are_told(tmp_path: Path) -> None:
    """Not from 0 on, but from what the meta-strategies earn: (3 - 1 - 1 + 1) / 4."""
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        for player in range(2):
            for place in range(2):
                store.policy_added(synthetic.policy(player, place))
        earned = np.array([3.0, -1.0, -1.0, 1.0])
        store.payoffs_recorded(np.array([*np.ndindex(2, 2)]), np.stack([earned, -earned], axis=1))
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=((0.5, 0.5),) * 2))
        store.commit("c1")
    answer = _answers(tmp_path / "run")
    assert answer.table is not None
    assert (answer.table.low, answer.table.middle, answer.table.high) == pytest.approx((-2.0, 0.5, 3.0))
    assert answer.table.middle_of == "what the meta-strategies earn against each other"
    assert answer.cycle is not None
    assert "blue in its column" in answer.cycle.meaning


def test_three_players_cycle_by_what_one_gains(tmp_path: Path) -> None:
    """Player 0 wants to agree with player 1, who wants to differ; player 2 has one policy."""
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run", players=3)) as store:
        for player, size in enumerate((2, 2, 1)):
            for place in range(size):
                store.policy_added(synthetic.policy(player, place))
        profiles = np.array([*np.ndindex(2, 2, 1)])
        earned = np.array([1.0, -1.0, -1.0, 1.0])
        store.payoffs_recorded(profiles, np.stack([earned, -earned, 0 * earned], axis=1))
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=((0.5, 0.5), (0.5, 0.5), (1.0,))))
        store.commit("c1")
    answer = _answers(tmp_path / "run")
    assert answer.cycle is not None
    assert len(answer.cycle.policies) == 4
    at = answer.cycle.policies.index("p0 / p0 / p0")
    assert answer.cycle.policies[(at + 1) % 4] == "p0 / p1 / p0", "player 1 leaves where both agree"
    assert answer.table is not None
    assert answer.table.others


def test_many_policies_are_cut_to_those_that_are_played_most(tmp_path: Path) -> None:
    n = 30
    row = [0.0] * n
    row[3], row[7], row[20] = 0.5, 0.3, 0.2
    answer = _answers(_exact(tmp_path / "run", np.zeros((n, n)).tolist(), [(row, row)]))
    assert answer.table is not None
    assert answer.table.rows.policies[:4] == ["p3", "p7", "p20", "p29"]
    assert (len(answer.table.rows.policies), answer.table.rows.count) == (12, 30)
    assert answer.table.rows.share[:4] == [0.5, 0.3, 0.2, 0.0]
    assert [(mixed.policies, mixed.rest) for mixed in answer.mixtures] == [(["p3", "p7", "p20"], 0.0)]


def test_the_panel_is_told_of_changes() -> None:
    assert PANELS["answers"] is answers
