"""What people type wrongly (bad_inputs.yaml): the exit code, one line on standard error that helps, and nothing on disk."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

import ludus
from ludus.cli.main import main
from ludus.core.errors import UnknownName, article, nearest
from ludus.runs.scenario_files import list_presets, needs_of_presets

HERE = Path(__file__).parent
TABLE = yaml.safe_load((HERE / "bad_inputs.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the finished run "mine"."""
    folder = tmp_path_factory.mktemp("bad")
    kuhn = ludus.Environment(id="openspiel/kuhn_poker", num_envs=16)
    ludus.run(ludus.PSRO(env=kuhn, algorithm="exact", generations=2), run_dir=folder / "runs" / "mine", report=False)
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path, str(HERE.parent / "evaluation")])


def refused(folder: Path, capfd: pytest.CaptureFixture[str], line: list[str]) -> str:
    """The one line on standard error, with code 2. Nothing else is said, by libraries in C neither, and nothing is made or changed."""
    before = contents(folder)
    assert main(line) == 2
    out, err = capfd.readouterr()
    err = err.removeprefix("compiling kernels, once for this installation\n")  # the first time on a slow machine
    assert (out, err[:7], err.count("\n")) == ("", "error: ", 1)
    assert contents(folder) == before
    return err


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "words"), TABLE["refused"])
def test_bad_input_is_rejected_with_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    assert words in refused(folder, capfd, shlex.split(line))


@pytest.mark.parametrize(("text", "words"), TABLE["files"])
def test_a_wrong_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_bytes(text.encode("latin-1"))
    assert words in refused(tmp_path, capfd, ["train", "my.yaml", "--name", "mine"])


@pytest.mark.parametrize(("line", "code", "words"), TABLE["failed"])
def test_late_failure_is_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], line: str, code: int, words: str
) -> None:
    """In code of one's own, or where every response failed: the run is kept, and can be looked at."""
    try:
        assert main([*shlex.split(line), "--run-dir", "failed"]) == code
        assert words in capfd.readouterr().err
        assert main(["status", "failed"]) == 0
    finally:
        shutil.rmtree(folder / "failed")


def test_the_table_is_long() -> None:
    assert sum(map(len, TABLE.values())) >= 100


def test_a_policy_of_another_shape_is_no_warm_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["algorithm={kind: ppo, hidden: [4], batch: 10, epochs: 1}", "response={episodes: 10}", "generations=1"]
    assert main(["train", "kuhn", *small, "env.num_envs=4", "--run-dir", "first"]) == 0
    capfd.readouterr()
    path = "first/policies/0/0-1.safetensors"
    start = f"warm_start={{source: file, path: {path}}}"
    line = ["train", "kuhn", *small, start, "--run-dir", "second"]
    assert "holds a policy of kind 'actor_critic'" in refused(tmp_path, capfd, [*line, "algorithm.hidden=[5]"])
    assert main([*line, "env.num_envs=4"]) == 0
    damaged = bytearray((tmp_path / path).read_bytes())[:-5]
    (tmp_path / path).write_bytes(damaged)
    capfd.readouterr()
    line[-1] = "third"
    assert "is not a policy that can be loaded" in refused(tmp_path, capfd, line)


def test_an_alias_that_is_used_twice_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(
        "env: openspiel/kuhn_poker\nwarm_start: [&a {source: last, first: 2}, *a]\nalgorithm: exact\n"
    )
    assert main(["config", "my.yaml"]) == 0
    assert capsys.readouterr().out.count("source: last") == 2


def test_presets_are_in_order() -> None:
    assert list(list_presets()) == sorted(list_presets())


def test_presets_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """In their names, or in what they are."""
    assert main(["list", "presets", "LEDUC"]) == 0
    found = {line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]}
    assert found == {name for name, what in list_presets().items() if "leduc" in f"{name} {what}".lower()}
    assert {"leduc", "leduc-exact"} < found < set(list_presets())


def test_presets_say_which_extra_they_need() -> None:
    needs = needs_of_presets()
    assert list(needs) == list(list_presets())
    some = (
        "kuhn",
        "leduc",
        "cartpole",
        "memory",
        "hopper",
        "lunar-lander",
        "ant-2x4",
        "simple-spread",
        "smax-3m",
        "pong",
    )
    brings = ("openspiel", "openspiel", "", "", "mujoco", "box2d", "mamujoco", "mpe2", "jax", "atari")
    assert tuple(needs[name] for name in some) == brings
    assert needs["football-5v5"] == "make football"
    assert needs["cartpole-gail"] == "parquet"


def test_near_names() -> None:
    assert nearest("LEDUC", ["leduc", "kuhn"]) == "; did you mean 'leduc'?"
    assert nearest("poker", ["leduc_poker", "kuhn_poker", "chess"]) == "; did you mean 'kuhn_poker' or 'leduc_poker'?"
    assert nearest("po", ["leduc_poker"]) == " (known: leduc_poker)."
    assert nearest("PRD", ["nash", "projected_replicator_dynamics"]).endswith("'projected_replicator_dynamics'?")
    many = [f"a{k}" for k in range(20)] + ["zebra_crossing"]
    assert nearest("zzz", many).endswith(", zebra_crossing, and 9 more)."), "the most similar of many are listed"
    assert (article("algorithm"), article("meta-solver")) == ("an algorithm", "a meta-solver")
    assert "An environment" in str(UnknownName("x", "y", [], hint="An environment"))
