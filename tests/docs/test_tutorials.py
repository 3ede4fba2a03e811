"""Tutorials: scripts run, and the code on their pages is the scripts'."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest

SCRIPTS = pages.EXAMPLES / "tutorials"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "figures")
PAGES = {name: pages.ROOT / "docs" / "tutorials" / f"{name}.md" for name in NAMES}
PICTURES = pages.ROOT / "docs" / "images" / "tutorials"
MOST_WORDS, MOST_BYTES = 900, 40_000


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The tutorials can be imported, as where one of them is the program; what they write goes to an empty folder."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("figures", *NAMES):
        sys.modules.pop(name, None)


def test_every_tutorial_has_its_page_and_the_overview_has_them_all() -> None:
    folder = pages.ROOT / "docs" / "tutorials"
    assert {path.stem for path in folder.glob("*.md")} == {"index", *NAMES}
    overview = pages.text(folder / "index.md")
    assert {name for name in NAMES if f"({name}.md)" not in overview} == set()


def code(page: Path, title: str) -> list[str]:
    """The Python blocks of a page whose title is of this pattern."""
    return re.findall(rf"^```python{title}\n(.*?)^```$", pages.text(page), re.DOTALL | re.MULTILINE)


def characters(code: str) -> str:
    """The code without white space and trailing commas: formatters indent and wrap it on a page as they like."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s", "", code))


@pytest.mark.parametrize("name", NAMES)
def test_code_of_the_page_is_the_scripts(name: str) -> None:
    source = characters(pages.text(SCRIPTS / f"{name}.py"))
    blocks = code(PAGES[name], '(?: title="(?:Ludus|JORLDY)")?')
    assert blocks
    for block in blocks:
        assert characters(block) in source, f"{name}.md has code that {name}.py does not have:\n{block}"
    assert f"(../../examples/tutorials/{name}.py)" in pages.text(PAGES[name])


@pytest.mark.parametrize("name", NAMES)
def test_code_of_other_systems_parses(name: str) -> None:
    """It is in blocks with a title, which nobody runs here."""
    for block in code(PAGES[name], ' title="(?!Ludus|JORLDY)[^"]+"'):
        ast.parse(block)


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_short(name: str) -> None:
    assert len(pages.text(PAGES[name]).split()) <= MOST_WORDS


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_a_small_picture(name: str) -> None:
    picture = PICTURES / f"{name}.svg"
    assert f"(../images/tutorials/{name}.svg)" in pages.text(PAGES[name])
    assert picture.stat().st_size <= MOST_BYTES
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


OWN_GAME = {"own_game.GENERATIONS": 1, "own_game.EPISODES": 1_000, "own_game.MATCHES": 200}
RUNS = [
    (
        "own_game",
        OWN_GAME,
        r"@meta against random: \+0\.[1-9].*\n.*\n.*\na policy trained against the mixture gains \+",
    ),
    (
        "league_scripts",
        {"league_scripts.GENERATIONS": 1, "league_scripts.EPISODES": 1_300},
        r"members: 0-0, bot.+, main-0-1, main_exploiter-0-1\nthe main agent against plan 222: \[-?0\.\d+\]\n",
    ),
    ("find_exploit", {}, r"release 1: .*: do not ship it\n(  .*\n){3}release 2: .*: ship it\n"),
    (
        "best_response_sb3",
        {
            "best_response_sb3.ENV": "openspiel/kuhn_poker",
            "best_response_sb3.ALGORITHM": "stable_baselines3:PPO",  # in Kuhn poker every action is legal
            "best_response_sb3.GENERATIONS": 1,
            "best_response_sb3.DECISIONS": 8_192,
            "best_response_sb3.DEALS": 200,
        },
        r"MaskablePPO \+0\.\d+ ± 0\.\d+ against the mixture\n(.*\n)*at best      \+0\.",
    ),
    (
        "negotiation",
        {"negotiation.GENERATIONS": 1, "negotiation.EPISODES": 750, "negotiation.GAMES": 300},
        r"independent: .*, together [2-5]\.\d+\nCCE: .*\n  profiles with weight: .*\nCE: .*\n",
    ),
    ("tournament", {**OWN_GAME, "tournament.EPISODES": 20}, r"(?s)by elo .*\n\s+222 .* -1\.00 .*random"),
    (
        "from_rllib",
        {"from_rllib.SNAPSHOTS": 1, "from_rllib.EPISODES": 2_000},
        r"against random play: \[-?0\.\d* +0\.[3-9]\d*\]",
    ),
    ("from_openspiel", {}, r"exact responses: NashConv 0\.917 -> 0\.000\nDQN: NashConv 0\.917 -> 0\.[0-3]"),
    (
        "from_sb3",
        {"from_sb3.GENERATIONS": 1, "from_sb3.GAMES": 50},
        r"won against random moves, by snapshot: \[0\.[4-9]",
    ),
    ("from_malib", {"from_malib.ITERATIONS": 2}, r"(?s)scenario: psro\n.*from MALib: .*\nfrom Light-MALib: .* -> 0\."),
    ("from_jorldy", {"from_jorldy.STEPS": 1_500, "from_jorldy.SNAPSHOTS": 1}, r"mean return by snapshot: \[ *\d+"),
    (
        "from_mlagents",
        {"from_mlagents.CONFIG": lambda text: text.replace(": 60000", ": 24000")},
        r"the last snapshot against all: \[",
    ),
]


def test_every_tutorial_is_run() -> None:
    assert sorted(name for name, *_ in RUNS) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "output"), RUNS, ids=[name for name, *_ in RUNS])
def test_tutorial_runs(
    name: str,
    settings: dict[str, Any],
    output: str,
    scripts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With smaller settings than a reader's. Its picture is of the kind that the page shows."""
    module = importlib.import_module(name)
    for path, value in settings.items():
        monkeypatch.setattr(path, value(getattr(module, path.partition(".")[2])) if callable(value) else value)
    module.main()
    assert re.search(output, capsys.readouterr().out)
    assert title(scripts / f"{name}.svg") == title(PICTURES / f"{name}.svg")


def title(picture: Path) -> str:
    """The largest text of a picture."""
    texts = [text for text in ElementTree.parse(picture).iter() if text.tag.endswith("text")]
    return str(max(texts, key=lambda text: float(text.get("font-size", "0"))).text)
