"""Random streams are named by a seed and a path, and are the same on every machine."""

import numpy as np
import pytest

from ludus.core import seeding


def test_a_stream_is_named_by_seed_and_path() -> None:
    """Every part of a name counts, its type too; literal numbers, since runs are resumed elsewhere."""
    assert seeding.key(7, "solve", 3) == 3672531291294428214
    names = [
        (7,),
        (8,),
        (7, "solve"),
        (7, "match"),
        (7, "solve", 3),
        (7, "solve", 4),
        (7, "solve", "3"),
        (7, 3, "solve"),
    ]
    assert len({seeding.key(*name) for name in names}) == len(names)
    assert seeding.keys(7, "x", count=2).tolist() == [2142968384349274014, 2681072032314344544]
    assert seeding.keys(7, "x", count=3)[:2].tolist() == seeding.keys(7, "x", count=2).tolist()


def test_uniforms_follow_key_and_counter() -> None:
    drawn = seeding.uniforms(np.array([1, 1, 2], np.uint64), np.array([0, 1, 0], np.uint64))
    assert drawn == pytest.approx([0.86624032, 0.13693427, 0.18350248], abs=1e-8)
    many = seeding.uniforms(np.full(10_000, 5, np.uint64), np.arange(10_000, dtype=np.uint64))
    assert abs(many.mean() - 0.5) < 0.01  # 3.5 standard errors, always the same numbers
    assert many.min() >= 0.0
    assert many.max() < 1.0
