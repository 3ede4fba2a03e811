"""What the tests of given opponents share: who is given, and runs against them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ludus
from ludus.driver.scenario_kinds import FixedOpponents
from ludus.envs.registry import make_env
from ludus.policies.file import save_policy
from ludus.policies.specs import tabular_spec

KUHN = "openspiel/kuhn_poker"
LEARNS = """
scenario: fixed_opponents
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [4]}
response: {episodes: 96}
generations: 2
checkpoints: {iterations: 2}
"""


def always(action: int, file: Path, game: str = KUHN) -> Path:
    """The file of a policy that takes one action in every information state of every player."""
    enumeration = make_env(game, num_envs=1).spec.enumeration
    assert enumeration is not None
    spec = tabular_spec(enumeration, range(len(enumeration.offset) - 1))
    probs = np.zeros(enumeration.mask.shape)
    probs[:, action] = 1.0
    save_policy(file, spec, {"probs": probs})
    return file


def given(folder: Path) -> Path:
    """Into the folder: a run "one" (PSRO with exact responses, 3 generations) and the file "bet.safetensors", who always bets."""
    ludus.run(ludus.PSRO(env=KUHN, algorithm="exact", generations=3), run_dir=folder / "one", report=False)
    always(1, folder / "bet.safetensors")
    return folder


def train(folder: Path, *opponents: object, **options: object) -> ludus.Result:
    scenario = FixedOpponents(**{"env": KUHN, "algorithm": "exact", "opponents": opponents, **options})
    return ludus.run(scenario, run_dir=folder, report=False)


def names(result: ludus.Result) -> list[list[str]]:
    return [[record.ref.policy for record in members] for members in result.populations]
