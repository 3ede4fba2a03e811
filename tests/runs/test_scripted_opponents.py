"""Runs whose learners meet bots and scripts: in every schedule, by known values, resumed to the bit; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_tools as tools

import ludus
from ludus.apps.episodes.recording import record_run
from ludus.cli.main import main
from ludus.core.errors import ConfigError, LudusError, PolicyError, ScenarioError
from ludus.evaluation.evaluate import evaluate_run
from ludus.policies.categorical import CategoricalPolicy
from ludus.runs.runner import resume
from ludus.runs.scenario import SCENARIOS, FixedOpponents

KUHN = "openspiel/kuhn_poker"
HERE = {"bots": {"processes": 0}}
Q = {"kind": "tabular_q", "batch": 64}
PLAYED = {"payoffs": "simulate", "episodes": 8}
SHORT = """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [4]}
response: {episodes: 96}
generations: 2
evaluation: {payoffs: simulate, episodes: 8}
opponents: ["own_bots:Drawn", bot:uniform_random]
checkpoints: {iterations: 2}
runtime: {bots: {processes: 0}}
"""
OWN_KEYS = {
    "pbt": "learners: 2\nranges: {learning_rate: {low: 1.0e-4, high: 1.0e-2}}\n",
    "league": "league_exploiters: 1\n",
}


class Bets(CategoricalPolicy):
    """A Policy of the user's own: bets in a share of its decisions, whatever it holds."""

    def __init__(self, spec: Any, weights: Any) -> None:
        self.spec, self.actions = spec, 2
        self._share = float(spec.config.get("share", 1.0))

    def probabilities(self, observation: Any, mask: Any, *, mode: str) -> Any:
        return np.tile([1.0 - self._share, self._share], (len(mask), 1)), {}

    def weights(self) -> Any:
        return {}


class Mute(Bets):
    def probabilities(self, observation: Any, mask: Any, *, mode: str) -> Any:
        return None, {}


class Fails(Bets):
    def probabilities(self, observation: Any, mask: Any, *, mode: str) -> Any:
        raise ZeroDivisionError("no idea")


@pytest.fixture(autouse=True)
def own_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of that name is found, and its bots are made here: a process of their own takes more than a second to begin."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "evaluation"))
    from bots_here import BotsHere

    monkeypatch.setattr("ludus.rollout.bot_process.BotProcess", BotsHere)


def train(folder: Path, *opponents: object, **options: Any) -> ludus.Result:
    scenario = FixedOpponents(
        **{"env": {"id": KUHN, "num_envs": 16}, "opponents": opponents, "runtime": HERE, **options}
    )
    return ludus.run(scenario, run_dir=folder, report=False)


def names(result: ludus.Result) -> list[list[str]]:
    return [[record.ref.policy for record in members] for members in result.populations]


# ---------------------------------------------------------------------------------------------- values


def test_who_always_passes_is_bet_against(tmp_path: Path) -> None:
    """He folds: 1 in every episode. What is played is known, what is computed is that against nobody else."""
    result = train(tmp_path / "run", "own_bots:First", algorithm=Q, response={"episodes": 1500}, evaluation=PLAYED)
    assert names(result) == [["0-0", "bot.own_bots-First", "0-1"], ["1-0", "bot.own_bots-First"]]
    (record,) = (record for record in result.populations[1] if record.ref.policy.startswith("bot"))
    assert (record.spec.kind, dict(record.spec.config)) == ("bot", {"bot": "own_bots:First", "options": {}})
    assert record.lineage.start == "own_bots:First"
    assert result.payoffs.mean[0, 2, 1] == 1.0
    assert result.generations[-1].responses[0] == pytest.approx(1.0, abs=0.1)
    assert result.nash_conv == ()
    best = ludus.load_policy(f"{tmp_path}/run@best")
    assert repr(best) == "<TrainedPolicy 0-1, player 0>"
    for name in ("run@1/bot.own_bots-First", "run@0/bot.own_bots-First"):
        with pytest.raises(PolicyError, match="has the bot 'own_bots:First' play player"):
            ludus.load_policy(f"{tmp_path}/{name}")
    with pytest.raises(
        PolicyError, match=r"there are no weights to load\. Load one that was trained, such as .*run@0/0-1;"
    ):
        ludus.load_policy(f"{tmp_path}/run@0/bot.own_bots-First")


def test_an_own_policy_is_tabulated(tmp_path: Path) -> None:
    """As in `test_given_opponents`: the exact response to one who always bets earns (2 + 0 - 1) / 3."""
    name = "test_scripted_opponents:Bets,share=1.0"
    result = train(tmp_path / "run", name, algorithm="exact")
    assert names(result)[1] == ["1-0", "own.test_scripted_opponents-Bets-share-1.0"]
    assert result.generations[-1].responses[0] == pytest.approx(1 / 3)


def test_exact_values_of_those_who_can_be_computed(tmp_path: Path) -> None:
    """The announced strategies of self-play are snapshots, whose NashConv is computed beside bots, whose payoffs are played."""
    scenario = tools.parse_scenario(
        "scenario: self_play\n" + SHORT, ["opponents=own_bots:First", "latest=0.5", "generations=1"]
    )
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    first, last = result.generations
    assert first.nash_conv is None, "the newest policy of generation 0 is the bot"
    assert last.nash_conv is not None
    report = evaluate_run(
        tmp_path / "run", episodes=10, policies=["@meta", "@0/bot.own_bots-First", "@1/bot.own_bots-First"]
    )
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(last.nash_conv)
    assert [match.exact is None for match in report.matches] == [False, True, True, True]


# ---------------------------------------------------------------------------------------------- schedules


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [k if k in ("psro", "league") else pytest.param(k, marks=pytest.mark.slow) for k in SCENARIOS],
)
def test_every_schedule_has_them_among_its_members(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners meet them in training (in PSRO as the meta-strategy says: here all alike)."""
    met: set[str] = set()
    begun = ludus.runs.driver.Driver._do_all

    def do_all(driver: Any, tasks: Any) -> None:
        for task in tasks:
            mixture = getattr(task, "opponents", None)
            mixture = getattr(mixture, "start", mixture)
            met.update(ref.policy for f in getattr(mixture, "factors", ()) for entry in f.entries for ref in entry)
        begun(driver, tasks)

    monkeypatch.setattr(ludus.runs.driver.Driver, "_do_all", do_all)
    text = f"scenario: {kind}\n{SHORT}{OWN_KEYS.get(kind, '')}"
    changes = ["meta_solver=uniform"] if kind in ("psro", "pipeline_psro", "anytime_psro", "self_play_psro") else []
    changes += ["latest=0.5"] if kind == "self_play" else []
    if kind == "xdo":
        with pytest.raises(ScenarioError, match="how likely a bot's actions are: xdo makes games of"):
            ludus.run(tools.parse_scenario(text, changes), run_dir=tmp_path / "run", report=False)
        return
    result = ludus.run(tools.parse_scenario(text, changes), run_dir=tmp_path / "run", report=False)
    given = ["bot.own_bots-Drawn", "bot.uniform_random"]
    assert [members[1:3] for members in names(result)] == [given, given]
    assert [members[0] for members in names(result)] == ["0-0", "1-0"]
    assert set(given) <= met
    assert result.stopped_by == "the schedule is complete"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["psro", pytest.param("league", marks=pytest.mark.long)])
def test_a_resumed_run_is_equal_to_the_bit(kind: str, tmp_path: Path) -> None:
    """Learners whose episodes go on from request to request, stopped within a response."""
    carried = ["algorithm.batch_unit=decisions", "response={decisions: 150}"]
    scenario = tools.parse_scenario(f"scenario: {kind}\n{SHORT}{OWN_KEYS.get(kind, '')}", carried)
    ludus.run(scenario, run_dir=tmp_path / "whole", report=False)
    impatient = tools.Impatient(7)
    ludus.run(scenario, run_dir=tmp_path / "stopped", observer=impatient, stop=impatient.stop, report=False)
    resume(tmp_path / "stopped", report=False)
    tools.assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    with pytest.raises(ScenarioError, match=r"opponents=.* was given; the run has"):
        resume(tmp_path / "stopped", ["opponents=random", "generations=4"])


@pytest.mark.slow
def test_workers_elsewhere_give_the_same_numbers(tmp_path: Path) -> None:
    """Bots play in processes beside each worker, with copies of policies and with an inference server."""
    changes = [
        "runtime.shards=2",
        "opponents=[bot:uniform_random, bot:mcts-5]",
        "env.id=openspiel/tic_tac_toe",
        "env.tree=off",
        "generations=1",
    ]
    apart = ["runtime.kind=processes", "runtime.workers=2", "runtime.tasks=1", "runtime.bots={processes: 2}"]
    for name, more in (("here", []), ("copies", apart), ("server", [*apart, "runtime.inference=server"])):
        scenario = tools.parse_scenario(f"scenario: fixed_opponents\n{SHORT}", [*changes, *more])
        ludus.run(scenario, run_dir=tmp_path / name, report=False)
    assert tools.policies_of(tmp_path / "here") == tools.policies_of(tmp_path / "copies")
    assert tools.policies_of(tmp_path / "here").keys() == tools.policies_of(tmp_path / "server").keys()


def test_bots_are_recorded(tmp_path: Path) -> None:
    """One who always passes, and one who always bets: he takes the ante."""
    train(tmp_path / "run", "random", algorithm=Q, response={"episodes": 64}, evaluation=PLAYED)
    names = ["own_bots:First", "test_scripted_opponents:Bets"]
    found = record_run(tmp_path / "run", policies=names, episodes=2)
    assert found.returns.tolist() == [[-1.0, 1.0]] * 2
    assert record_run(tmp_path / "run", policies=["bot:uniform_random"]).returns.shape == (1, 2)


# ---------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("opponents", "options", "message"),
    [
        (
            ["own_bots:First"],
            {},
            r"'own_bots:First' is a bot, .* cannot be computed with. Set evaluation.payoffs=simulate",
        ),
        (["bot:mcts-10"], {}, "'bot:mcts,simulations=10' cannot play openspiel/kuhn_poker"),
        (["own_bots:First"], {"algorithm": "exact"}, "Set evaluation.payoffs=simulate and an algorithm that learns"),
        (["bot:mtcs"], {}, "unknown bot 'mtcs'; did you mean 'mcts'"),
        (
            ["test_scripted_opponents:Bets,share=2.0"],
            {},
            r"cannot play seat 0 of .*: it answered \[-1.0, 2.0\] in row 0; an array of \[6, 2\] was expected, whose rows are prob",
        ),
        (
            ["test_scripted_opponents:Bets,share=.nan"],
            {"env": {"id": KUHN, "tree": "off"}, "algorithm": "ppo", "evaluation": {"exploitability": "off"}},
            r"cannot play seat 0 of .*: it answered \[nan, nan\] in row 0; an array of \[1, 2\] was expected",
        ),
        (["test_scripted_opponents:Mute"], {}, "cannot play seat 0 of .*: it answered None; an array"),
        (
            ["test_scripted_opponents:Fails"],
            {},
            r"cannot play seat 0 of .*: Fails.probabilities raised ZeroDivisionError: no idea \(.*, line \d+\)\.",
        ),
        (["own_bots:Nobody"], {}, "has no 'Nobody'"),
        (
            ["test_scripted_opponents:Bets,share=half"],
            {},
            r"Bets.__init__ raised ValueError: .*line \d+\). One with weights is given as a file",
        ),
        (
            ["own_bots:First"],
            {"env": "gymnasium/CartPole-v1", "evaluation": {"exploitability": "off"}},
            "the learners meet nobody",
        ),
    ],
)
def test_refused_before_a_run_is_made(
    opponents: list[str], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(LudusError, match=message):
        train(tmp_path / "run", *opponents, **options)
    assert not (tmp_path / "run").exists()


def test_who_would_never_be_met_is_refused(tmp_path: Path) -> None:
    scenario = tools.parse_scenario("scenario: self_play\n" + SHORT)
    with pytest.raises(
        ConfigError, match=r"with latest=1 learners meet each other's newest weights alone. Give latest=0.8"
    ):
        ludus.run(scenario, run_dir=tmp_path / "run", report=False)


def test_weights_are_of_fixed_opponents() -> None:
    with pytest.raises(ConfigError, match="a weight was given for 'random'; here the schedule says how often"):
        ludus.PSRO(env=KUHN, opponents=[{"policy": "random", "weight": 2}])


def test_a_bot_that_fails_ends_a_run_that_can_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "half_done.py"
    text = "class Bot:\n    def restart(self, player, seed): pass\n    def act(self, observation, mask):\n        {}\n"
    file.write_text(text.format("raise ValueError('not yet')"))
    short = ["evaluation.payoffs=simulate", "evaluation.episodes=8", "runtime.bots.processes=0", "env.num_envs=8"]
    command = [
        "train",
        "kuhn",
        "scenario=fixed_opponents",
        "opponents=half_done:Bot",
        "algorithm=ppo",
        "response={episodes: 64}",
        *short,
    ]
    assert main([*command, "generations=1", "--name", "new"]) == 2
    said = capsys.readouterr().err
    assert "bot 'half_done:Bot' failed as player 1: Bot.act raised ValueError: not yet" in said
    assert "line 4" in said
    file.write_text(text.format("return 0"))
    import half_done  # type: ignore[import-not-found]

    monkeypatch.setattr(half_done.Bot, "act", lambda self, observation, mask: 0)
    assert main(["resume", "new"]) == 0
