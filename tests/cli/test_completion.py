"""Completion: the script of each shell, and what answers it. zsh and fish themselves are in test_completion_shells.py."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_run as synthetic

from ludus.cli.completion import lookup
from ludus.cli.completion.answer import answer, for_bash, split
from ludus.cli.completion.candidates import KINDS, complete, read_table
from ludus.cli.completion.command import script
from ludus.cli.main import main

BREAKS = " \t\n\"'@><=;|&(:"
"""COMP_WORDBREAKS of bash."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, an experiment, a scenario's file and one of a policy."""
    folder = tmp_path_factory.mktemp("present")
    for name in ("try1", "other", "five/seed-0"):
        synthetic.write(folder / "runs" / name, generations=1)
    (folder / "runs/five/experiment.yaml").write_text("name: five\n")
    (folder / "my.yaml").write_text(
        "scenario: league\nalgorithm: {kind: dqn, double: true}\nenv: gymnasium/CartPole-v1\n"
    )
    for name in ("a b.safetensors", "walker.zip", "walker.onnx", "walker.pt"):
        (folder / name).touch()
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder."""
    monkeypatch.chdir(folder)
    return folder


def texts(line: str) -> list[str]:
    """What completes a line, whose last word may be empty."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    return [one.text for one in complete(words)]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("trai", ["train"]),
        ("help trai", ["train"]),
        ("train leduc --mo", ["--mode"]),
        ("train leduc --mode ", ["sync", "async"]),
        ("train leduc --mode=a", ["--mode=async"]),
        ("train leduc-e", ["leduc-exact"]),
        ("train my", ["my.yaml"]),
        ("train gymnasium/CartP", ["gymnasium/CartPole-v1"]),
        ("train leduc algorithm=q", ["algorithm=qmix", "algorithm=qplex", "algorithm=qr_dqn"]),
        ("train leduc env.work", ["env.workers="]),
        ("train leduc env=openspiel/leduc", ["env=openspiel/leduc_poker"]),
        ("train leduc runtime.inference.kind=", ["runtime.inference.kind=local", "runtime.inference.kind=server"]),
        ("train leduc algorithm=dqn algorithm.distr", ["algorithm.distribution="]),
        ("train leduc --algorithm dqn algorithm.distribution=c", ["algorithm.distribution=c51"]),
        ("train leduc algorithm.learning_rate.sh", ["algorithm.learning_rate.shape="]),
        ("train my.yaml algorithm.dueling=", ["algorithm.dueling=true", "algorithm.dueling=false"]),
        ("train my.yaml league_e", ["league_exploiters="]),
        ("train leduc stop.win_rate.", ["stop.win_rate.above=", "stop.win_rate.matches="]),
        ("train leduc algorithms.1=pp", ["algorithms.1=ppo"]),
        ("train leduc opponents=try1@be", ["opponents=try1@best"]),
        ("status o", ["other"]),
        ("resume five", ["five/seed-0", "five"]),
        ("evaluate tr", ["try1", "try1@"]),
        ("evaluate try1@n", ["try1@newest"]),
        ("evaluate try1 --policies @b", ["@best"]),
        ("evaluate ./runs/try1@strong", ["./runs/try1@strongest"]),
        ("tournament bot:r", ["bot:random"]),
        ("tournament sb", ["sb3:"]),
        ("tournament sb3:", ["sb3:runs/", "sb3:walker.zip"]),
        ("tournament try1 onnx:wal", ["onnx:walker.onnx"]),
        ("train leduc opponents=torch:wal", ["opponents=torch:walker.pt"]),
        ("tournament https", ["https://"]),
        ("export try1 --to py", ["python"]),
        ("export a", ["a b.safetensors"]),
        ("list policies t", ["try1"]),
        ("check-env gymnasium/CartPole-v1 zero_sum=", ["zero_sum=true", "zero_sum=false"]),
        ("completion z", ["zsh"]),
        ("sweep my.yaml metric=nash", ["metric=nash_conv"]),
        ("sweep my.yaml changes.gener", ["changes.generations="]),
        ("compare five --metric nash", ["nash_conv"]),
    ],
)
def test_candidates(here: Path, line: str, some: list[str]) -> None:
    assert texts(line) == some


@pytest.mark.parametrize(
    "line", ["nothing ", "train leduc --seed ", "train leduc noth", "train leduc --noth", "doctor --noth"]
)
def test_nothing_is_proposed_where_nothing_is_known(here: Path, line: str) -> None:
    assert texts(line) == []


def test_options_are_proposed_once_and_where_they_are_asked_for(here: Path) -> None:
    assert "--seed" not in texts("train leduc --seed 3 --")
    assert "--rating" in texts("evaluate try1 --rating elo --")  # which may be given again
    assert texts("doctor ") == ["--help", "--no-speed"]
    assert "generations=" in texts("train leduc ")


def test_policies_of_a_run_and_its_generations(here: Path) -> None:
    run = lookup.policies("try1")
    assert {"meta", "best", "0/p0", "0"} <= {what for what, _ in run}
    assert [what for what, _ in lookup.policies("nowhere")] == ["meta", "best", "strongest", "newest"]


def test_a_damaged_run_has_the_names_that_all_have(tmp_path: Path) -> None:
    (tmp_path / "ludus.db").write_bytes(b"damaged")
    assert [what for what, _ in lookup.policies(str(tmp_path))] == ["meta", "best", "strongest", "newest"]


def test_names_that_other_packages_register(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site/penalised-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "entry_points.txt").write_text(
        "[ludus.algorithms]\nqpenalised = p:Penalised\n\n[ludus.envs]\nblotto = b:B\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert "algorithm=qpenalised" in texts("train leduc algorithm=q")
    assert texts("train blo") == ["blotto/"]


def test_every_kind_of_value_in_the_table_is_known() -> None:
    table = read_table()
    arguments = [
        one for command in table["commands"].values() for one in (*command["options"].values(), *command["positionals"])
    ]
    fields = [field for group in table["groups"].values() for field in group.values()]
    assert {kind for one in arguments for kind in one.get("values", ())} <= set(KINDS)
    assert {kind for field in fields for kind in field.get("kinds", ())} <= set(KINDS)
    assert {field["group"] for field in fields if "group" in field} <= set(table["groups"])
    assert {field["part"] for field in fields if "part" in field} <= set(table["parts"])


# ---------------------------------------------------------------------------------------------- bash


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("ludus train leduc algorithm=qr", ["qr_dqn "]),  # bash has a word of its own after =
        ("ludus evaluate try1@newe", ["@newest "]),
        ("ludus tournament bot:rand", ["random "]),
        ("ludus export a", ["a\\ b.safetensors "]),
        ("ludus export a\\ b", ["a\\ b.safetensors "]),
        ("ludus export 'a", ["a b.safetensors"]),
        ("ludus train leduc 'algorithm=qr", ["algorithm=qr_dqn"]),
        ("OMP_NUM_THREADS=1 ludus stat", ["status "]),
        ("ludus train leduc env.work", ["env.workers="]),
        ("ludus train leduc env='open", []),
        ("ludus", []),
    ],
)
def test_replies_to_bash(here: Path, line: str, replies: list[str]) -> None:
    assert for_bash(line, BREAKS) == replies


def test_words_of_a_line() -> None:
    assert split('ludus  train "a b" c\\ d') == (["ludus", "train", "a b", "c d"], "c\\ d", "")
    assert split("ludus '' ") == (["ludus", "", ""], "", "")
    assert split("ludus 'a b") == (["ludus", "a b"], "'", "'")


def environment(folder: Path) -> dict[str, str]:
    """With a command `ludus` on the path, as an installation has it."""
    (folder / "bin").mkdir()
    command = folder / "bin" / "ludus"
    command.write_text(f"#!{sys.executable}\nfrom ludus.cli.start import script\nscript()\n")
    command.chmod(0o755)
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": root}


def test_bash_itself(here: Path, tmp_path: Path) -> None:
    """bash reads the script, calls its function as at a Tab, and has the replies."""
    lines = ["ludus trai", "ludus train leduc algorithm=qr", "ludus evaluate try1@newe", "ludus --nothing "]
    calls = [
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; COMP_WORDS=({line}); COMP_CWORD=1; COMPREPLY=(old)\n"
        "_ludus ludus; printf '<%s>' \"${COMPREPLY[@]}\"; echo"
        for line in lines
    ]
    text = "\n".join([script("bash"), "complete -p ludus", *calls])
    done = subprocess.run(
        ["bash", "--norc", "-c", text],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "complete -o nospace -F _ludus ludus",
        "<train >",
        "<qr_dqn >",
        "<@newest >",
        "<>",
    ]
    assert done.stderr == ""


def test_the_answer_loads_the_standard_library_only(here: Path) -> None:
    text = (
        "import sys; from ludus.cli.start import script\n"
        "sys.argv = ['ludus', 'completion', '--candidates', 'fish', 'train', 'leduc', 'algorithm=dq']; script()\n"
        "print(sorted({'argparse', 'numpy', 'pydantic', 'rich', 'torch', 'yaml', 'ludus.core'} & set(sys.modules)))"
    )
    quiet = {name: value for name, value in os.environ.items() if name != "LUDUS_ROUNDING_NOISE"}  # which loads more
    done = subprocess.run(
        [sys.executable, "-c", text], env=quiet, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "algorithm=dqn\t\n[]\n"


def test_a_fault_is_silent_unless_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    answer(["bash"])  # two arguments are missing
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("LUDUS_DEBUG", "1")
    with pytest.raises(TypeError):
        answer(["bash"])


@pytest.mark.parametrize(("shell", "line"), [("zsh", "1\ttrain\t"), ("fish", "train\t")])
def test_other_shells_have_descriptions(shell: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer([shell, "trai"])
    assert capsys.readouterr().out == f"{line}Train a preset, a scenario file or an environment in a new run\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell)
    assert f"completion --candidates {shell} " in script(shell)
