"""The package of examples/plugin, installed and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest

SCRIPT = """
import ludus
from ludus.envs.registry import list_envs
from ludus.testing.env import check_env

assert list_envs("blotto") == ["blotto/six", "blotto/twelve"]
check_env(lambda num_envs: ludus.make_env("blotto/six", num_envs=num_envs))
result = ludus.run(ludus.PSRO(
    env={"id": "blotto/six", "num_envs": 16},
    algorithm="penalised_ppo",
    opponents=["bot:even"],
    generations=1,
    response={"episodes": 300},
    evaluation={"episodes": 32},
), run_dir="run", report=False)
yaml = (result.run_dir / "scenario.yaml").read_text()
assert "penalised_ppo" in yaml and "ludus_blotto" not in yaml
(match, *_) = ludus.evaluate_run("run", episodes=8, policies=["bot:even", "@newest"]).matches
print(match.policies)
"""


@pytest.mark.slow
def test_the_plug_in_is_installed_and_used(tmp_path: Path) -> None:
    """Without the network: into a folder that is put on Python's path, and from a copy, since a build writes beside its source."""
    shutil.copytree(pages.EXAMPLES / "plugin", tmp_path / "source")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    install = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "site"), "./source"]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=120)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(pages.ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, check=True, timeout=240, stdout=subprocess.PIPE
    )
    assert "bot:even" in done.stdout.decode()
