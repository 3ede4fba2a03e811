"""What new policies start from, through whole runs. A learning rate of 0 leaves every response where it started."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.core.errors import PolicyError
from ludus.core.ties import best_index
from ludus.core.types import Weights
from ludus.metagame.solvers.normal_form import values_against
from ludus.storage.reader import Reader

STILL = {"kind": "ppo", "batch": 20, "hidden": [6], "epochs": 1, "learning_rate": 0.0}


def train(folder: Path, *rules: object, generations: int = 4, **options: object) -> ludus.Result:
    scenario = ludus.PSRO(
        env=ludus.Environment(id="openspiel/kuhn_poker", num_envs=10),
        algorithm=options.pop("algorithm", STILL),
        response={"episodes": 40},
        generations=generations,
        warm_start=rules,
        **options,
    )
    return ludus.run(scenario, run_dir=folder, report=False)


def weights(result: ludus.Result, player: int, generation: int) -> Weights:
    return result.policy(player, generation).weights()


def same(a: Weights, b: Weights) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


def parents(result: ludus.Result, player: int) -> list[str | None]:
    with Reader(result.run_dir) as reader:
        records = [p.record for p in reader.policies() if p.record.ref.population == player]
    return [None if r.lineage.parent is None else r.lineage.parent.policy for r in records]


def test_random_starts_differ(tmp_path: Path) -> None:
    result = train(tmp_path, "random")
    for player in (0, 1):
        assert not same(weights(result, player, 1), weights(result, player, 2))
        assert parents(result, player) == [None] * 5


def test_last_goes_on_from_the_newest(tmp_path: Path) -> None:
    result = train(tmp_path, "last")
    for player in (0, 1):
        assert all(same(weights(result, player, 1), weights(result, player, g)) for g in (2, 3, 4))
        assert parents(result, player) == [None, None, *(f"{player}-{g}" for g in (1, 2, 3))]
    assert not same(weights(result, 0, 1), weights(result, 1, 1))


def test_learning_moves_on_from_the_start(tmp_path: Path) -> None:
    result = train(tmp_path, "last", algorithm={**STILL, "learning_rate": 0.01})
    assert not same(weights(result, 0, 1), weights(result, 0, 2))
    moved = [
        np.abs(weights(result, 0, g)["actor.body.1.weight"] - weights(result, 0, 1)["actor.body.1.weight"]).max()
        for g in (2, 3)
    ]
    assert 0 < moved[0] < 0.2  # two Adam steps of 0.01 on each weight, and no new draw


def test_best_is_the_best_against_the_meta_strategy_of_the_time(tmp_path: Path) -> None:
    result = train(
        tmp_path, {"source": "random", "last": 3}, {"source": "best", "first": 4}, generations=6, mode="explore"
    )
    for player in (0, 1):
        found = parents(result, player)
        assert found[:4] == [None] * 4
        for generation in (4, 5, 6):
            strategies = [np.array(m) for m in result.generations[generation - 1].marginals]
            known = result.payoffs.mean[:, :generation, :generation]
            gains = values_against(known, strategies, player)
            best = 1 + best_index(gains[1:], float(np.ptp(known)))
            assert found[generation] == f"{player}-{best}"
            assert same(weights(result, player, generation), weights(result, player, best))


def test_a_file_starts_every_response_and_is_needed_as_long(tmp_path: Path) -> None:
    first = train(tmp_path / "first", "random", generations=1)
    path = Path(shutil.copy(tmp_path / "first/policies/0/0-1.safetensors", tmp_path / "start.safetensors"))
    result = train(
        tmp_path / "second",
        {"source": "random", "last": 1},
        {"source": "file", "path": str(path), "last": 3},
        {"source": "last"},
        generations=3,
        seed=1,
    )
    for player in (0, 1):
        assert not same(weights(result, player, 1), weights(first, 0, 1))
        assert same(weights(result, player, 2), weights(first, 0, 1))
        assert same(weights(result, player, 3), weights(first, 0, 1))
    assert result.populations[1][2].lineage.start == str(path)
    path.unlink()
    again = f"warm_start=[{{source: file, path: {path}, last: 4}}]"
    with pytest.raises(PolicyError, match=r"start.safetensors' cannot be read"):
        ludus.resume(tmp_path / "second", ["generations=4", again], report=False)
    more = ludus.resume(tmp_path / "second", ["generations=4"], report=False)
    assert parents(more, 0)[4] == "0-3"


@pytest.mark.parametrize("rules", [(), ({"source": "last", "first": 9},)])
def test_no_rule_that_applies_is_a_random_start(rules: tuple[object, ...], tmp_path: Path) -> None:
    result = train(tmp_path, *rules, generations=2)
    assert parents(result, 0) == [None] * 3
    assert not same(weights(result, 0, 1), weights(result, 0, 2))


def test_a_computed_response_has_no_parent(tmp_path: Path) -> None:
    """It starts from nothing, whatever the rules say."""
    result = train(tmp_path, "last", generations=3, algorithm=ludus.ExactBestResponse())
    assert parents(result, 0) == [None] * 4
    assert {record.lineage.start for record in result.populations[0]} == {"random"}
