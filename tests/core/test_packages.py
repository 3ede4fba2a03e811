"""Ludus without the packages of its extras: what works, and what is said where one is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError
from ludus.core.packages import EXTRAS, check_extra, extra_of, install_command, missing_package, require

BLOCK = f"""
import json, sys

blocked = {sorted({module for modules in EXTRAS.values() for module in modules})}
sys.modules.update(dict.fromkeys(blocked))  # which cannot be imported, and are not found
"""
CARTPOLE = """
import ludus

for name in ludus.__all__:
    getattr(ludus, name)


class Notes(ludus.storage.base.NullObserver):
    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)


notes = Notes()
changes = {"generations": 1, "response": {"episodes": 4}, "evaluation": {"episodes": 2}}
result = ludus.run("gymnasium/CartPole-v1", run_dir="run", observer=notes, algorithm=ludus.PPO(batch=64), **changes)
assert result.report.stat().st_size > 10_000
print(json.dumps(notes.texts))
"""
COMMANDS = """
import contextlib, io
from ludus.cli.main import main

said = []
for words in {commands}:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(words)
    said.append((code, out.getvalue()))
print(json.dumps(said))
"""
WORKING = (
    ["report", "run"],
    ["list", "presets"],
    ["list", "bots"],
    ["list", "ratings"],
    ["list", "envs"],
    ["doctor", "--no-speed"],
)
REFUSED = {  # arguments of a command -> what it says
    "train kuhn": "environments openspiel/… need pyspiel, which is not installed; `pip install 'ludus-rl[openspiel]'` brings it.",
    "train pettingzoo/connect_four_v3": "environments pettingzoo/… need pettingzoo, which is not installed; "
    "`pip install 'ludus-rl[pettingzoo]'` brings it.",
    "train gymnasium/CartPole-v1 --runtime ray": "runtime 'ray' needs ray, which cannot be imported; "
    "`pip install 'ludus-rl[ray]'` brings it.",
    "tournament run@best bot:mcts": "bot 'mcts' needs pyspiel, which cannot be imported; `pip install 'ludus-rl[openspiel]'` brings it.",
    "tournament run@best bot:fixed_action": "unknown bot 'fixed_action' (known: football_built_in, football_script, ismcts, mcts, random, "
    "uniform_restricted_actions). OpenSpiel registers more; `pip install 'ludus-rl[openspiel]'` brings them. A bot of your own is named "
    "module:Class.",
    "train gymnasium/CartPole-v1 --ui": "--ui needs fastapi, which cannot be imported; `pip install 'ludus-rl[ui]'` brings it.",
    "train gymnasium/CartPole-v1 --track tensorboard": "the tracker 'tensorboard' needs tensorboard, which cannot be imported; "
    "`pip install 'ludus-rl[tensorboard]'` brings it.",
    "ui": "the page needs fastapi, which cannot be imported; `pip install 'ludus-rl[ui]'` brings it.",
    "evaluate run --rating openskill": "the rating openskill needs openskill, which cannot be imported; "
    "`pip install 'ludus-rl[openskill]'` brings it.",
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[tuple[int, str]]]:
    """(messages of a run, (exit code, output) of each command after it), where no package of an extra can be imported."""
    commands = [*WORKING, *(line.split() for line in REFUSED)]
    script = BLOCK + CARTPOLE + COMMANDS.replace("{commands}", repr(commands))
    folder = tmp_path_factory.mktemp("bare")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    notes, said = map(json.loads, done.stdout.splitlines()[-2:])
    return notes, said


@pytest.mark.slow
def test_cartpole_trains_without_any_extra(bare: tuple[list[str], list[tuple[int, str]]]) -> None:
    assert not [text for text in bare[0] if "TensorBoard" in text or "pip install" in text]


@pytest.mark.slow
def test_commands_that_need_no_extra_work_without_any(bare: tuple[list[str], list[tuple[int, str]]]) -> None:
    said = dict(zip(map(tuple, WORKING), bare[1], strict=False))
    assert [code for code, _ in said.values()] == [0] * len(WORKING), said
    doctor = said["doctor", "--no-speed"][1]
    for extra in EXTRAS:
        assert f"no; `pip install 'ludus-rl[{extra}]'`" in doctor


@pytest.mark.slow
@pytest.mark.parametrize("line", REFUSED)
def test_missing_extra_names_install_command(line: str, bare: tuple[list[str], list[tuple[int, str]]]) -> None:
    code, text = bare[1][len(WORKING) + list(REFUSED).index(line)]
    assert (code, " ".join(text.split())) == (2, f"error: {REFUSED[line]}")


def test_every_extra_is_named_by_what_it_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    for extra, modules in EXTRAS.items():
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, modules[0], None)
            expected = f"x needs {modules[0]}, which cannot be imported; `pip install 'ludus-rl[{extra}]'` brings it."
            with pytest.raises(ConfigError) as caught:
                check_extra(extra, "x")
            assert str(caught.value) == expected
            with pytest.raises(ConfigError) as caught:
                require(modules[0], "x", extra=extra)
            assert str(caught.value) == expected


def test_modules_of_several_extras_have_one_that_is_named() -> None:
    assert (extra_of("cv2"), extra_of("ray"), extra_of("numpy"), extra_of("pygame")) == ("atari", "ray", "", "")
    assert install_command("pygame") == "pip install pygame-ce"
    assert install_command("numpy") == "pip install numpy"
    error = ModuleNotFoundError(name="not_there")
    assert str(missing_package("x", error, extra="ui")) == (
        "x needs not_there, which cannot be imported; `pip install not_there` brings it."
    )


@pytest.mark.slow
def test_a_reports_writer_imports_no_server() -> None:
    """What only writes a file loads neither the page's server nor what it needs."""
    script = "import sys, ludus.apps.ui.report; print(sorted({'fastapi', 'uvicorn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=Path.cwd(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
