"""Names that distributions register by entry points: when they are read, what they stand for, and what is said of broken ones."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ludus.contrib.algorithms.mpo.config import MPO
from ludus.core import parts
from ludus.core.errors import ConfigError, UnknownName
from ludus.core.parts import Registry, build_part, load_entry_point, registered_name, resolve_name, source_of
from ludus.policies.bots import BotSpec

OWN = {"ppo": "ludus.algorithms.ppo.config:PPO"}


def algorithms() -> Registry[str]:
    return Registry("algorithm", "ludus.algorithms", OWN)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a distribution with entry points on Python's path."""

    def install(name: str, /, *, group: str = "ludus.algorithms", **points: str) -> None:
        folder = tmp_path / name
        metadata = folder / f"{name.replace('-', '_')}-1.2.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = "".join(f"{key} = {value}\n" for key, value in points.items())
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        monkeypatch.syspath_prepend(str(folder))

    return install


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: str) -> None:
        raise AssertionError("metadata was read")

    monkeypatch.setattr(parts, "entry_points", refuse)


def test_installed_entry_points_are_those_of_the_source() -> None:
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        source = tomllib.load(file)["project"]["entry-points"]
    installed = {group: {point.name: point.value for point in entry_points(group=group)} for group in source}
    assert installed == source, "`make install` registers them"


@pytest.mark.usefixtures("unread")
def test_own_names_and_classes_by_module_read_no_metadata() -> None:
    table = algorithms()
    assert (table["ppo"], "ppo" in table, "mine:Class" in table) == (OWN["ppo"], True, False)
    part = build_part("algorithm", "ppo", table)
    assert registered_name(part, table) == "ppo"
    with pytest.raises(ConfigError, match="'absent:Class' could not be imported"):
        resolve_name("algorithm", "absent:Class", table)


def test_names_of_a_distribution_stand_beside_the_librarys(install: Callable[..., None]) -> None:
    install("plugin", **{"their.ppo-2": "ludus.contrib.algorithms.mpo.config:MPO"})
    table = algorithms()
    assert table["their.ppo-2"] == "ludus.contrib.algorithms.mpo.config:MPO"
    assert {"ppo", "their.ppo-2", "happo"} <= set(table)
    assert len(table) == len(list(table))
    assert resolve_name("algorithm", "their.ppo-2", table) is MPO
    with pytest.raises(UnknownName, match=r"did you mean 'their.ppo-2'\?"):
        resolve_name("algorithm", "their.ppo-3", table)


def test_import_error_of_a_plugin_names_its_distribution(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "falls.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    install("plugin", absent="absent_module:Class", falls="falls:Class", misspelt="ludus.core.parts:Registri")
    table = algorithms()
    whose = "of the distribution plugin 1.2"
    with pytest.raises(
        ConfigError, match=rf"algorithm 'absent' {whose} could not be imported: No module named 'absent_"
    ):
        resolve_name("algorithm", "absent", table)
    with pytest.raises(ConfigError, match=rf"algorithm 'falls' {whose}: importing 'falls' raised RuntimeError: no lic"):
        resolve_name("algorithm", "falls", table)
    with pytest.raises(ConfigError, match=rf"'misspelt' {whose}: module 'ludus.core.parts' has no 'Registri'; did you"):
        load_entry_point("algorithm", table.added["misspelt"])


def test_a_name_of_the_librarys_is_refused(install: Callable[..., None]) -> None:
    install("plugin", ppo="mine:PPO")
    with pytest.raises(
        ConfigError, match=r"the distribution plugin 1.2 registers the algorithm 'ppo', which Ludus has"
    ):
        list(algorithms())


def test_a_name_of_two_distributions_is_refused(install: Callable[..., None]) -> None:
    install("first", happy="first:Happy")
    install("second", happy="second:Happy")
    with pytest.raises(ConfigError, match=r"the distribution second 1.2 and the distribution first 1.2 both register"):
        _ = "happy" in algorithms()


def test_the_same_of_two_distributions_is_one(install: Callable[..., None]) -> None:
    install("first", happy="first:Happy")
    install("second", happy="first:Happy")
    assert algorithms()["happy"] == "first:Happy"


@pytest.mark.parametrize(("name", "value"), [("a/b", "mine:Class"), ("mine", "mine")])
def test_names_and_values_that_cannot_be_are_refused(install: Callable[..., None], name: str, value: str) -> None:
    install("plugin", **{name: value})
    with pytest.raises(
        ConfigError, match=rf"plugin 1.2 registers the algorithm '{name}' as '{value}'; a name of letters"
    ):
        list(algorithms())


def test_contrib_entries_have_no_foreign_source(install: Callable[..., None]) -> None:
    install("plugin", theirs="theirs:Class")
    table = algorithms()
    assert [source_of(name, table) for name in ("ppo", "happo", "mine:Class", "absent")] == [""] * 4
    assert source_of("theirs", table) == " of the distribution plugin 1.2"


def test_bots_of_a_distribution_are_taken_for_ones_own(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("plugin", group="ludus.bots", even="theirs:Even")
    monkeypatch.setattr("ludus.policies.bots.BOTS", Registry("bot", "ludus.bots", {"ours": "ours:Bot"}))
    specs = [BotSpec(kind, {}) for kind in ("ours", "football_script", "even", "mine:Bot")]
    assert [(spec.own, spec.name) for spec in specs] == [
        (False, "bot:ours"),
        (False, "bot:football_script"),
        (True, "bot:even"),
        (True, "mine:Bot"),
    ]


def test_an_object_that_is_no_family_names_its_distribution(install: Callable[..., None]) -> None:
    from ludus.envs.families import FAMILIES

    install("plugin", group="ludus.envs", theirs="ludus.core.parts:Registry")
    table = Registry(FAMILIES.what, FAMILIES.group, FAMILIES.own, FAMILIES.value)
    with pytest.raises(ConfigError, match=r"'theirs' of the distribution plugin 1.2: ludus.core.parts:Registry is no"):
        _ = table["theirs"]


@pytest.mark.parametrize("metadata", [None, "ludus-rl"])
def test_a_tree_that_is_not_installed_says_so(
    metadata: str | None, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without metadata, or with those of before there were entry points."""
    if metadata is not None:
        install(metadata)
    monkeypatch.setattr(parts, "entry_points", lambda **_: ())
    monkeypatch.setattr(parts, "DISTRIBUTION", metadata or "absent")
    monkeypatch.setattr("ludus.core.parts.missing_contrib", parts.missing_contrib.__wrapped__)
    with pytest.raises(UnknownName, match=r"'happo'.* ludus.contrib is not registered .* `make install`"):
        resolve_name("algorithm", "happo", algorithms())
