"""The contract suite over the packages themselves, pinned, in a folder: `pytest -m long tests/envs/test_brought_packages.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {  # what is installed without what it requires -> environments
    ("kaggle-environments==1.33.2",): ["kaggle/connectx", "kaggle/rps", "kaggle/hungry_geese", "kaggle/open_spiel_hex"],
    ("textarena==0.7.4", "nltk", "regex", "joblib", "openai", "distro", "jiter", "python-dotenv", "websockets"): [
        "textarena/TicTacToe-v0",
        "textarena/KuhnPoker-v0",
    ],
    ("momaland==0.2.0",): ["momaland/moconnect4_v0", "momaland/mogem_mining_v0"],
}
CHECK = """
import sys
from ludus.envs.registry import make_env
from ludus.testing.env import check_env
for id in sys.argv[1:]:
    check_env(lambda n: make_env(id, num_envs=n), num_envs=2, steps=12)
    print(id)
"""


@pytest.mark.long
@pytest.mark.parametrize("packages", PACKAGES, ids=lambda packages: packages[0])
def test_packages_satisfy_vector_env_contract(packages: tuple[str, ...], tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), *packages]
    subprocess.run(install, check=True, timeout=600)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    ids = PACKAGES[packages]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECK, *ids], env=env, capture_output=True, text=True, timeout=900
    )
    assert done.stdout.split()[-len(ids) :] == ids, done.stderr
