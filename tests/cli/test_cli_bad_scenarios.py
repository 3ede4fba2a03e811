"""Mistakes that people make in scenario files and overrides: one line that helps, and nothing on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.core.errors import UnknownName, article, nearest
from ludus.driver.scenario_files import list_presets


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    return tmp_path


def refused(folder: Path, capfd: pytest.CaptureFixture[str], *line: str) -> str:
    before = sorted(folder.rglob("*"))
    assert main(line) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(folder.rglob("*")) == before
    return err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("env:\n\tid: x\n", "found character '\\t' that cannot start any token while scanning for the next token (my.yaml, line 2"),
        ("a: 1\n---\nb: 2\n", "but found another document expected a single document in the stream (my.yaml, line 2"),
        ("env: &a {id: x, options: *a}\n", "it is nested too deeply (my.yaml)"),
        ("[" * 500, "it is nested too deeply (my.yaml)"),
        ("name: 2026-99-99\n", "the scenario is not valid YAML: month must be in 1..12 (my.yaml)"),
        ("# nothing\n", "given nothing (my.yaml). `ludus config PRESET` prints one."),
    ],
)  # fmt: skip
def test_files(folder: Path, capfd: pytest.CaptureFixture[str], text: str, words: str) -> None:
    (folder / "my.yaml").write_text(text)
    assert words in refused(folder, capfd, "train", "my.yaml")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["my.yml"], "scenario file 'my.yml' cannot be read: No such file or directory. `ludus list presets`"),
        (["."], "unknown preset '.'"),
        (["./"], "scenario file './' cannot be read: Is a directory."),
        (["KUHN"], "unknown preset 'KUHN'; did you mean 'kuhn'"),
        (["kuhn", "name=a b"], "name: 'a b' was given; use letters, digits, - _ and ., a letter or digit first."),
        (
            ["kuhn", "algorithm=null"],
            "algorithm: an algorithm was expected, by name or as a mapping with `kind`; given None.",
        ),
        (["kuhn", "algorithm=exacct"], "An algorithm of your own is named module:Class."),
        (["kuhn", "algorithm=os:getcwd"], "'os:getcwd' is no class; an algorithm of your own is named module:Class."),
        (["kuhn", "algorithm=':x'"], "algorithm ':x' is no name"),
        (["kuhn", "env=os:path"], "expected a class, or a function that makes an environment"),
        (["kuhn", "env=json:JSONDecoder"], "has none of the interfaces that Ludus plays"),
        (["kuhn", "env=openspiel/kuhn"], "unknown OpenSpiel game 'kuhn'; did you mean 'kuhn_poker'"),
        (
            ["leduc", "algorithm.hidden=[0]"],
            "algorithm: hidden.0: Input should be greater than or equal to 1 (given: 0)",
        ),
        (["leduc", "warm_start={source: last, first: -1}"], "first: Input should be greater than or equal to 1"),
        (["leduc", "warm_start={source: last, first: 3, last: 2}"], "from generation 3 to 2 there is none"),
        (["kuhn", "stop={seconds: 5"], "(line 1, column 12)"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_overrides(folder: Path, capfd: pytest.CaptureFixture[str], line: list[str], words: str) -> None:
    assert words in refused(folder, capfd, "train", *line)


def test_a_compiled_tree_of_ones_own_environment(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "only OpenSpiel's games can be compiled" in refused(folder, capfd, "train", "kuhn", "env=a:B", "env.tree=on")


def test_an_alias_that_is_used_twice_is_fine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my.yaml").write_text(
        "env: openspiel/kuhn_poker\nwarm_start: [&a {source: last, first: 2}, *a]\nalgorithm: exact\n"
    )
    assert main(["config", "my.yaml"]) == 0
    assert capsys.readouterr().out.count("source: last") == 2


def test_presets_are_in_order() -> None:
    assert list(list_presets()) == sorted(list_presets())


def test_near_names() -> None:
    assert nearest("LEDUC", ["leduc", "kuhn"]) == "; did you mean 'leduc'?"
    assert nearest("poker", ["leduc_poker", "kuhn_poker", "chess"]) == "; did you mean 'kuhn_poker' or 'leduc_poker'?"
    assert nearest("po", ["leduc_poker"]) == " (known: leduc_poker)."
    assert (article("algorithm"), article("meta-solver")) == ("an algorithm", "a meta-solver")
    assert "An environment" in str(UnknownName("x", "y", [], hint="An environment"))
