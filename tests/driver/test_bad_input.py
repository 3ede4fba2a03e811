"""Wrong scenarios through the command line: one clear line, exit code 2, and nothing on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    return tmp_path


def refused(capfd: pytest.CaptureFixture[str], folder: Path, *line: str) -> str:
    """The one line on standard error. Nothing else is said, by libraries in C neither, and nothing is made or changed."""
    before = contents(folder)
    assert main(line) == 2
    out, err = capfd.readouterr()
    assert out == ""
    err = err.removeprefix("compiling kernels, once for this installation\n")  # the first time on a slow machine
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert contents(folder) == before
    return err


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


EXACT = ["train", "kuhn", "generations=1"]
PPO = [*EXACT, "algorithm=ppo"]
COORDINATION = "env=openspiel/coop_to_1p"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([*EXACT, "generation=3"], "unknown key 'generation'; did you mean 'generations'"),
        ([*EXACT, "env.num_env=3"], "env: unknown key 'num_env'; did you mean 'num_envs'?"),
        ([*EXACT, "generations=-1"], "generations: Input should be greater than or equal to 0 (given: -1)"),
        ([*EXACT, "evaluation.episodes=1"], "evaluation: episodes: Input should be greater than or equal to 2"),
        ([*EXACT, "checkpoints.keep=0"], "checkpoints: keep: Input should be greater than or equal to 1"),
        (
            [*PPO, "env=openspiel/matrix_rps", "env.num_envs=1", "algorithm.batch_unit=decisions"],
            "env.num_envs=1, and 2 players of openspiel/matrix_rps share one population",
        ),
        ([*EXACT, "mode=gredy"], "mode: Input should be 'explore' or 'greedy' (given: 'gredy')"),
        ([*EXACT, "scenario=prso"], "unknown scenario 'prso'; did you mean 'psro'?"),
        ([*EXACT, "env=openspiel/khun_poker"], "unknown OpenSpiel game 'khun_poker'; did you mean 'kuhn_poker'"),
        ([*EXACT, "env=kuhn_poker"], "unknown environment 'kuhn_poker'; did you mean 'openspiel/kuhn_poker'"),
        ([*EXACT, "env=my.games:Chess"], "environment 'my.games:Chess' could not be imported"),
        ([*EXACT, "env=openspiel/kuhn_poker(player=3)"], "has no parameter 'player'; did you mean 'players'?"),
        ([*EXACT, "env=openspiel/kuhn_poker(players=99)"], "OpenSpiel cannot load 'kuhn_poker(players=99)'"),
        ([*EXACT, "env=openspiel/kuhn_poker(players=3"], "is not a game string"),
        ([*EXACT, "env.options.observtion=auto"], "unknown option 'observtion'"),
        ([*EXACT, "env.tree=maybe"], "tree: Input should be 'auto', 'on' or 'off'"),
        ([*EXACT, "meta_solver=nahs"], "unknown meta-solver 'nahs'; did you mean 'nash'?"),
        ([*EXACT, "meta_solver.toleranse=1"], "meta-solver 'nash': unknown key 'toleranse'; did you mean 'tolerance'?"),
        ([*EXACT, "meta_solver.tolerance=2"], "nash: tolerance is 2.0, expected a fraction"),
        (
            [*EXACT, "meta_solver=7"],
            "meta_solver: a meta-solver was expected, by name or as a mapping with `kind`; given 7",
        ),
        (
            [*EXACT, "meta_solver=ludus.core.errors:RunError"],
            "'ludus.core.errors:RunError' is not a meta-solver: it lacks",
        ),
        ([*PPO, "algorithm.learning_rat=1e-3"], "algorithm: unknown key 'learning_rat'; did you mean 'learning_rate'?"),
        ([*PPO, "algorithm.gamma=1.5"], "algorithm: gamma: Input should be less than or equal to 1 (given: 1.5)"),
        ([*PPO, "response={episode: 5}"], "unknown stopper 'episode'; did you mean 'episodes'?"),
        ([*PPO, "response="], "an algorithm that learns needs `response`"),
        ([*PPO, "response={generations: 5}"], "waits for generations, which does not change during one response"),
        ([*PPO, "response={all: [{episodes: 5}, {nash_conv: 0.1}]}"], "response: the stopper waits for nash_conv"),
        ([*PPO, "stop={no_improvement: 5}"], "stop: the stopper waits for scores, which this run does not have"),
        ([*PPO, "stop={nash_conv: 0.1}", "evaluation.exploitability=off"], "stop: the stopper waits for nash_conv"),
        ([*EXACT, "stop={episodes: 100}"], "stop: the stopper waits for episodes, which this run does not have"),
        ([*PPO, "warm_start=bets"], "source: Input should be 'random', 'last', 'best' or 'file'"),
        ([*PPO, "warm_start={source: file}"], "`path` belongs to source: file"),
        ([*PPO, "warm_start={source: file, path: gone.safetensors}"], "'gone.safetensors' cannot be read"),
        ([*EXACT, "env.tree=off"], "the exact oracle needs a game that is compiled to a tree"),
        (
            [*EXACT, "env=openspiel/connect_four"],
            "the exact oracle needs a game that is compiled to a tree, and openspiel/connect_four",
        ),
        ([*EXACT, "env.tree=on", "env.node_limit=10"], "more than 10 nodes"),
        (
            ["train", "kuhn-3p", "meta_solver=nash"],
            "'nash' solves two-player games; openspiel/kuhn_poker(players=3) has 3",
        ),
        (
            [*EXACT, "env=openspiel/bargaining(max_turns=2)", "env.node_limit=10", "algorithm=ppo"],
            "'nash' solves zero-sum games",
        ),
        (
            [*EXACT, "env=openspiel/matrix_pd"],
            "meta-solver 'nash' solves zero-sum games; openspiel/matrix_pd is general-sum. Use cce, alpha_rank, "
            "projected_replicator_dynamics or fictitious_play. If its returns always have the same sum, "
            "and only nobody has said so, give env.options.zero_sum=true",
        ),
        (
            [*PPO, "env.tree=off", "evaluation.exploitability=exact"],
            "evaluation.exploitability=exact needs a game that can be enumerated; openspiel/kuhn_poker is not (tree=off",
        ),
        ([*PPO, "env.tree=off", "evaluation.payoffs=exact"], "evaluation.payoffs=exact needs a game that can be"),
        (
            [*PPO, "algorithm.memory=gru"],
            "evaluation.payoffs=auto, evaluation.exploitability=auto: openspiel/kuhn_poker has a game tree, on which that is",
        ),
        (
            [*EXACT, "algorithm=r2d2", "evaluation.payoffs=simulate"],
            "evaluation.payoffs=simulate and evaluation.exploitability=off.",
        ),
        ([*EXACT, "algorithm=rainbow", "mode=explore"], "evaluation.exploitability=off. Or set mode=greedy."),
        (
            [*PPO, "algorithm.memory=lstm", "diversity=behavioural", "evaluation.payoffs=simulate", "stop="],
            "the algorithm 'ppo' trains policies of kind 'actor_critic' that have none (memory",
        ),
        (
            [
                *EXACT,
                "algorithm=a2c",
                "env=gymnasium/Pendulum-v1",
                "diversity=behavioural",
                "meta_solver=uniform",
                "stop=",
            ],
            "the algorithm 'a2c' trains policies of kind 'actor_critic' that have none (memory, or actions that are no single number)",
        ),
        (
            [
                *EXACT,
                "algorithm=a2c",
                "env=gymnasium/Pendulum-v1",
                "meta_solver=uniform",
                "evaluation={adaptive: {goal: ranking}}",
                "stop=",
            ],
            "evaluation.adaptive.goal=ranking needs returns between known limits, or no comparison is ever decided",
        ),
        (
            ["train", "pendulum", "algorithm={kind: sac, start_decisions: 1000}", "response={decisions: 300}"],
            "response: 300 decisions are fewer than the algorithm 'sac' collects before the first update (1001: start_decisions=1000, and",
        ),
        (
            [
                *EXACT,
                "algorithm=dqn",
                "algorithm.rollout_unit=decisions",
                "env.num_envs=4",
                "response={decisions: 500, seconds: 60}",
            ],
            "would stay as they begin. Up to 4 are still open at the end and count for nothing: give decisions: 1054 or more or algorithm",
        ),
        (
            [
                "train",
                "leduc-nfsp",
                "algorithm.best_response={rollout: 100, rollout_unit: decisions}",
                "env.num_envs=4",
                "generations=2",
                "response={decisions: 200}",
            ],
            "response: 200 decisions in each of 2 tasks are fewer than the algorithm 'nfsp' collects",
        ),
        (
            [
                *PPO,
                "algorithm.batch_unit=decisions",
                "algorithm.batch=1000",
                "algorithm.capacity=500",
                "env.num_envs=4",
            ],
            "an insert of 1000 items never fits into a table of 500. Raise the capacity or insert less at once.",
        ),
        ([*EXACT, "algorithm=tabular_q", "env.tree=off"], "tabular Q-learning needs a game that is compiled to a tree"),
    ],
    ids=lambda value: " ".join(value[3 if value[:3] == EXACT else 1 :]) if isinstance(value, list) else "",
)
def test_a_wrong_scenario_is_refused_in_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], line: list[str], words: str
) -> None:
    assert words in refused(capfd, folder, *line, "--name", "mine")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n- 2\n", "a scenario is a mapping of keys to values; given list"),
        ("1: 2\n", "unknown key 1"),
        ("algorithm: exact\n", "env: Field required"),
        ("env: 5\n", "env"),
        ("env: openspiel/kuhn_poker\nscenario: [psro]\n", "unknown scenario"),
        (
            "env: openspiel/kuhn_poker\nalgorithm: {hidden: [3]}\n",
            "algorithm: an algorithm was expected, by name or as a mapping with `kind`",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (folder / "mine.yaml").write_text(text)
    assert words in refused(capfd, folder, "train", "mine.yaml", "--name", "mine")


def test_a_file_that_is_no_text(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    assert "'mine.yaml' cannot be read" in refused(capfd, folder, "train", "mine.yaml")


def test_a_policy_of_another_shape_is_no_warm_start(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = ["algorithm={kind: ppo, hidden: [4], batch: 10, epochs: 1}", "response={episodes: 10}", "generations=1"]
    assert main(["train", "kuhn", *small, "env.num_envs=4", "--run-dir", "first"]) == 0
    capfd.readouterr()
    path = "first/policies/0/0-1.safetensors"
    start = f"warm_start={{source: file, path: {path}}}"
    line = ["train", "kuhn", *small, start, "--run-dir", "second"]
    assert "holds a policy of kind 'mlp'" in refused(capfd, folder, *line, "algorithm.hidden=[5]")
    assert main([*line, "env.num_envs=4"]) == 0
    damaged = bytearray((folder / path).read_bytes())[:-5]
    (folder / path).write_bytes(damaged)
    capfd.readouterr()
    line[-1] = "third"
    assert "is not a policy that can be loaded" in refused(capfd, folder, *line)
