"""Tournaments, played and computed: means that hold, seats, resuming, and what bots do wrong."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import chdir, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import ludus
from ludus.core.errors import ConfigError, PolicyError, RunError, ScenarioError
from ludus.core.types import Match
from ludus.envs.config import Environment, unseen_options
from ludus.envs.registry import make_env
from ludus.evaluation.policies import PolicyQuery, identity, require_same_game
from ludus.policies.actor_critic import initial_weights
from ludus.policies.file import load_policy, save_policy
from ludus.policies.specs import gru_spec, mlp_spec, tabular_spec
from ludus.tournament import run as tournament_run
from ludus.tournament.entrants import _common_game, read_field, run_at
from ludus.tournament.run import Options, exact_tournament, play_tournament, run_tournament
from ludus.tournament.tournament_report import TournamentReport
from ludus.tournament.tournament_store import FILE, TournamentStore

KUHN = Environment(id="openspiel/kuhn_poker", num_envs=16)
pytestmark = pytest.mark.usefixtures("bots_here")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of exact responses on Kuhn poker: "one" (3 generations), "two" (2)."""
    folder = tmp_path_factory.mktemp("runs")
    for name, generations in (("one", 3), ("two", 2)):
        scenario = ludus.PSRO(env=KUHN, algorithm="exact", generations=generations)
        ludus.run(scenario, run_dir=folder / name, report=False)
    return folder


def play(*entrants: str, to: Path, env: Environment | None = None, **options) -> TournamentReport:
    return play_tournament(entrants, to, env=env, options=Options(**{"episodes": 40, **options}))


def means(report: TournamentReport) -> dict[str, float]:
    return {standing.name: standing.mean for standing in report.standings}


def names_of(match: Match) -> tuple[str, ...]:
    return tuple(ref.policy for ref in match.seats)


def numbers(report: TournamentReport) -> dict[str, tuple[int, list[float], list[float]]]:
    return {r.pairing.id: (r.n, r.mean.tolist(), r.m2.tolist()) for r in report.results}


# ---------------------------------------------------------------------------------------------- by hand


def test_two_bots_by_hand(tmp_path: Path) -> None:
    """Who always passes loses one to who always bets, in either seat; a rating cannot say that it was every time."""
    report = play("own_bots:First", "own_bots:First,last=true", to=tmp_path, env=KUHN, episodes=20)
    best, worst = report.standings
    assert (best.name, best.mean, best.half_width) == ("own_bots:First,last=true", 1.0, 0.0)
    assert (worst.won, worst.drawn, worst.lost, worst.episodes) == (0, 0, 40, 40)
    assert report.cross[0, 1] == 1.0
    assert np.isnan(report.cross[0, 0])
    assert best.low > worst.high
    (result,) = report.results
    assert [names_of(order) for order in result.matches] == [result.pairing.entrants, result.pairing.entrants[::-1]]
    assert result.matches[0].wins == ((0, 0, 20), (20, 0, 0))


def test_the_seats_of_a_deal_are_mirrored(tmp_path: Path) -> None:
    """Both bet always: a deal pays 2 to the higher card, in whichever seat it is, so over both seats every deal pays 0."""
    path = tmp_path / "bet.safetensors"
    enumeration = make_env(KUHN.id, num_envs=1).spec.enumeration
    assert enumeration is not None
    save_policy(path, tabular_spec(enumeration, (0, 1)), {"probs": np.tile([0.0, 1.0], (12, 1))})
    report = play(str(path), "own_bots:First,last=true", to=tmp_path / "t", env=KUHN)
    (result,) = report.results
    assert (result.mean.tolist(), result.m2.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    assert sum(result.matches[0].wins[0]) == 40
    assert 0 < result.matches[0].wins[0][0] < 40


def test_a_bot_sees_its_card(tmp_path: Path) -> None:
    """Against one who always bets, betting with the king alone wins 2 with the king, and loses 1 without."""
    report = play("own_bots:Honest", "own_bots:First,last=true", to=tmp_path, env=KUHN, episodes=200)
    (honest,) = [standing for standing in report.standings if standing.name == "own_bots:Honest"]
    assert (honest.drawn, honest.episodes) == (0, 400)
    assert 0.2 < honest.won / 400 < 0.47
    assert honest.mean == pytest.approx((2 * honest.won - honest.lost) / 400)


# ---------------------------------------------------------------------------------------------- played and computed


@pytest.fixture(scope="module")
def both(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TournamentReport, TournamentReport]:
    """The same tournament, played and computed."""
    texts = [
        "one",
        "two@newest",
        "one@0/0-2",
        "one@1/1-1",
        "two@0/0-1",
        "bot:random",
    ]
    with chdir(runs):  # names decide the luck, and should be the same wherever the test runs
        field = read_field(texts, env=None, find_run=run_at)
    played = run_tournament(field, tmp_path_factory.mktemp("both"), Options(episodes=2000))
    return played, exact_tournament(field)


def test_intervals_hold_what_is_computed(both: tuple[TournamentReport, TournamentReport]) -> None:
    played, exact = both
    expected = {r.pairing.id: r.mean for r in exact.results}
    assert played.env == "openspiel/kuhn_poker"
    held = [
        abs(mean - expected[r.pairing.id][k]) <= half + 1e-12
        for r in played.results
        for k, (mean, half) in enumerate(zip(r.mean, r.half_width, strict=True))
    ]
    assert len(held) == 28  # 15 pairs, but for the one of two policies of player 0
    assert sum(held) >= stats.binom.ppf(1e-4, 14, 0.95) * 2
    computed = means(exact)
    for standing in played.standings:
        assert abs(standing.mean - computed[standing.name]) <= 2 * standing.half_width


def test_policies_of_one_player_do_not_meet(both: tuple[TournamentReport, TournamentReport]) -> None:
    played, exact = both
    pair = {"one@0/0-2", "two@0/0-1"}
    for report in both:
        assert pair not in [set(r.pairing.entrants) for r in report.results]
        assert "some of the seats only" in report.notes[-1]
    place = [k for k, s in enumerate(played.standings) if s.name in pair]
    assert np.isnan(played.cross[place[0], place[1]])
    (mixed,) = [r for r in played.results if set(r.pairing.entrants) == {"one@0/0-2", "one@1/1-1"}]
    assert [names_of(order) for order in mixed.matches] == [("one@0/0-2", "one@1/1-1")]
    assert exact.episodes == 0


def test_means_of_meetings_have_equal_weight(both: tuple[TournamentReport, TournamentReport]) -> None:
    for report in both:
        for k, standing in enumerate(report.standings):
            row = report.cross[k][~np.isnan(report.cross[k])]
            assert standing.mean == pytest.approx(row.mean(), abs=1e-12)


def test_a_mixture_is_drawn_as_often_as_it_says(runs: Path, tmp_path: Path) -> None:
    """The value of a mixture against a mixture is the computed one; so it is neither its first nor its last member that plays."""
    field = read_field([f"{runs}/one", "bot:random"], env=None, find_run=run_at)
    report = run_tournament(field, tmp_path, Options(episodes=20_000))
    (exact,), (played,) = exact_tournament(field).results, report.results
    assert abs(exact.mean[0] - played.mean[0]) < 2 * played.half_width[0]
    assert played.half_width[0] < 0.02


# ---------------------------------------------------------------------------------------------- going on


@pytest.mark.slow
def test_the_same_whatever_it_is_cut_into(runs: Path, tmp_path: Path) -> None:
    """More entrants later, more episodes later, another number of environments: the same episodes."""
    memory = tmp_path / "memory.safetensors"
    spec = gru_spec(inputs=11, actions=2, hidden=4)
    save_policy(memory, spec, initial_weights(spec, np.random.default_rng(0)))
    names = [f"{runs}/one@newest", f"{runs}/two", str(memory), "own_bots:Drawn"]
    whole = play(*names, to=tmp_path / "whole", num_envs=64)
    play(*names[:2], to=tmp_path / "parts", num_envs=7, episodes=10)
    play(*names[1:], to=tmp_path / "parts", num_envs=3, episodes=30)
    parts = play(*reversed(names), to=tmp_path / "parts", num_envs=5)
    assert parts.episodes == whole.episodes == 6 * 2 * 40
    found, expected = numbers(parts), numbers(whole)
    assert found.keys() == expected.keys()
    for meeting, (n, mean, m2) in expected.items():
        assert found[meeting][0] == n
        np.testing.assert_allclose(found[meeting][1:], (mean, m2), atol=1e-12)


def test_stored_meetings_are_not_replayed(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (f"{runs}/one", "bot:random")
    first = play(*names, to=tmp_path)
    monkeypatch.setattr("ludus.tournament.run.RolloutManager", None)
    again = play(*names, to=tmp_path)
    assert numbers(again) == numbers(first)
    fewer = play(*names, to=tmp_path, episodes=10)
    assert numbers(fewer) == numbers(first)


def test_a_tournament_that_is_cut_short_goes_on(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (f"{runs}/one", f"{runs}/two", "bot:random")
    whole = play(*names, to=tmp_path / "whole", episodes=300)
    monkeypatch.setattr("ludus.tournament.run._BATCH", 200)

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_tournament(names, tmp_path / "cut", options=Options(episodes=300), tell=stop)
    told: list[tuple[int, int]] = []
    report = play_tournament(
        names, tmp_path / "cut", options=Options(episodes=300), tell=lambda done, total: told.append((done, total))
    )
    assert 0 < told[0][1] <= 1000  # of 1,800; the batch in which it was cut is played again
    assert told[-1][0] == told[-1][1]
    for meeting, (n, mean, m2) in numbers(whole).items():
        assert numbers(report)[meeting][0] == n
        np.testing.assert_allclose(numbers(report)[meeting][1:], (mean, m2), atol=1e-12)


def test_it_tells_how_far_it_is_within_what_is_stored_at_once(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 1e9)
    told: list[tuple[int, int]] = []
    options = Options(episodes=20, num_envs=8)
    play_tournament(
        (f"{runs}/one", f"{runs}/two"), tmp_path / "a", options=options, tell=lambda *done: told.append(done)
    )
    assert told == [
        (8, 40),
        (16, 40),
        (24, 40),
        (32, 40),
        (40, 40),
        (40, 40),
    ]  # 20 deals in both orders; once more as it is stored
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)
    told.clear()
    play_tournament(
        (f"{runs}/one", f"{runs}/two"), tmp_path / "b", options=options, tell=lambda *done: told.append(done)
    )
    assert len(told) > 12  # within requests of 8 episodes, too


def test_other_weights_under_a_name_are_refused(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "two", tmp_path / "run")
    file = tmp_path / "policy.safetensors"
    shutil.copy(runs / "one" / "policies" / "0" / "0-1.safetensors", file)
    play(str(file), "bot:random", to=tmp_path / "t", env=KUHN)
    before = (tmp_path / "t" / FILE).read_bytes()
    shutil.copy(runs / "one" / "policies" / "0" / "0-2.safetensors", file)
    with pytest.raises(RunError, match=r"policy.safetensors' is not what played under this name"):
        play(str(file), "bot:random", "bot:uniform_random", to=tmp_path / "t", env=KUHN)
    assert (tmp_path / "t" / FILE).read_bytes() == before


# ---------------------------------------------------------------------------------------------- games


@pytest.mark.parametrize("names", ["bot:random own_bots:First", "bot:random own_bots:First own_bots:Drawn"])
def test_three_players(tmp_path: Path, names: str) -> None:
    env = Environment(id="openspiel/kuhn_poker(players=3)")
    report = play(*names.split(), to=tmp_path, env=env, episodes=30)
    (result,) = report.results
    assert len(result.matches) == 6
    assert report.episodes == 180
    assert report.rating == ""
    total = sum(
        r * sum(names_of(o).count(n) for o in result.matches)
        for n, r in zip(result.pairing.entrants, result.mean, strict=True)
    )
    assert total == pytest.approx(0, abs=1e-9)  # zero-sum
    assert [s.mean for s in report.standings] == sorted((s.mean for s in report.standings), reverse=True)
    assert sum(s.episodes for s in report.standings) == 3 * 180
    for k, standing in enumerate(
        report.standings
    ):  # they meet once: what one earns against another is what it earns at all
        others = np.arange(len(report.standings)) != k
        assert report.cross[k, others] == pytest.approx(standing.mean)
        assert report.cross_half[k, others] == pytest.approx(standing.half_width)


def test_a_single_player(tmp_path: Path) -> None:
    report = play("bot:random", "own_bots:Pole", to=tmp_path, env=Environment(id="gymnasium/CartPole-v1", num_envs=8))
    assert [s.name for s in report.standings] == ["own_bots:Pole", "bot:random"]
    assert report.standings[0].mean > 30 > report.standings[1].mean > 15


def test_players_at_once(tmp_path: Path) -> None:
    report = play("bot:random", "bot:fixed_action_preference", to=tmp_path, env=Environment(id="openspiel/matrix_rps"))
    assert abs(report.standings[0].mean) < 0.5
    assert report.episodes == 40  # the players are interchangeable


def test_a_search_beats_chance(tmp_path: Path) -> None:
    env = Environment(id="openspiel/connect_four")
    report = play("bot:random", "bot:mcts,simulations=10", to=tmp_path, env=env, episodes=5, workers=2)
    assert report.standings[0].name == "bot:mcts,simulations=10"
    assert report.standings[0].won >= 8
    again = play("bot:random", "bot:mcts,simulations=10", to=tmp_path / "again", env=env, episodes=5)
    assert numbers(again) == numbers(report)


def test_a_table_against_a_search(tmp_path: Path) -> None:
    """Policies by ids and bots by states, in one vector. Whoever begins Nim with piles 1 and 3 can win; chance seldom does."""
    env = Environment(id="openspiel/nim(pile_sizes=1;3)")
    enumeration = env.make(num_envs=1).spec.enumeration
    assert enumeration is not None
    mask = enumeration.mask
    save_policy(
        tmp_path / "p.safetensors", tabular_spec(enumeration, (0, 1)), {"probs": mask / mask.sum(axis=1, keepdims=True)}
    )
    report = play(str(tmp_path / "p.safetensors"), "bot:mcts,simulations=50", to=tmp_path / "t", env=env)
    best, worst = report.standings
    assert best.name == "bot:mcts,simulations=50"
    (result,) = report.results
    first = next(order for order in result.matches if names_of(order)[0] == best.name)
    assert first.wins[0] == (40, 0, 0)
    assert worst.won > 0


# ---------------------------------------------------------------------------------------------- bots that do wrong


def test_matches_of_a_failing_bot_are_not_stored(tmp_path: Path) -> None:
    play("bot:random", "own_bots:First", to=tmp_path, env=KUHN)
    with pytest.raises(
        PolicyError, match=r"bot 'own_bots:Raises' failed as player .: Raises.act raised ValueError: no idea"
    ):
        play("bot:random", "own_bots:Raises", to=tmp_path, env=KUHN)
    with TournamentStore(tmp_path, game='{"id": "openspiel/kuhn_poker(players=2)"}', seed=0, entrants={}) as store:
        assert list(store.stored()) == ['["bot:random", "own_bots:First"]']


def test_a_bot_that_changes_its_state_changes_nothing(tmp_path: Path) -> None:
    env = Environment(id="openspiel/tic_tac_toe", tree="off")
    report = play("own_bots:Meddler", "own_bots:ByState", to=tmp_path, env=env, episodes=4)
    assert [s.won for s in report.standings] == [4, 4]  # the first player wins with the first squares


# ---------------------------------------------------------------------------------------------- who is refused


def refused(*entrants: str, env: Environment | None = None) -> None:
    read_field(entrants, env=env, find_run=run_at)


def test_who_is_no_entrant(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'nobody' is no entrant: .* An entrant is RUN, RUN@meta, .*FILE"):
        refused("nobody", f"{runs}/one")
    with pytest.raises(
        ConfigError, match=r"one@0/0-9': one has no '0/0-9' to be named after the @; did you mean '0/0-"
    ):
        refused(f"{runs}/one@0/0-9")
    with pytest.raises(ConfigError, match="'bot:random' was given twice"):
        refused("bot:random", "bot:random")
    with pytest.raises(ConfigError, match="the game is not known; say which with --env"):
        refused("bot:random", "own_bots:First")
    with pytest.raises(ConfigError, match="bot:random has no options"):
        refused("bot:random,seed=1", env=KUHN)
    with pytest.raises(PolicyError, match=r"missing.safetensors' cannot be read"):
        refused(str(tmp_path / "missing.safetensors"), env=KUHN)


def test_policies_of_another_game(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one' plays openspiel/kuhn_poker, and --env plays openspiel/leduc_poker"):
        refused(f"{runs}/one", env=Environment(id="openspiel/leduc_poker"))
    file = f"{runs}/one/policies/0/0-1.safetensors"
    with pytest.raises(ConfigError, match=r"0-1.safetensors' plays openspiel/kuhn_poker"):
        refused(file, env=Environment(id="openspiel/leduc_poker"))
    strange = tmp_path / "strange.safetensors"
    spec = mlp_spec(inputs=7, actions=2, hidden=[3])
    save_policy(strange, spec, initial_weights(spec, np.random.default_rng(0)))
    with pytest.raises(PolicyError, match=r"policy file '.*strange.safetensors' does not fit openspiel/kuhn_poker: "):
        refused(str(strange), env=KUHN)
    with pytest.raises(ScenarioError, match="'bot:mcts' cannot play openspiel/kuhn_poker: bot 'mcts' searches"):
        refused(f"{runs}/one", "bot:mcts")


def test_random_has_two_names() -> None:
    one, other = read_field(["random", "bot:random"], env=KUHN, find_run=run_at).entrants
    assert (one.sha256, one.has_bots, len(one.seats)) == (other.sha256, False, 2)


def test_the_same_game_in_other_words(runs: Path) -> None:
    field = read_field(
        [f"{runs}/one"], env=Environment(id="openspiel/kuhn_poker(players=2)", num_envs=4), find_run=run_at
    )
    assert field.spec.id == "openspiel/kuhn_poker"


def test_identity_of_a_tournament_game() -> None:
    """Of a tournament also what is counted and paid; of opponents only what their players see."""

    def football(**options: Any) -> Environment:
        return Environment(id="football/5_vs_5", options={"sides": "both", **options})

    plain, seen = identity(football()), identity(football(), without=unseen_options())
    for options in ({"render": "engine"}, {"state": False}):
        assert identity(football(**options)) == plain
    for options in ({"statistics": []}, {"rewards": {"win": 1}}):
        assert identity(football(**options)) != plain
        assert identity(football(**options), without=unseen_options()) == seen
    assert identity(football(masks=None), without=unseen_options()) != seen
    other = PolicyQuery("other", run=SimpleNamespace(env=football(statistics=[], rewards={"win": 1})))
    wins = PolicyQuery("wins", run=SimpleNamespace(env=football(rewards={"win": 1})))
    assert _common_game([wins], None) == _common_game([wins, wins], None) == football(rewards={"win": 1})
    for entrants in ([wins, PolicyQuery("goals", run=SimpleNamespace(env=football()))], [wins]):
        assert _common_game(entrants, None if len(entrants) > 1 else football()) == football()
    with pytest.raises(ConfigError, match=r"'wins' plays football/5_vs_5 .* and 'other' plays .*statistics"):
        _common_game([wins, other], None)
    # What `rewards` means in an environment of one's own is not known: nothing of it is left out.
    mine = [
        PolicyQuery(f"own{k}", run=SimpleNamespace(env=Environment(id="own_env:Env", options={"rewards": k})))
        for k in (1, 2)
    ]
    with pytest.raises(ConfigError, match=r"'own1' plays own_env:Env .* and 'own2' plays"):
        _common_game(mine, None)
    require_same_game(other, football(rewards={"score": 1, "checkpoints": 0.1}), "this")
    with pytest.raises(ScenarioError, match=r"'other' plays football/5_vs_5 {.*}, and this football/5_vs_5 {.*masks"):
        require_same_game(other, football(masks="tactical"), "this")


def test_a_file_plays_where_its_run_played_it(runs: Path, tmp_path: Path) -> None:
    inside = f"{runs}/one/policies/1/1-1.safetensors"
    outside = tmp_path / "1-1.safetensors"
    shutil.copy(inside, outside)
    field = read_field([inside, str(outside), f"{runs}/one@1/1-1", "bot:random"], env=None, find_run=run_at)
    able = [[seat is not None for seat in entrant.seats] for entrant in field.entrants]
    assert able == [[False, True], [False, True], [False, True], [True, True]]
    assert load_policy(outside).spec.kind == "tabular"


def test_unavailable_tournament_results_are_rejected(tmp_path: Path) -> None:
    field = read_field(["bot:random", "own_bots:First"], env=KUHN, find_run=run_at)
    with pytest.raises(ConfigError, match="'own_bots:First' is a bot, or has memory"):
        exact_tournament(field)
    large = read_field(
        ["bot:random", "bot:uniform_random"], env=Environment(id="openspiel/connect_four"), find_run=run_at
    )
    with pytest.raises(ConfigError, match="connect_four is not compiled into a tree"):
        exact_tournament(large)


def test_impossible_options(tmp_path: Path) -> None:
    for options, words in (({"episodes": 1}, "at least 2"), ({"deadline": 0.0}, "positive deadline")):
        with pytest.raises(ConfigError, match=words):
            play("bot:random", "random", to=tmp_path, env=KUHN, **options)
    assert not (tmp_path / FILE).exists()


@pytest.mark.slow
def test_a_command_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Its processes end with it, and nothing is lost or counted twice."""
    entrants = ["bot:random", "bot:mcts,simulations=100"]
    options = ["--env", "openspiel/connect_four", "--episodes", "60", "--workers", "2", "--dir", str(tmp_path / "t")]
    program = "import sys; from ludus.cli.main import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-c", program, "tournament", *entrants, *options]
    killed = subprocess.Popen(line, cwd=tmp_path, process_group=0)
    until = time.monotonic() + 120
    while time.monotonic() < until and not stored(tmp_path / "t" / FILE):
        time.sleep(0.05)
    children = [int(pid) for pid in Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()]
    killed.kill()
    killed.wait()
    before = stored(tmp_path / "t" / FILE)
    assert 0 < before < 60
    assert len(children) == 2
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    subprocess.run(line, cwd=tmp_path, check=True)
    assert stored(tmp_path / "t" / FILE) == 60
    env = Environment(id="openspiel/connect_four")
    found, expected = (play(*entrants, to=tmp_path / folder, env=env, episodes=60) for folder in ("t", "here"))
    assert found.results[0].n == expected.results[0].n == 60
    np.testing.assert_allclose(found.results[0].m2, expected.results[0].m2, atol=1e-12)
    assert found.standings[0].won == expected.standings[0].won


def stored(file: Path) -> int:
    """Deals in a tournament's database."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        try:
            return int(db.execute("SELECT COALESCE(SUM(n), 0) FROM pieces").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def test_processes_that_play_are_watched(tmp_path: Path) -> None:
    """One that is stuck is made again, and whoever plays is told of deaths."""
    field = read_field(["random", "bot:random"], env=KUHN, find_run=run_at)
    facts = {e.name: (e.sha256, e.detail) for e in field.entrants}
    with TournamentStore(tmp_path, game=field.game, seed=0, entrants=facts) as store:
        options = tournament_run.Options(runtime="ludus.runtime.inprocess:InProcess")
        play = tournament_run._Play(field, options, store, None)
        play._rollouts = play._start_rollouts(10)
        assert play._rollouts._watch._deadline == 600.0
        for tell in (play._runtime.tell, play._rollouts._tell):  # type: ignore[union-attr]
            with pytest.warns(UserWarning, match="worker 3 died"):
                tell("worker 3 died")
        play.close()
