"""Policies through a zoo: what is pulled plays as what was pushed, to the bit, and is used wherever a run's policies are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import run_tools as tools

import ludus
from ludus.apps.hub import zoo
from ludus.apps.hub.zoo_files import read_content, write_entry
from ludus.cli.main import main
from ludus.core.errors import ConfigError, LudusError, PolicyError, RunError, ScenarioError
from ludus.core.types import Match, NamedStatistics, PolicyRef, PolicySpec
from ludus.evaluation.evaluate import evaluate_run
from ludus.evaluation.policies import parse_policy_name
from ludus.metagame.population.base import Lineage, PolicyRecord
from ludus.policies.base import Policy
from ludus.policies.file import digest_of
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.manifest import Counted, Manifest, read_manifest
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import EXPERIMENT, MANIFEST, find_run, zoo_entries
from ludus.storage.stored_run import StoredRun, open_run
from ludus.tournament.entrants import read_field

KUHN = "openspiel/kuhn_poker"
BLOTTO = "openspiel/blotto(coins=4,fields=2)"
TINY = {"kind": "ppo", "batch": 32, "epochs": 1, "hidden": [4]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: "exact" (PSRO on Kuhn poker's tree) and "played" (both seats share a population, networks, payoffs by playing); their zoo."""
    folder = tmp_path_factory.mktemp("made")
    ludus.run(
        ludus.PSRO(env=KUHN, algorithm="exact", meta_solver="nash", generations=3),
        run_dir=folder / "exact",
        report=False,
    )
    shared = ludus.PSRO(
        env={"id": BLOTTO, "num_envs": 16},
        algorithm=TINY,
        response={"episodes": 64},
        evaluation={"payoffs": "simulate", "episodes": 40},
        mode="explore",
        generations=2,
    )
    ludus.run(shared, run_dir=folder / "played", report=False)
    assert open_run(folder / "played").population == (0, 0)
    ludus.push(str(folder / "exact"), folder / "zoo", members=True)
    ludus.push(str(folder / "played"), folder / "zoo", members=True, note="CC0")
    return folder


@pytest.fixture(autouse=True)
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)


def weights(policy: Policy) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in policy.weights().items()}


def altered(folder: Path, **changes: Any) -> None:
    """Signed again by somebody else, with other fields of its game."""
    manifest = read_manifest(folder)
    game = manifest.game.model_copy(update=changes)
    (folder / MANIFEST).write_bytes(manifest.model_copy(update={"game": game}).signed())


# ---------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("run", ["exact", "played"])
def test_push_pull_round_trip(run: str, tmp_path: Path) -> None:
    """Its policies, who they are, their mixture, and what was known of them: equal to the bit."""
    pulled = ludus.pull(f"zoo/{run}", tmp_path / "here")
    old, new = StoredRun(Path(run)), open_run(pulled.folder)
    assert (pulled.warnings, pulled.folder) == ((), tmp_path / "here")
    assert list(new.records) == list(old.records)
    for ref in old.records:
        assert digest_of(new.policy(ref)) == digest_of(old.policy(ref))
        assert new.file(ref).read_bytes() == old.file(ref).read_bytes()
    assert [m.tobytes() for m in new.solution.strategies] == [m.tobytes() for m in old.solution.strategies]
    assert (new.best, new.generation, new.env) == (old.best, old.generation, old.env)
    with Reader(Path(run)) as before, Reader(new.folder) as after:
        was, is_ = before.payoffs(), after.payoffs()
        for name in ("mean", "count", "m2", "exact"):
            np.testing.assert_array_equal(getattr(is_, name), getattr(was, name))
        assert (is_.utility_range, is_.zero_sum, is_.population) == (was.utility_range, was.zero_sum, was.population)
        first, last = before.last_generation(), after.last_generation()
        assert first is not None
        assert last is not None
        assert (last.nash_conv, last.gains, last.values) == (first.nash_conv, first.gains, first.values)
    a, b = (ludus.rate_run(folder, ["mean_payoff"]).tables["mean_payoff"] for folder in (run, new.folder))
    np.testing.assert_array_equal(a.rating, b.rating)


@pytest.mark.parametrize("what", ["", "@meta", "@2", "@best", "@newest", "@0/0-2", "@1/1-1"])
def test_every_name_of_a_policy_can_be_pushed(what: str, tmp_path: Path) -> None:
    """Kuhn poker, exact: what the entry comes to is what was named, and answers as that does in every information state."""
    entry = ludus.push(f"exact{what}", tmp_path / "zoo", name="entry")
    before, after = open_run("exact"), open_run(entry.folder)
    named = zoo.policy_probabilities(parse_policy_name(f"exact{what}", find_run, open_run), before)
    pushed = zoo.policy_probabilities(parse_policy_name(str(entry.folder), find_run, open_run), after)
    assert pushed == [list(some) for some in named]
    made = before.env.make(num_envs=1)
    tree = made.spec.enumeration
    made.close()
    assert tree is not None
    for player, some in enumerate(pushed):
        for ref, _ in some:
            ours, theirs = (run.policy(ref).tabulate(tree, player, mode=ref.mode) for run in (after, before))
            assert ours is not None
            assert theirs is not None
            assert ours.tobytes() == theirs.tobytes()
    if what in ("@0/0-2", "@1/1-1"):
        assert after.lacking == [1 - int(what[1])]
    assert list(after.records) == [ref for ref in before.records if any(ref == r for some in pushed for r, _ in some)]


def test_a_network_answers_as_before(tmp_path: Path) -> None:
    """From the zoo where it lies, and pulled: actions and log-probabilities of 64 rows."""
    ludus.push("played@0/0-2", tmp_path / "zoo", name="one")
    ludus.pull(tmp_path / "zoo/one", tmp_path / "here")
    rng = np.random.default_rng(1)
    env = open_run("played").env.make(num_envs=1)
    rows = rng.normal(size=(64, *env.spec.agents[0].observation.shape)).astype(np.float32)  # type: ignore[misc]
    env.close()
    ref = PolicyRef(0, "0-2")
    policies = [open_run(folder).policy(ref) for folder in ("played", tmp_path / "zoo/one", tmp_path / "here")]
    noise = rng.random((64, policies[0].noise_width), np.float32)
    acts = [policy.act(rows, None, None, noise) for policy in policies]
    for act in acts[1:]:
        assert act.action.tobytes() == acts[0].action.tobytes()
        assert act.logp.tobytes() == acts[0].logp.tobytes()


def test_an_entry_that_was_moved_has_its_new_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ludus.push("exact@best", tmp_path / "zoo", name="old").folder.rename(tmp_path / "zoo" / "new")
    monkeypatch.chdir(tmp_path)
    assert ludus.pull("zoo/new").folder == Path("runs/new")
    assert open_run("new").info.name == "new"


def test_a_joint_meta_strategy_is_pushed(tmp_path: Path) -> None:
    """Of a generation: the members of `@1` alone, with their joint distribution."""
    scenario = ludus.PSRO(env="openspiel/matrix_sh", algorithm="exact", meta_solver="ce", generations=2)
    ludus.run(scenario, run_dir=tmp_path / "joint", report=False)
    entry = ludus.push(f"{tmp_path}/joint", tmp_path / "zoo")
    old, new = open_run(tmp_path / "joint").solution, open_run(entry.folder).solution
    assert old.joint is not None
    assert new.joint is not None
    assert new.joint[new.joint > 0].tolist() == old.joint[old.joint > 0].tolist()
    assert evaluate_run(entry.folder, episodes=10).exploitability is not None


def test_manifest_equals_the_records_of_the_run() -> None:
    """By hand, of two of the exact run's policies: what they earn from each other is their value."""
    manifest = ludus.push("exact@best", "zoo", name="best", replace=True).manifest
    run = open_run("exact")
    with Reader(run.folder) as reader:
        payoffs, info = reader.payoffs(), reader.info()
    first, second = (run.records[run.best[k]] for k in (0, 1))
    expected = payoffs.mean[:, first.index, second.index].tolist()
    assert manifest.results.values == tuple(expected)
    assert [(p.profile, p.mean) for p in manifest.results.payoffs] == [((0, 0), tuple(expected))]
    assert (manifest.results.nash_conv, manifest.meta_strategy.marginals) == (None, ((1.0,), (1.0,)))
    source = manifest.source
    assert (source.run, source.of, source.generation, source.seed) == ("exact", "best", 3, 0)
    assert (source.code, source.algorithm, manifest.scenario) == (info.version, info.algorithm, info.text)
    (agent,) = manifest.game.players[0].agents
    assert (manifest.game.id, manifest.game.package) == (KUHN, "open-spiel")
    assert (agent.observation, agent.action) == ("Box([11], float32, 0 to 1)", "Discrete(2)")
    assert [player.states for player in manifest.game.players] == [6, 6]
    assert set(manifest.game.packages) == {"ludus", "torch", "numpy", "open-spiel"}


def test_pushed_matches_include_wins_and_training() -> None:
    manifest = read_manifest(Path("zoo/played"))
    with Reader(Path("played")) as reader:
        log = [stored.match for stored in reader.matches()]
    assert {m.profile: m.n for m in manifest.results.matches} == {
        profile: sum(m.n for m in log if m.profile == profile) for profile in {m.profile for m in log}
    }
    assert all(np.sum(m.wins, axis=1).tolist() == [m.n, m.n] for m in manifest.results.matches)
    assert {rated.name for rated in manifest.results.ratings} == {"elo", "mean_payoff"}
    assert manifest.policies[1].trained["episodes"] >= 64
    assert manifest.policies[1].returns is not None
    assert manifest.policies[0].returns is None  # it plays at random, and nothing trained it
    assert manifest.note == "CC0"


def test_statistics_of_a_profile_are_those_of_all_its_matches() -> None:
    """Two matches of three goals each by the first player, and of 0 and 1 by the second; in a third, other policies."""

    def match(profile: tuple[int, int], first: float, second: float) -> Match:
        counted = NamedStatistics(("goals",), np.array([[2], [2]]), np.array([[first], [second]]), np.zeros((2, 1)))
        return Match("m", profile, (), 2, np.zeros(2), np.zeros(2), statistics=counted)

    found = zoo._counted([match((0, 1), 3.0, 0.0), match((0, 1), 3.0, 1.0), match((1, 1), 9.0, 9.0)])
    assert found[0, 1] == Counted(names=("goals",), n=((4,), (4,)), mean=((3.0,), (0.5,)), m2=((0.0,), (1.0,)))
    assert found[1, 1].mean == ((9.0,), (9.0,))


def test_origin_survives_a_second_push(tmp_path: Path) -> None:
    first = read_manifest(Path("zoo/played"))
    second = ludus.push("zoo/played@0/0-2", tmp_path / "zoo").manifest
    (file,) = Path("zoo/played/policies/0").glob("0-2-*")
    third = ludus.push(str(file), tmp_path / "zoo", name="third").manifest
    for manifest in (second, third):
        assert manifest.source == first.source.model_copy(update={"of": "0/0-2"})
        assert manifest.policies == first.policies[2:]
    assert (second.name, third.name) == ("played-0-0-2", "third")


def test_where_files_lay_is_not_told(tmp_path: Path) -> None:
    """A scenario keeps the whole path of what it starts from, so that it can be gone on with from another folder."""
    start = tmp_path / "secret" / "first.safetensors"
    start.parent.mkdir()
    shutil.copy(Path("played", "policies", "0", "0-1.safetensors"), start)
    changes = ["warm_start={source: file, path: " + str(start) + "}", "generations=1"]
    scenario = parse_scenario(Path("played", "scenario.yaml").read_text(), changes)
    ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    entry = ludus.push(str(tmp_path / "run"), tmp_path / "zoo")
    text = (entry.folder / MANIFEST).read_text()
    assert "path: first.safetensors" in text
    assert "secret" not in text
    ludus.pull(entry.folder, tmp_path / "pulled")


def test_a_file_is_pushed_with_its_game(tmp_path: Path) -> None:
    """In every seat that it fits, as it is named everywhere. Where no letter of its name is left, it has one all the same."""
    tools.always(1, tmp_path / "bet.safetensors")
    foreign = shutil.copy(tmp_path / "bet.safetensors", tmp_path / "клон.safetensors")
    with pytest.raises(ConfigError, match=r"'клон' has nothing that can name an entry .* Give a name with --name"):
        ludus.push(str(foreign), tmp_path / "zoo", env=KUHN)
    plain = ludus.push(str(foreign), tmp_path / "zoo", env=KUHN, name="clone").manifest.policies
    assert [(member.policy, member.file[:18]) for member in plain[:1]] == [("policy", "policies/0/policy-")]
    with pytest.raises(ConfigError, match=r"is of no run, so its game is not known; say which with --env"):
        ludus.push(str(tmp_path / "bet.safetensors"), tmp_path / "zoo")
    ludus.push(str(tmp_path / "bet.safetensors"), tmp_path / "zoo", env=KUHN)
    entry = ludus.pull(tmp_path / "zoo/bet", tmp_path / "here")
    assert evaluate_run(entry.folder, episodes=10).matches[0].exact is not None
    result = against(tmp_path / "run", str(entry.folder))
    assert result.generations[-1].responses[0] == pytest.approx(1 / 3)  # as in test_given_opponents.py


# ---------------------------------------------------------------------------------------------- in use


def against(folder: Path, *opponents: str, **options: Any) -> ludus.Result:
    scenario = ludus.FixedOpponents(**{"env": KUHN, "algorithm": "exact", "opponents": opponents, **options})
    return ludus.run(scenario, run_dir=folder, report=False)


def names(result: ludus.Result, population: int = 0) -> list[str]:
    return [record.ref.policy for record in result.populations[population]]


def test_an_entry_is_an_opponent_as_its_run_is(tmp_path: Path) -> None:
    """The same best responses to the mixture, to the bit, from the zoo where it lies as from the run."""
    ours, theirs = against(tmp_path / "a", "zoo/exact"), against(tmp_path / "b", "exact")
    assert ours.generations[-1].responses == theirs.generations[-1].responses
    assert names(ours) == names(theirs)
    assert names(ours)[1:] == ["exact.0-2", "exact.0-3", "0-1"]
    for mine, other in zip(ours.populations[0], theirs.populations[0], strict=True):
        assert weights(ours.policy(0, mine.index)) == weights(theirs.policy(0, other.index))


@pytest.mark.parametrize("kind", ["psro", "self_play", "league"])
def test_an_entry_is_a_member_from_the_start(kind: str, tmp_path: Path) -> None:
    text = f"scenario: {kind}\nenv: {{id: '{BLOTTO}', num_envs: 8, tree: 'off'}}\nalgorithm: {json.dumps(TINY)}\n"
    text += "response: {episodes: 32}\nevaluation: {episodes: 4}\ngenerations: 1\nopponents: [zoo/played@0/0-2]\n"
    text += "latest: 0.5\n" if kind == "self_play" else ""
    result = ludus.run(parse_scenario(text), run_dir=tmp_path / "run", report=False)
    assert names(result)[:2] == ["0-0", "played.0-2"]
    assert len(names(result)) > 2
    assert weights(result.policy(0, 1)) == weights(open_run("played").policy(PolicyRef(0, "0-2")))


def test_learners_start_from_an_entry(tmp_path: Path) -> None:
    """A learning rate of 0 leaves the response where it started."""
    scenario = ludus.PSRO(
        env={"id": BLOTTO, "num_envs": 8, "tree": "off"},
        algorithm={**TINY, "learning_rate": 0.0},
        response={"episodes": 32},
        evaluation={"episodes": 4},
        generations=1,
        warm_start=[{"source": "file", "path": "zoo/played@0/0-1"}],
    )
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    assert weights(result.policy(0, 1)) == weights(open_run("played").policy(PolicyRef(0, "0-1")))


def test_entries_are_evaluated_recorded_loaded_and_entrants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before_dir = Path.cwd()
    ours, theirs = evaluate_run("zoo/exact", episodes=20), evaluate_run("exact", episodes=20)
    assert [m.mean.tolist() for m in ours.matches] == [m.mean.tolist() for m in theirs.matches]
    assert ours.exploitability is not None
    assert theirs.exploitability is not None
    assert ours.exploitability.gain.tolist() == theirs.exploitability.gain.tolist()
    field = read_field(["zoo/exact", "zoo/exact@best", "exact@best", "random"], env=None, find_run=find_run)
    assert len({entrant.sha256 for entrant in field.entrants}) == 3  # the same policies are the same
    assert ludus.load_policy("zoo/exact@best").play(seed=1) is not None
    (file,) = Path("zoo/exact/policies/1").glob("1-2-*")
    assert ludus.load_policy(file).player == 1
    before = sorted(path.name for path in Path("zoo/exact").iterdir())
    assert main(["record", "zoo/exact", "--out", str(tmp_path / "film.txt")]) == 0
    monkeypatch.chdir(tmp_path)
    entry = str(Path(before_dir, "zoo", "exact"))
    Path("episode.txt").write_text("of somebody", encoding="utf-8")
    assert main(["record", entry]) == 2
    assert "episode.txt' is there already; --overwrite replaces it" in capsys.readouterr().err
    assert Path("episode.txt").read_text(encoding="utf-8") == "of somebody"
    assert main(["record", entry, "--overwrite"]) == 0
    monkeypatch.chdir(before_dir)
    assert main(["list", "policies", "zoo/exact"]) == 0
    out = capsys.readouterr().out
    assert "zoo/exact@0/0-3" in out
    assert sorted(path.name for path in Path("zoo/exact").iterdir()) == before


def test_an_entry_for_one_player_says_who_is_missing(tmp_path: Path) -> None:
    entry = str(ludus.push("exact@0/0-2", tmp_path / "zoo").folder)
    assert entry.endswith("zoo/exact-0-0-2")
    with pytest.raises(RunError, match="has nobody for player 1, and what is asked for needs policies of each"):
        evaluate_run(entry)
    with pytest.raises(RunError, match="has nobody for player 1"):
        ludus.evaluate_population(entry)
    report = evaluate_run(entry, policies=["@meta", "random"], episodes=10)
    assert [match.policies for match in report.matches] == [("@meta", "random"), ("random", "random")]
    assert ludus.load_policy(entry).player == 0
    assert names(against(tmp_path / "run", entry, learners=[1])) == ["0-0", "exact-0-0-2.0-2"]


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ("exakt", {}, "there is no run 'exakt'"),
        ("exact@9", {}, "has the generations 0 to 3; there is no 9 yet"),
        ("exact@bets", {}, "did you mean 'best'"),
        ("zoo/exact@1", {}, "what was pushed is of generation 3; there is no 1"),
        ("random", {}, "'random' has no weights to push"),
        ("bot:mcts-100", {}, "'bot:mcts-100' has no weights to push"),
        ("exact@best", {"members": True}, "names no whole run or generation"),
        ("exact", {"env": KUHN}, "--env was given, and 'exact' is of a run"),
        ("exact", {"name": "../exact"}, "'../exact' cannot name an entry of a zoo"),
        ("exact", {}, "there is an entry 'zoo/exact' already"),
    ],
)
def test_unpushable_policies_are_rejected(given: str, options: dict[str, Any], words: str) -> None:
    before = {path: path.read_bytes() for path in Path("zoo").rglob("*") if path.is_file()}
    with pytest.raises(LudusError, match=re.escape(words)):
        ludus.push(given, "zoo", **options)
    assert {path: path.read_bytes() for path in Path("zoo").rglob("*") if path.is_file()} == before


def test_a_changed_file_is_not_pushed(tmp_path: Path) -> None:
    ludus.run(ludus.PSRO(env=KUHN, algorithm="exact", generations=1), run_dir=tmp_path / "run", report=False)
    with (tmp_path / "run/policies/0/0-1.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(RunError, match="was changed or damaged since its run wrote it"):
        ludus.push(str(tmp_path / "run"), tmp_path / "zoo")
    assert not (tmp_path / "zoo").exists()


@pytest.mark.parametrize(
    ("kind", "config", "code"),
    [
        ("own:Even", {}, "own:Even"),
        ("bot", {"bot": "own_bots:First", "options": {}}, "own_bots:First"),
        ("actor_critic", {"body": {"kind": "nets.deep:Body"}, "actions": 2}, "nets.deep:Body"),
    ],
)
def test_code_of_ones_own_is_not_pushed(kind: str, config: dict[str, Any], code: str) -> None:
    """What their modules say is in no file. Ludus's own are everywhere."""
    with pytest.raises(PolicyError, match=f"is code of your own, '{code}', and a zoo has weights and no code"):
        zoo._member(PolicyRecord(PolicyRef(0, "one"), 0, PolicySpec(kind, config), Lineage()), "0" * 64)
    searches = {"bot": "ludus.policies.search.bot:SearchBot", "options": {"policy": "best.safetensors"}}
    with pytest.raises(PolicyError, match=r"is the bot '.*SearchBot,policy=best.safetensors', which may read files"):
        zoo._member(PolicyRecord(PolicyRef(0, "one"), 0, PolicySpec("bot", searches), Lineage()), "0" * 64)
    ours = PolicySpec("torch", {"modules": {"policy": "ludus.policies.connect_four:ConnectFour"}})
    for spec in (ours, PolicySpec("bot", {"bot": "mcts", "options": {"simulations": 9}})):
        member = zoo._member(PolicyRecord(PolicyRef(0, "один"), 0, spec, Lineage()), "0" * 64)
        assert (member.kind, member.file) == (spec.kind, f"policies/0/policy-{'0' * 12}.safetensors")


def test_an_environment_that_only_a_program_has_is_not_pushed() -> None:
    with pytest.raises(ScenarioError, match="which nobody else can make"):
        zoo._game(ludus.Environment(source=lambda: gymnasium.make("CartPole-v1"), num_envs=2), (0,))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"players": 1}, "it has 2 players, and 1 in the entry"),
        (
            {"observation": "Box([12], float32, 0 to 1)"},
            r"the observation space of agent 'player_0' is Box\(\[11\], float32, 0 to 1\), and Box\(\[12\]",
        ),
        (
            {"action": "Discrete(3)"},
            r"the action space of agent 'player_0' is Discrete\(2\), and Discrete\(3\) in the entry",
        ),
        ({"states": "0" * 64}, "its information states are others than in the entry"),
        ({"id": "openspiel/no_such_game"}, "which cannot be made here: "),
    ],
)
def test_mismatched_zoo_entries_are_rejected(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    """And what was pulled then is nothing."""
    folder = ludus.push("exact", tmp_path / "zoo").folder
    manifest = read_manifest(folder)
    first, second = manifest.game.players
    if "players" in change:
        one = manifest.model_copy(update={"game": manifest.game.model_copy(update={"players": (first,)})})
        with pytest.raises(ScenarioError, match=words):
            zoo._require_same(one.game, manifest.game)
        return
    if "id" in change:
        text = manifest.scenario.replace(KUHN, change["id"])
        game = manifest.game.model_copy(update=change)
        (folder / MANIFEST).write_bytes(manifest.model_copy(update={"game": game, "scenario": text}).signed())
    elif "states" in change:
        altered(folder, states=change["states"])
    else:
        agent = first.agents[0].model_copy(update=change)
        altered(folder, players=(first.model_copy(update={"agents": (agent,)}), second))
    with pytest.raises(ScenarioError, match=words):
        ludus.pull(folder, tmp_path / "here")
    assert not (tmp_path / "here").exists()
    assert ludus.pull(folder, tmp_path / "here", check_env=False).folder.is_dir()


def test_an_experiments_run_has_its_name(tmp_path: Path) -> None:
    shutil.copytree("exact", tmp_path / "tried" / "seed-0")
    (tmp_path / "tried" / EXPERIMENT).write_text("")
    entry = ludus.push(str(tmp_path / "tried" / "seed-0"), tmp_path / "zoo")
    assert (entry.folder.name, entry.manifest.source.run) == ("tried-seed-0", "tried/seed-0")


def test_a_policy_that_cannot_play_is_refused(tmp_path: Path) -> None:
    """Spaces are as they were, and a policy is another's: of three actions."""
    folder = ludus.push("exact", tmp_path / "zoo").folder
    manifest = read_manifest(folder)
    blotto = read_manifest(Path("zoo/played")).policies[1]
    stranger = blotto.model_copy(update={"policy": manifest.policies[0].policy, "file": manifest.policies[0].file})
    (folder / stranger.file).write_bytes((Path("zoo/played") / blotto.file).read_bytes())
    policies = (stranger, *manifest.policies[1:])
    (folder / MANIFEST).write_bytes(manifest.model_copy(update={"policies": policies}).signed())
    with pytest.raises(
        PolicyError, match=r"policy '0-2' of the entry cannot play player 0 of openspiel/kuhn_poker here"
    ):
        ludus.pull(folder, tmp_path / "here")


def test_another_version_of_the_package_is_a_warning(tmp_path: Path) -> None:
    folder = ludus.push("exact", tmp_path / "zoo").folder
    packages = read_manifest(folder).game.packages
    altered(folder, packages={**packages, "open-spiel": "0.1"})
    (warning,) = ludus.pull(folder, tmp_path / "here").warnings
    assert warning.startswith(
        f"It was pushed with open-spiel 0.1, and {packages['open-spiel']} is installed. All spaces fit"
    )


def test_other_payoffs_are_a_warning(tmp_path: Path) -> None:
    folder = ludus.push("exact", tmp_path / "zoo").folder
    manifest = read_manifest(folder)
    changed = manifest.model_copy(update={"utility_range": ((-4.0, 4.0), (-2.0, 2.0)), "zero_sum": False})
    (folder / MANIFEST).write_bytes(changed.signed())
    assert ludus.pull(folder, tmp_path / "here").warnings == (
        "It pays otherwise here: returns lie in [-2, 2] (zero-sum), and in [-4, 4] and [-2, 2] in the entry, whose results are of those.",
    )


def test_a_damaged_entry_is_not_pulled(tmp_path: Path) -> None:
    folder = ludus.push("exact", tmp_path / "zoo").folder
    file = folder / read_manifest(folder).policies[1].file
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match="was changed or damaged: its SHA-256 is"):
        ludus.pull(folder, tmp_path / "here")
    with pytest.raises(RunError, match="was changed or damaged"):
        against(tmp_path / "run", str(folder))
    file.unlink()
    with pytest.raises(RunError, match="and the manifest names it"):
        ludus.pull(folder, tmp_path / "here")
    assert not (tmp_path / "here").exists()


# ---------------------------------------------------------------------------------------------- killed


@pytest.mark.slow
@pytest.mark.parametrize("replace", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_push_that_is_killed_leaves_the_zoo_as_it_was(replace: bool, tmp_path: Path) -> None:
    """At any of its changes: an entry is there as it was or as it was to be, and the next push does it all."""
    source = ludus.push("exact@0/0-2", tmp_path / "from", note="CC0").folder
    folder = tmp_path / "zoo" / "one"
    new = read_manifest(source)
    old = new.model_copy(update={"note": "old"})

    def write(manifest: Manifest, *, replace: bool) -> None:
        write_entry(folder, manifest, lambda member: read_content(source, member), replace=replace)

    def state() -> str:
        """What is there, whole."""
        if not zoo_entries(tmp_path / "zoo"):
            return ""
        found = read_manifest(folder)
        for member in found.policies:
            read_content(folder, member)
        return found.note

    seen = set()
    for at in range(1, 60, 1 if replace else 2):
        if replace:
            write(old, replace=folder.exists())
        if tools.dies(lambda: write(new, replace=replace), tmp_path / "zoo", at=at) is not None:
            break
        seen.add(state())
        write(new, replace=(folder / MANIFEST).exists())
        assert sum(path.is_file() for path in folder.rglob("*")) == 1 + len(new.policies), "something is left over"
        if not replace:
            shutil.rmtree(tmp_path / "zoo")
    assert at > 6
    assert seen == ({"old", "CC0"} if replace else {"", "CC0"})
