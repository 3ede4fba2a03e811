"""`ludus debug` on runs: commands from a script, from standard input, and at a prompt."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import ludus
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.cli.debug import Session
from ludus.cli.main import main
from ludus.core.errors import ConfigError
from ludus.core.types import AgentSpec, EnvSpec, PolicySpec
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `k`: Kuhn poker, exactly solved."""
    folder = tmp_path_factory.mktemp("debug")
    kuhn = ludus.Environment(id="openspiel/kuhn_poker", num_envs=16)
    ludus.run(ludus.PSRO(env=kuhn, algorithm="exact", generations=2), run_dir=folder / "runs" / "k", report=False)
    return folder


@pytest.fixture(autouse=True)
def there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)


RANDOM = ["--policies", "random"]


def debug(capsys: pytest.CaptureFixture[str], script: str, *line: str) -> list[str]:
    """What a script shows on `k`, without the step that is shown at first."""
    assert main(["debug", "k", *(line or RANDOM), "--seed", "26", "--script", script]) == 0
    out = capsys.readouterr().out
    assert all(len(text) <= 80 for text in out.splitlines())
    return out.partition("\n\n")[2].splitlines()


def test_forwards_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert debug(capsys, "next; back; n 9; go 1; quit; next") == [
        "> next",
        "step 1",
        "  player 1  Bet, prob 0.5",
        "",
        "> back",
        "step 0",
        "  player 0  Pass, prob 0.5  paid 0",
        "",
        "> n 9",
        "the end, after 3 steps: terminated, returns -1 +1",
        "",
        "> go 1",
        "step 1",
        "  player 1  Bet, prob 0.5  paid +1",
        "",
        "> quit",
    ]


def test_debug_shows_observation_action_and_reward(capsys: pytest.CaptureFixture[str]) -> None:
    assert debug(capsys, "go end; go 2; see; probs; see 1; where") == [
        "> go end",
        "the end, after 3 steps: terminated, returns -1 +1",
        "",
        "> go 2",
        "step 2, paid -1 +1, terminated",
        "  player 0  Pass, prob 0.5  paid -1",
        "",
        "> see",
        "player 0 (player_0), by random, explore",
        "  saw       0pb",
        "  legal     Pass (0), Bet (1)",
        "  answered  Pass (0), prob 0.5, log -0.6931",
        "  paid      -1, until its next decision or the end",
        "",
        "> probs",
        "player 0, random, explore",
        "  * Pass (0)  0.5000  ########",
        "    Bet (1)   0.5000  ########",
        "",
        "> see 1",
        "player 1 has no decision in step 2",
        "",
        "> where",
        "openspiel/kuhn_poker, seed 26, episode 1",
        "  step 2, of 3 in all",
        "  player 0: random, explore; returns -1 so far",
        "  player 1: random, explore; returns +1 so far",
    ]


def test_breakpoints(capsys: pytest.CaptureFixture[str]) -> None:
    script = "break player == 1; break reward[1] > 0; breaks; c; c; clear 1; restart; c; clear; breaks; c"
    assert debug(capsys, script) == [
        "> break player == 1",
        "  1  player == 1",
        "",
        "> break reward[1] > 0",
        "  1  player == 1",
        "  2  reward[1] > 0",
        "",
        "> breaks",
        "  1  player == 1",
        "  2  reward[1] > 0",
        "",
        "> c",
        "player == 1",
        "step 1",
        "  player 1  Bet, prob 0.5",
        "",
        "> c",
        "reward[1] > 0",
        "step 2, paid -1 +1, terminated",
        "  player 0  Pass, prob 0.5  paid -1",
        "",
        "> clear 1",
        "  1  reward[1] > 0",
        "",
        "> restart",
        "step 0",
        "  player 0  Pass, prob 0.5",
        "",
        "> c",
        "reward[1] > 0",
        "step 2, paid -1 +1, terminated",
        "  player 0  Pass, prob 0.5  paid -1",
        "",
        "> clear",
        "no breakpoints",
        "",
        "> breaks",
        "no breakpoints",
        "",
        "> c",
        "the end, after 3 steps: terminated, returns -1 +1",
    ]


def test_the_run_s_policies_play_the_episode_that_is_filmed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "k", "--seed", "5", "--episodes", "2", "--out", "film.txt"]) == 0
    second = (runs / "film.txt").read_text().split("kuhn_poker, ")[2]
    capsys.readouterr()
    assert main(["debug", "k@meta", "--seed", "5", "--episode", "2", "--script", "c; picture; see; where"]) == 0
    out = capsys.readouterr().out
    board = out.partition("> picture\n")[2].splitlines()[0]
    assert f"    {board}\nreturns" in second
    assert "by k@0/0-" in out or ": k@0/0-" in out
    assert "seed 5, episode 2" in out


def test_a_table_a_text_and_a_file(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = debug(capsys, "go end; list; list 1 1; picture; save e.jsonl; save e.txt; state; restart 7")
    assert [line.split() for line in lines if ":" in line and line.startswith("  ")] == [
        ["0", "0:Pass", "0", "0", "0", "0"],
        ["1", "1:Bet", "0", "0", "0", "0"],
        ["2", "0:Pass", "-1", "+1", "-1", "+1", "terminated"],
        ["1", "1:Bet", "0", "0", "0", "0"],
    ]
    assert "e.jsonl, 3 steps" in lines
    assert (runs / "e.txt").read_text().endswith("step 3\n0 2 pbp\n")
    assert main(["debug", "e.jsonl", "--script", "c; picture; back; see"]) == 0
    out = capsys.readouterr().out
    assert "> picture\n0 2 pbp\n" in out
    assert "  saw       0pb\n  legal     Pass (0), Bet (1)\n  answered  Pass (0), prob 0.5, log -0.6931\n" in out
    assert main(["record", "e.jsonl", "e.html", "--steps", "2"]) == 2
    assert "--keep, --policies, --seed and --steps are of no use" in capsys.readouterr().err
    assert main(["debug", "k", "--script", "save e.txt"]) == 2
    assert "'e.txt' is there already; name another file, or start with --overwrite" in capsys.readouterr().err
    assert main(["debug", "k", "--overwrite", "--script", "save e.txt"]) == 0
    (runs / "half.jsonl").write_text("".join((runs / "e.jsonl").read_text().splitlines(keepends=True)[:-1]))
    for name, words in (("half.jsonl", "was cut"), ("e.txt", "there is no run"), ("none.jsonl", "No such file")):
        assert main(["debug", name, "--script", ""]) == 2
        assert words in capsys.readouterr().err


def test_commands_come_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("# twice\nnext; next\n\nwhere\n"))
    assert main(["debug", "k", *RANDOM, "--seed", "26"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith(">")] == [
        "> next",
        "> next",
        "> where",
    ]


def test_a_prompt_goes_on_after_a_mistake(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    typed: Iterator[Any] = iter(["next; bakc", "", KeyboardInterrupt(), "save full.jsonl", "help", EOFError()])

    def answer(prompt: str) -> str:
        print(prompt)  # whoever types ends the line
        given = next(typed)
        if isinstance(given, str):
            return given
        raise given

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ludus.apps.episodes.debugger.replace_file", full)
    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin", Terminal())
    assert main(["debug", "k", *RANDOM, "--seed", "26"]) == 0
    out = capsys.readouterr().out
    assert "error: unknown command 'bakc'; did you mean 'back' or 'break' or 'breaks'?" in out
    assert "error: 'full.jsonl' cannot be written: No space left on device. Name a file" in " ".join(out.split())
    assert "\n(1) " in out
    assert "`quit` leaves." in out
    assert "Conditions have numbers" in out
    assert all(len(line) <= 80 for line in out.splitlines())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("nxt", "unknown command 'nxt'; did you mean 'next'?"),
        ("next x", "'x' was given for steps; a whole number from 0 on was expected"),
        ("next 1 2", "'next 1 2' was given; the command is `next [K]`"),
        ("go", "the command is `go STEP`"),
        ("break", "the command is `break CONDITION`"),
        ("break reward[7] > 0", "there are 2 players, from 0 to 1"),
        ("clear 1", "breakpoint 1 was given; there are 0"),
        ("see 2", "player 2 was given; openspiel/kuhn_poker has the players 0 to 1"),
        ("see 0 1", "agent 1 was given; player 0 has the agents 0 to 0"),
        ("see 0 0 most", "'most' was given; `see 0 0 all` shows every number"),
        ("list 50 60", "steps 50 to 60 were asked for"),
        ("picture a.png", "'a.png' was given for text"),
        ("save a.avi", "a name that ends in .gif, .mp4, .txt or .jsonl is needed"),
        ("save nowhere/a.jsonl", "a file in a folder that there is"),
        ("save 'a", "cannot be read: No closing quotation"),
        ("save a.gif", "'a.gif' was given for text"),
    ],
)
def test_mistakes_in_a_script_end_it(runs: Path, script: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(runs.iterdir())
    assert main(["debug", "k", "--script", script]) == 2
    assert words in capsys.readouterr().err
    assert sorted(runs.iterdir()) == before


# ------------------------------------------------------------------------------------------ other environments


def session(capsys: pytest.CaptureFixture[str], episode: PlayedEpisode, script: str) -> str:
    with episode:
        Session(episode).follow(script.split("; "))
    out = capsys.readouterr().out
    assert all(len(text) <= 80 for text in out.splitlines())
    return out


def test_images_are_written_and_a_team_is_told_agent_by_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("PIL")
    pygame = pytest.importorskip("pygame")
    assert pygame
    policy = build_policy(PolicySpec("random", {"actions": 5}), {})
    team = PlayedEpisode(
        lambda: make_env("mpe2/simple_spread_v3", num_envs=1, teams="one", state=True, render=True), [policy]
    )
    out = session(capsys, team, "see 0 2; n; picture a.png; see; state; where; list 0 1")
    assert "player 0 agent 2 (agent_2), by player_0, explore\n  saw       float32[18]: " in out
    assert "> picture a.png\na.png, 700 × 700\n" in out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "float32[54]: " in out
    assert "player 0, 3 agents: player_0, explore; returns " in out
    assert " 0.0:" in out


class Many:
    """Twenty agents who see a hundred numbers, with names or without."""

    named = True

    def reset(self, seed: int) -> EnvStepResult:
        return EnvStepResult(due=[(k, np.full(100, k, np.float32) * (np.arange(100) < 2), None) for k in range(20)])

    def step(self, actions: Any) -> EnvStepResult:
        return EnvStepResult(gone=[(k, np.zeros(100, np.float32), TERMINATED) for k in range(20)], over=TERMINATED)

    def observation_names(self, player: int) -> list[str]:
        return [f"x{k}" for k in range(100)] if self.named else []

    def action_names(self, player: int) -> list[str]:
        return []

    def close(self) -> None:
        return None


@pytest.mark.parametrize("named", [True, False])
def test_much_is_told_in_few_lines(
    named: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Many, "named", named)
    agents = tuple(AgentSpec(f"agent_{k}", 0, Box(0, 20, (100,), np.float32), Discrete(2)) for k in range(20))
    spec = EnvSpec("tests/many", agents, ((-1, 1),), ((0,),))
    policy = build_policy(PolicySpec("random", {"actions": 2}), {})
    many = PlayedEpisode(lambda: PythonVectorEnv(Many, 1, spec=spec, masked=(False,)), [policy])
    out = session(capsys, many, "see; see 0 7; see 0 7 all; see 0 19; list 0 0")
    assert "  and 8 more: `see PLAYER AGENT`\n" in out
    assert "and 16 more: `see PLAYER AGENT`\n" in out
    if named:
        assert "  saw       x0=7, x1=7\n            98 others are 0\n" in out
        assert "x98=0, x99=0\n" in out
    else:
        assert "  saw       float32[100]: least 0, mean 0.14, greatest 7, 2 not 0 (`see PLAYER\n" in out
        assert "  saw       float32[100]: 7 7 0 0 0" in out


def test_one_command_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    policy = build_policy(PolicySpec("random", {"actions": 2}), {})
    with PlayedEpisode(lambda: make_env("openspiel/kuhn_poker", num_envs=1), [policy, policy]) as episode:
        commands = Session(episode)
        commands.do("n")
        assert episode.position == 1
        with pytest.raises(ConfigError):
            commands.do("m")
    assert capsys.readouterr().out.startswith("step 1")
