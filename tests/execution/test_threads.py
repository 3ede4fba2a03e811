"""One thread in every numerical library, those included that are loaded late."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

PROGRAM = """
import numba, numpy as np
from threadpoolctl import threadpool_info
from ludus.execution.threads import single_threaded

@numba.njit
def product(a, b):
    return a @ b

with single_threaded(torch_too=True):
    product(np.ones((2, 2)), np.ones((2, 2)))
    print([(library["prefix"], library["num_threads"]) for library in threadpool_info()])
"""


@pytest.mark.slow
def test_products_of_compiled_code_use_one_thread() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    found = ast.literal_eval(done.stdout)
    assert len([prefix for prefix, _ in found if "openblas" in prefix]) >= 2, "NumPy's and SciPy's"
    assert {threads for _, threads in found} == {1}
