from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parents[1] / "docs" / "hooks"),
]  # what the site is built by needs no MkDocs for the most


@pytest.fixture(scope="session")
def try1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run that the pages talk about, runs/try1: Kuhn poker, 8 generations."""
    import ludus

    folder = tmp_path_factory.mktemp("docs")
    scenario = ludus.PSRO(
        env="openspiel/kuhn_poker",
        algorithm="exact",
        meta_solver="regret_matching_plus",  # each response is added, so that pages may name one of any generation
        generations=8,
        stop=None,
        checkpoints={"generations": 4},
    )
    ludus.run(scenario, run_dir=folder / "runs" / "try1")
    return folder


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples can be imported, as with PYTHONPATH=examples."""
    folder = HERE.parents[1] / "examples"
    monkeypatch.syspath_prepend(str(folder))
    yield
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)
    assert importlib.util.find_spec("ludus") is not None
