"""What a page shows of a run, worked by hand from a small database."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.apps.ui.figures.base import MAX_POINTS, packed, thin, unpacked
from ludus.apps.ui.figures.meta_game import against, half_widths
from ludus.apps.ui.figures.meta_strategies import MAX_LAYERS, bands
from ludus.apps.ui.figures.panels import PANELS, changed, run_line
from ludus.apps.ui.figures.payoff_heat_map import EXACT
from ludus.core.errors import ConfigError
from ludus.core.jsonable import to_json
from ludus.core.types import Match
from ludus.runs.control import LiveOrder, Status, write_live_file
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Position, Reader
from ludus.storage.store import Store


def _panel(run_dir: Path, name: str, **query: str) -> Any:
    with Reader(run_dir) as reader:
        found = PANELS[name](reader, **query)
    json.loads(to_json(found))  # all of it has a form in JSON
    return found


def _small(run_dir: Path, population: tuple[int, int] = (0, 1)) -> Path:
    """Two policies per player; payoffs of player 0 are [[1, -2], [0.5, 4]]; meta-strategies (0.25, 0.75) and (0.5, 0.5)."""
    with Store.create(run_dir, synthetic.info(run_dir, population=population)) as store:
        for own in sorted(set(population)):
            for place in (0, 1):
                store.policy_added(synthetic.policy(own, place, generation=place))
        store.payoffs_recorded(
            np.array([[0, 0], [0, 1], [1, 0], [1, 1]]),
            np.array([[1.0, -1.0], [-2.0, 2.0], [0.5, -0.5], [4.0, -4.0]]),
        )
        store.ratings_recorded(0, {"p0": 1200.0})  # of generation 0
        store.generation = 1
        store.ratings_recorded(0, {"p0": 1400.0, "p1": 1600.0})
        marginals = ((0.25, 0.75), (0.5, 0.5))
        store.generation_done(GenerationRecord(0, 1.0, 100, None, marginals=((1.0,), (1.0,))))
        store.generation_done(GenerationRecord(1, 2.0, 200, 0.75, gains=(0.5, 0.25), marginals=marginals))
        store.event("training", "loss became NaN <script>alert(1)</script>", level="warning")
        store.event("run", "started")
        store.commit("g1")
    return run_dir


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be read only."""
    return _small(tmp_path_factory.mktemp("small") / "run")


def _played(run_dir: Path, results: dict[tuple[int, int], tuple[int, int, int]], **facts: object) -> Path:
    """A run whose three policies of one population have won, drawn and lost so often for player 0, by profile."""
    facts = {"population": (0, 0), "utility_range": ((-1.0, 1.0),) * 2, **facts}
    with Store.create(run_dir, synthetic.info(run_dir, **facts)) as store:
        for place in range(3):
            store.policy_added(synthetic.policy(0, place, generation=place))
        matches = []
        for k, (profile, (won, drawn, lost)) in enumerate(results.items()):
            n = won + drawn + lost
            mean = (won - lost) / n
            m2 = won + lost - n * mean**2
            seats = tuple(synthetic.policy(0, place).ref for place in profile)
            wins = ((won, drawn, lost), (lost, drawn, won))
            matches.append(Match(f"m{k}", profile, seats, n, np.array([mean, -mean]), np.array([m2, m2]), wins))
        store.matches_recorded(matches)
        store.commit("c1")
    return run_dir


def test_ranking_is_against_the_last_meta_strategy(small: Path) -> None:
    first, second = _panel(small, "ranking")
    # Player 0: p0 earns 0.5 * 1 - 0.5 * 2 = -0.5, p1 earns 0.25 + 2 = 2.25.
    assert [(row.policy, row.mean, row.half_width, row.probability, row.rating) for row in first.rows] == [
        ("p1", 2.25, 0.0, 0.75, 1600.0),
        ("p0", -0.5, 0.0, 0.25, 1400.0),
    ]
    # Player 1: p0 earns -(0.25 * 1 + 0.75 * 0.5) = -0.625, p1 earns -(0.25 * -2 + 0.75 * 4) = -2.5.
    assert [(row.policy, row.mean, row.rating) for row in second.rows] == [("p0", -0.625, None), ("p1", -2.5, None)]
    assert [row.start for row in second.rows] == ["random", "p0"]


def test_shared_population_is_ranked_once_over_its_seats(tmp_path: Path) -> None:
    (shared,) = _panel(_small(tmp_path / "run", population=(0, 0)), "ranking")
    assert shared.players == [0, 1]
    # Means of the two seats above: p1 (2.25 - 2.5) / 2, p0 (-0.5 - 0.625) / 2.
    assert [(row.policy, row.mean) for row in shared.rows] == [("p1", -0.125), ("p0", -0.5625)]
    assert [row.probability for row in shared.rows] == [0.625, 0.375]


def test_ratings_of_games_have_intervals(tmp_path: Path) -> None:
    run_dir = _played(tmp_path / "run", {(0, 1): (1, 0, 3), (1, 0): (3, 0, 1)})  # p1 won 6 of 8 over both seats
    (shared,) = _panel(run_dir, "ranking")
    rated = {row.policy: row for row in shared.rows}
    # With half a win and half a loss each against an average player, odds are (6 + x) / (2 + x): above 1, below 3.
    apart = rated["p1"].rating - rated["p0"].rating
    assert 0 < apart < 400 * np.log10(3)
    assert rated["p1"].rating_half_width > apart / 2 > 0
    assert (rated["p1"].games, rated["p2"].games) == (8, 0)
    assert rated["p2"].rating_half_width is None  # it has met nobody


def test_a_joint_meta_strategy(tmp_path: Path) -> None:
    """Player 0 earns 1 where the other two choose alike, as they always do: half of it, had each chosen by itself."""
    agree = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
    earned = (agree[:, 1] == agree[:, 2]).astype(np.float64)
    half = ((1.0, 0.0), (0.4, 0.6), (0.4, 0.6))
    with Store.create(tmp_path / "three", synthetic.info(tmp_path / "three", players=3)) as store:
        for player in range(3):
            for place in (0, 1):
                store.policy_added(synthetic.policy(player, place))
        store.payoffs_recorded(agree, np.stack([earned, 0 * earned, 0 * earned], axis=1))
        profiles, probabilities = np.array([[0, 0, 0], [0, 1, 1]], np.int32), np.array([0.4, 0.6])
        together = {"profiles": profiles, "probabilities": probabilities}
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=half, **together))
        store.commit("g0")
    joint = _panel(tmp_path / "three", "strategies").joint
    assert (joint.profiles, joint.probability) == ([["p0", "p1", "p1"], ["p0", "p0", "p0"]], [0.6, 0.4])
    assert (joint.count, joint.rest, joint.rows, joint.shares) == (2, 0.0, [], [])
    assert [row.mean for row in _panel(tmp_path / "three", "ranking")[0].rows] == pytest.approx([1.0, 1.0])
    table = _panel(tmp_path / "three", "payoffs", of="0", row="0", column="2", order="age")
    assert unpacked(table.mean) == pytest.approx(np.array([[0.4, 0.6]] * 2)), (
        "of one who is left: its share of the joint one"
    )
    assert table.others.startswith("Player 1 mixes by the joint meta-strategy of generation 0, ")
    with Store.create(tmp_path / "two", synthetic.info(tmp_path / "two")) as store:
        for player in range(2):
            for place in range(30):
                store.policy_added(synthetic.policy(player, place))
        profiles = np.array([[k, k + 1] for k in range(25)], np.int32)
        record = GenerationRecord(0, 1.0, 0, None, marginals=((1.0, *[0.0] * 29),) * 2)
        store.generation_done(replace(record, profiles=profiles, probabilities=np.full(25, 0.04)))
        store.commit("g0")
    joint = _panel(tmp_path / "two", "strategies").joint
    assert (len(joint.profiles), joint.count) == (20, 25)
    assert joint.rest == pytest.approx(0.2)
    assert (joint.rows[0], joint.columns[0], len(joint.rows), len(joint.columns)) == ("p0", "p1", 25, 25)
    assert np.array(joint.shares) == pytest.approx(0.04 * np.eye(25))


def test_convergence_strategies_and_notes(small: Path) -> None:
    convergence = _panel(small, "convergence")
    assert convergence.nash_conv == [None, 0.75]
    assert convergence.gains == [[None, 0.5], [None, 0.25]]
    assert convergence.seconds == [1.0, 2.0]
    strategies = _panel(small, "strategies")
    assert [[layer.values for layer in strategy.layers] for strategy in strategies.over] == [
        [[1.0, 0.25], [0.0, 0.75]],
        [[1.0, 0.5], [0.0, 0.5]],
    ]
    assert [(last.policies, last.probability) for last in strategies.last] == [
        (["p1", "p0"], [0.75, 0.25]),
        (["p0", "p1"], [0.5, 0.5]),
    ]
    overview = _panel(small, "overview")
    assert [(note.level, note.kind, note.text) for note in overview.notes] == [
        ("warning", "training", "loss became NaN <script>alert(1)</script>")
    ]
    assert (overview.state, overview.figures.policies, overview.figures.episodes) == ("interrupted", [2, 2], 200)
    assert (overview.progress.fraction, overview.progress.seconds_left) == (0.05, None)
    assert (overview.can.play, overview.can.tree) == (False, False)  # no weights lie there


def test_a_run_in_a_list(tmp_path: Path) -> None:
    run_dir = _small(tmp_path / "run")
    with Store.open(run_dir) as store:
        store.commit("g2")
        with Reader(run_dir) as reader:
            assert run_line(reader, "id", "name", None).state == "running"
            status = Status("s", "here", 1, "0.1.0", began=0.0, written=0.0, paused=True, doing="payoffs")
            write_live_file(run_dir, status)
            line = run_line(reader, "id", "name", "group")
    assert (line.id, line.group, line.state, line.doing) == ("id", "group", "paused", "payoffs")
    assert (line.policies, line.generation, line.return_, line.warnings) == (4, 1, None, 1)
    assert line.seconds_left == 19.0  # a generation took a second
    assert json.loads(to_json(line))["return"] is None  # two players
    assert LiveOrder("s").speed == 1.0


def test_a_run_of_matches_alone_is_as_far_as_they_are(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run", generations=0)) as store:
        store.commit("g0")
        write_live_file(
            store.run_dir, Status("s", "here", 1, "0.1.0", began=0.0, written=0.0, doing="payoffs", fraction=0.3)
        )
        progress = _panel(store.run_dir, "overview").progress
    assert (progress.fraction, progress.doing) == (0.3, "payoffs")


def test_a_learner_s_tasks_are_one_curve(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=2)
    learning = _panel(run_dir, "learning")
    first, second = learning.learners
    assert (first.learner, second.learner, learning.learners_in_all) == ("population 0", "population 1", 2)
    assert first.over["decisions"] == [50.0 * k for k in range(1, 13)]  # six iterations in each of two generations
    assert first.mean == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0] * 2
    assert first.spread == [round(2**0.5, 5)] * 12  # k and k + 2
    assert list(first.metrics) == ["policy loss", "episode length", "steps per second", "rows"]
    assert first.metrics["steps per second"] == [100.0] * 12
    assert first.in_flight  # its tasks were started, and none is done
    (one,) = _panel(run_dir, "learning", task="response-1-2").learners
    assert (one.population, one.over["decisions"]) == (1, [50.0 * k for k in range(1, 7)])
    assert len(_panel(run_dir, "learning", population="1", policy="1-2").learners) == 1


def test_three_players_mix_the_third_out(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=3, players=3)
    table = _panel(run_dir, "payoffs", of="2", row="2", column="0", order="age")
    assert table.choices == [(0, 0, 1), (1, 0, 1), (0, 0, 2), (2, 0, 2), (1, 1, 2), (2, 1, 2)]
    with Reader(run_dir) as reader:
        mean, last = reader.payoffs().mean, reader.generations()[-1].marginals
    expected = np.einsum("ijk,j->ki", mean[2], last[1])
    np.testing.assert_allclose(unpacked(table.mean), expected, rtol=1e-5)
    assert (unpacked(table.count) == EXACT).all()
    assert table.others == "Player 1 mixes by the meta-strategy of generation 3."


def test_those_who_are_left_out_mix_together_where_their_strategy_is_joint(tmp_path: Path) -> None:
    """Players 2 and 3 always choose alike, and player 0 earns 1 where they do: 0.5, had each chosen by itself."""
    run_dir = tmp_path / "four"
    profiles = np.argwhere(np.ones((2, 2, 2, 2), np.bool_))
    earned = (profiles[:, 2] == profiles[:, 3]).astype(np.float64)
    with Store.create(run_dir, synthetic.info(run_dir, players=4)) as store:
        for player in range(4):
            for place in (0, 1):
                store.policy_added(synthetic.policy(player, place))
        store.payoffs_recorded(profiles, np.stack([earned, *[0 * earned] * 3], axis=1))
        together = {"profiles": np.array([[0, 0, 0, 0], [0, 1, 1, 1]], np.int32), "probabilities": np.array([0.5, 0.5])}
        marginals = ((1.0, 0.0), *[(0.5, 0.5)] * 3)
        store.generation_done(GenerationRecord(0, 1.0, 0, None, marginals=marginals, **together))
        store.commit("g0")
    table = _panel(run_dir, "payoffs", of="0", row="1", column="0", order="age")
    assert unpacked(table.mean) == pytest.approx(np.ones((2, 2)))
    assert (unpacked(table.count) == EXACT).all()
    assert table.others.startswith("Players 2, 3 mix together, by the joint meta-strategy of generation 0, ")


def test_payoffs_in_their_orders(small: Path) -> None:
    table = _panel(small, "payoffs")  # zero-sum: player 1's is its negative
    assert (table.choices, table.order, table.rows, table.columns) == (
        [(0, 0, 1)],
        "rating",
        ["p1", "p0"],
        ["p0", "p1"],
    )
    assert unpacked(table.mean).tolist() == [[0.5, 4.0], [1.0, -2.0]]
    assert unpacked(table.half_width).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert (table.row_index, table.utility) == ([1, 0], (-13.0, 13.0))
    part = _panel(small, "payoffs", order="age", rows="1:2", columns="0:1")
    assert (part.rows, part.columns, part.rows_in_all, unpacked(part.mean).tolist()) == (["p1"], ["p0"], 2, [[0.5]])


def test_a_single_player_s_policies_are_rows_of_one_column(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    facts = synthetic.info(run_dir, 1, zero_sum=False, utility_range=((-np.inf, np.inf),))
    with Store.create(run_dir, facts) as store:
        for place in range(3):
            store.policy_added(synthetic.policy(0, place, generation=place))
            store.metrics_recorded("generations", place, {"response/0/return": 5.0 * place})
        store.commit("c0")
        first = _panel(run_dir, "answers").improvement
        assert (first.now.value, first.of) == (10.0, "of policy p2, at the end of its training")
        store.matches_recorded(
            [
                Match(f"m{k}", (k,), (synthetic.policy(0, k).ref,), 4, np.array([10.0 * k]), np.array([12.0]))
                for k in (0, 1)
            ]
        )
        store.commit("c1")
    table = _panel(run_dir, "payoffs", order="age")
    assert (table.rows, table.columns, table.choices) == (["p0", "p1", "p2"], ["return"], [(0, 0, 0)])
    assert unpacked(table.mean)[:2].tolist() == [[0.0], [10.0]]
    assert unpacked(table.half_width)[0, 0] == pytest.approx(1.96, rel=1e-4)
    assert unpacked(table.count).tolist() == [[4], [4], [0]]
    for name in ("ranking", "responses", "embedding", "diversity", "lineage"):
        _panel(run_dir, name)
    assert _panel(run_dir, "policy", policy="p1").results[0].against == []


def test_a_shared_population_is_one_table_over_both_seats(tmp_path: Path) -> None:
    # (0, 1): player 0 earns 0.5 in 4 games. (1, 0): player 0 earns -0.25 in 8, so p0 earns 0.25. (2, 0): 1 in one game.
    results = {(0, 1): (3, 0, 1), (1, 0): (2, 2, 4), (2, 0): (1, 0, 0)}
    table = _panel(_played(tmp_path / "run", results), "payoffs", order="age")
    assert unpacked(table.mean)[:2, :2].tolist() == [[0.0, 0.375], [-0.375, 0.0]]  # nobody beats itself
    assert unpacked(table.mean)[2, 0] == 1.0
    assert np.isnan(unpacked(table.mean)[1, 2])
    assert unpacked(table.count).tolist() == [[EXACT, 12, 1], [12, EXACT, 0], [1, 0, EXACT]]
    half = unpacked(table.half_width)
    assert 0.3 < half[0, 1] == half[1, 0] < 2.0
    assert np.isnan(half[1, 2])


def test_a_single_unit_says_nothing_of_its_spread_and_is_not_exact(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    unbounded = ((-np.inf, np.inf),) * 2
    with Store.create(run_dir, synthetic.info(run_dir, population=(0, 0), utility_range=unbounded)) as store:
        for place in range(2):
            store.policy_added(synthetic.policy(0, place, generation=place))
        seats = tuple(synthetic.policy(0, place).ref for place in range(2))
        store.matches_recorded([Match("m", (0, 1), seats, 1, np.array([3.0, -3.0]), np.zeros(2))])
        store.commit("c1")
    table = _panel(run_dir, "payoffs", order="age")
    assert unpacked(table.mean).tolist() == [[0.0, 3.0], [-3.0, 0.0]]
    np.testing.assert_array_equal(unpacked(table.half_width), [[0.0, np.nan], [np.nan, 0.0]])


def test_a_hole_matters_only_where_it_has_weight() -> None:
    mean = np.array([[1.0, np.nan], [3.0, 4.0]])
    np.testing.assert_allclose(against(mean, [np.array([0.5, 0.5]), np.array([1.0, 0.0])], keep=(0,)), [1.0, 3.0])
    np.testing.assert_allclose(against(mean, [np.array([0.5, 0.5]), np.array([0.5, 0.5])], keep=(0,)), [np.nan, 3.5])


def test_intervals_where_returns_have_no_bound_are_normal() -> None:
    count, exact = np.array([4, 1, 0, 7]), np.array([False, False, False, True])
    # 1.96 sqrt(12 / (4 * 3)) = 1.96; one unit says nothing about its spread.
    half = half_widths(count, np.zeros(4), np.array([12.0, 0.0, 0.0, 0.0]), exact, (-np.inf, np.inf))
    np.testing.assert_allclose(half, [1.96, np.nan, np.nan, 0.0], rtol=1e-4)


def test_intervals_of_equal_results_are_equal() -> None:
    count, mean = np.array([32, 1000, 32]), np.array([0.5, 0.5, 0.5])
    half = half_widths(count, mean, 0.75 * count, np.zeros(3, np.bool_), (-1.0, 1.0))
    assert half[0] == half[2] > half[1] > 1.96 * (0.75 / 1000) ** 0.5  # wider than one that is looked at once


def test_many_policies_share_bands(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    size = 5 * MAX_LAYERS
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        marginal = tuple(np.linspace(1, 2, size) / np.linspace(1, 2, size).sum())
        store.generation_done(GenerationRecord(0, 1.0, 0, 1.0, marginals=(marginal, (1.0,))))
        store.commit("g0")
    layers = _panel(run_dir, "strategies").over[0].layers
    assert len(layers) == MAX_LAYERS
    assert layers[0].label.startswith("#0 … #")
    assert sum(layer.values[0] for layer in layers) == pytest.approx(1.0, abs=1e-4)
    assert (
        max(layer.values[0] for layer in layers) < 1.5 / MAX_LAYERS
    )  # nearly all are small: neighbours together, no "others"


def test_bands_are_neighbours_of_about_equal_mass() -> None:
    # Five policies with mass, two bands: 1 + 1 + 2 on the left of the half of 8, 3 + 1 on the right.
    assert bands(np.array([1.0, 0.0, 1.0, 2.0, 3.0, 1.0]), 2) == [(0, 3), (4, 5)]
    assert bands(np.array([0.5, 0.0, 0.5]), 2) == [(0, 0), (2, 2)]
    assert bands(np.zeros(3), 2) == []


def test_thinning_keeps_first_and_last() -> None:
    records = [GenerationRecord(k, float(k), 0) for k in range(5000)]
    kept = thin(records, MAX_POINTS)
    assert (len(kept), kept[0].number, kept[-1].number) == (MAX_POINTS, 0, 4999)


def test_lineage_says_whom_a_policy_met(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=2)  # whose tasks have met nobody that is stored
    first, second = _panel(run_dir, "lineage").populations
    assert [(m.policy, m.parent and m.parent.policy, m.start) for m in first.members] == [
        ("p0", None, "random"),
        ("p1", "p0", "last"),
        ("p2", "p1", "last"),
    ]
    with Reader(run_dir) as reader:
        marginals = reader.marginals([1])[1]
    met = {one.policy: one.probability for one in first.members[2].opponents}
    assert met == pytest.approx({"p0": marginals[1][0], "p1": marginals[1][1]}, abs=1e-5)
    assert [one.player for one in second.members[2].opponents] == [0, 0]
    assert first.members[2].derived


def test_a_policy(small: Path) -> None:
    found = _panel(small, "policy", population="0", policy="p0")
    assert (found.parent, found.children, found.start, found.players) == (None, ["p1"], "random", [0])
    assert [(r.against, r.mean, r.half_width, r.exact, r.wins) for r in found.results] == [
        (["p0"], 1.0, 0.0, True, None),
        (["p1"], -2.0, 0.0, True, None),
    ]
    assert (found.generations, found.probability, found.rating) == ([0, 1], [1.0, 0.25], 1400.0)
    assert found.spec.config == {"body": {"kind": "mlp", "hidden": [64, 64]}}
    with pytest.raises(ConfigError, match=r"population 0 has no policy 'p7' .known: p0, p1"):
        _panel(small, "policy", policy="p7")


def test_a_policy_s_results_are_over_both_seats_of_a_shared_population(tmp_path: Path) -> None:
    run_dir = _played(tmp_path / "run", {(0, 1): (3, 0, 1), (1, 0): (2, 2, 4)})
    (result,) = _panel(run_dir, "policy", policy="p0").results
    assert (result.against, result.mean, result.n, result.wins) == (["p1"], 0.375, 12, (7, 2, 3))


def test_throughput_by_barriers_and_by_generations(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.generation_done(synthetic.generation(0, (1, 1), nash_conv=None))  # after 0.8 seconds
        times = {"seconds/learning": 3.0, "seconds/environment": 1.0, "rollout/env_steps": 80.0}
        store.metrics_recorded("generations", 0, times)
        store.commit("g0")
        found = _panel(run_dir, "throughput")
        assert found.shares == {"environment": [0.25], "learning": [0.75]}
        assert (found.seconds, found.steps_per_second, found.lag) == ([0.8], [100.0], None)
        first = {"seconds": 10.0, "wall": 10.0, "env_steps": 500.0, "seconds/learning": 4.0, "seconds/waiting": 4.0}
        store.metrics_recorded("barriers", 1, first)
        store.metrics_recorded("barriers", 2, {"seconds": 12.0, "wall": 2.0, "env_steps": 40.0, "lag": 1.5})
        store.commit("g1")
    found = _panel(run_dir, "throughput")
    assert found.shares == {"waiting": [0.4, 0.0], "learning": [0.4, 0.0], "rest": [0.2, 1.0]}
    assert (found.seconds, found.steps_per_second, found.lag) == ([10.0, 12.0], [50.0, 20.0], [None, 1.5])


def test_events_and_deaths(tmp_path: Path) -> None:
    run_dir = _small(tmp_path / "run")
    with Store.open(run_dir) as store:
        store.event("worker", "worker 3 died", level="warning")
        store.commit("g2")
    newest = _panel(run_dir, "events", limit="2")
    assert [line.text for line in newest.events] == ["started", "worker 3 died"]
    assert _panel(run_dir, "events", after=str(newest.last)).events == []
    assert [line.text for line in _panel(run_dir, "events", after="1").events] == ["started", "worker 3 died"]
    parts = _panel(run_dir, "parts")
    assert (parts.parts, [death.text for death in parts.deaths]) == ([], ["worker 3 died"])


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        store.commit("g0")
        for name in sorted(set(PANELS) - {"policy"}):
            _panel(tmp_path / "run", name)
    assert _panel(tmp_path / "run", "convergence").generation == []


@pytest.mark.parametrize(
    ("name", "query", "said"),
    [
        ("overview", {"x": "1"}, "it takes none"),
        ("events", {"limits": "1"}, "did you mean 'limit'"),
        ("events", {"limit": "1001"}, "from 1 to 1000"),
        ("events", {"after": "-1"}, "whole number"),
        ("payoffs", {"order": "name"}, "expected one of rating, age, cluster"),
        ("payoffs", {"row": "1", "column": "1"}, "two different players"),
        ("payoffs", {"row": "2"}, "from 0 to 1"),
        ("payoffs", {"rows": "3"}, "as in 0:100"),
        ("policy", {}, "expected the id of one"),
        ("policy", {"population": "2", "policy": "p0"}, "from 0 to 1"),
    ],
)
def test_panels_reject_invalid_queries(small: Path, name: str, query: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _panel(small, name, **query)


def test_changed_tables_invalidate_their_panels() -> None:
    before = Position(1, 4, 9.0, 10, 20, -1, 3, 7, 0)
    assert changed(before, Position(1, 4, 9.0, 10, 20, -1, 3, 7, 5)) == frozenset()
    event = Position(1, 5, 9.5, 10, 20, -1, 3, 8, 1)
    assert changed(before, event) == {"events", "parts", "overview", "answers", "learning", "throughput", "policy"}
    match = Position(1, 5, 9.5, 10, 21, -1, 3, 7, 1)
    assert {"payoffs", "ranking", "responses", "statistics"} <= changed(before, match)
    assert not {"events", "convergence", "strategies"} & changed(before, match)
    assert {"convergence", "strategies", "ranking"} <= changed(before, Position(1, 5, 9.5, 10, 20, -1, 4, 7, 1))
    ended, rewound = Position(2, 4, 9.0, 10, 20, -1, 3, 7, 1), Position(1, 3, 8.0, 10, 20, -1, 3, 7, 1)
    assert changed(before, ended) == changed(before, rewound) == frozenset(PANELS)


def test_matrices_are_packed_and_keep_what_is_not_known() -> None:
    assert packed(np.array([[1.0, np.nan]]), "f4").data == "AACAPwAAwH8="
    assert unpacked(packed(np.array([1, EXACT]), "u4")).tolist() == [1, EXACT]
