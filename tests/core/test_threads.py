"""One thread in every numerical library, those included that are loaded late; in torch as many as are asked for where there is learning."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import ConfigError
from ludus.core.recorders import Timings
from ludus.core.types import Metrics
from ludus.runs.assembly import _learning
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import load_scenario
from ludus.runtime.inprocess import InProcess
from ludus.storage.base import NullObserver

LIMITED = """
import numba, numpy as np, torch
from threadpoolctl import threadpool_info
from ludus.core.machine import thread_limits

@numba.njit
def product(a, b):
    return a @ b

torch.set_num_threads(3)
with thread_limits(torch_threads=THREADS):
    product(np.ones((2, 2)), np.ones((2, 2)))
    inside = torch.get_num_threads(), [(library["prefix"], library["num_threads"]) for library in threadpool_info()]
print([*inside, torch.get_num_threads()])
"""
TRAINER = """
import torch
from ludus.training.remote_trainer import RankSpec, TrainerHost

found = []
for threads in (1, 2):
    torch.set_num_threads(1)
    TrainerHost(RankSpec(0, 1, 0, threads=threads))
    found.append(torch.get_num_threads())
print(found)
"""


def printed(program: str) -> Any:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_products_of_compiled_code_use_one_thread_and_torch_its_own(threads: int) -> None:
    inside, libraries, after = printed(LIMITED.replace("THREADS", str(threads)))
    assert (inside, after) == (threads, 3)
    blas = [count for prefix, count in libraries if "openblas" in prefix]
    assert len(blas) >= 2, "NumPy's and SciPy's"
    assert set(blas) == {1}
    assert {count for _, count in libraries} == {1, threads}


@pytest.mark.slow
def test_a_trainer_has_its_threads() -> None:
    assert printed(TRAINER) == [1, 2]


class Count(NullObserver):
    def __init__(self) -> None:
        self.threads: set[int] = set()

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        import torch

        self.threads.add(torch.get_num_threads())


@pytest.mark.slow
def test_a_run_learns_with_its_threads_and_goes_on_with_others(tmp_path: Path) -> None:
    import torch

    before, one, two = torch.get_num_threads(), Count(), Count()
    changes = ["algorithm.epochs=1", "response.decisions=256", "evaluation.episodes=2"]
    run(load_scenario("cartpole", changes), run_dir=tmp_path, observer=one, report=False)
    assert one.threads == {1}
    result = resume(tmp_path, ["runtime.threads=2", "generations=2"], observer=two, report=False)
    assert (two.threads, len(result.generations)) == ({2}, 3)
    assert torch.get_num_threads() == before


def test_every_trainer_is_told_its_threads() -> None:
    changes = ["runtime.kind=ray", "runtime.trainers=2", "runtime.threads=3"]
    _, trainers = _learning(load_scenario("cartpole", changes), InProcess(), Timings())
    assert trainers is not None
    assert [rank.threads for rank in trainers._ranks] == [3, 3]


def test_no_threads_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"runtime: threads: .*greater than or equal to 1"):
        load_scenario("cartpole", ["runtime.threads=0"])
