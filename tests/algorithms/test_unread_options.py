"""Options that nothing reads are refused: whoever tunes one tunes nothing."""

from __future__ import annotations

import pytest

from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core.config import as_stored
from ludus.core.errors import ConfigError
from ludus.core.parts import build_part

UNREAD = [
    ("mpo", {"polyak": 0.01}, {"target_period": 0}),
    ("sac", {"target_entropy": -2.0}, None),
    ("sac", {"target_entropy": -2.0, "learn_temperature": False}, {"learn_temperature": True}),
    ("sac_discrete", {"target_entropy": 0.3, "learn_temperature": False}, {"learn_temperature": True}),
    ("alphazero", {"selection": "gumbel", "dirichlet": 0.3}, {"selection": "puct"}),
    ("alphazero", {"selection": "gumbel", "temperature": 2.0}, {"selection": "puct"}),
    ("alphazero", {"selection": "gumbel", "temperature_moves": 4}, {"selection": "puct"}),
    ("muzero", {"selection": "gumbel", "temperature": 0.5}, {"selection": "puct"}),
    ("alphazero", {"considered": 8}, {"selection": "gumbel"}),
    ("muzero", {"virtual_loss": 2.0}, {"leaves": 5}),
    ("qmix", {"memory": 32}, {"core": "gru"}),
    ("qmix", {"least_weight": 0.5}, {"weighting": "central"}),
    ("qmix", {"mixing_heads": 2}, {"mixer": "duplex"}),
    ("dqn", {"noise_scale": 0.1}, {"noisy": True}),
    ("dqn", {"v_min": -5.0}, {"distribution": "c51"}),
    ("dqn", {"munchausen_weight": 0.5}, {"munchausen": True, "double": False}),
]


@pytest.mark.parametrize(("kind", "given", "read"), UNREAD)
def test_unread_options_are_rejected(kind: str, given: dict[str, object], read: dict[str, object] | None) -> None:
    if read is None:  # of this kind it is read
        build_part("algorithm", {"kind": kind, **given}, ALGORITHMS)
        return
    with pytest.raises(ConfigError, match="nothing reads"):
        build_part("algorithm", {"kind": kind, **given}, ALGORITHMS)
    build_part("algorithm", {"kind": kind, **given, **read}, ALGORITHMS)
    with as_stored():
        build_part("algorithm", {"kind": kind, **given}, ALGORITHMS)


def test_searches_are_whole_rounds_of_leaves() -> None:
    with pytest.raises(
        ConfigError, match=r"simulations are made 8 at a time \(leaves\), and 50 is no multiple of that"
    ):
        build_part("algorithm", {"kind": "alphazero", "leaves": 8}, ALGORITHMS)
    build_part("algorithm", {"kind": "alphazero", "leaves": 8, "simulations": 48}, ALGORITHMS)


def test_rewards_that_are_learned_go_beyond_the_values_of_c51() -> None:
    larger = {"processing": [{"kind": "reward_scale", "factor": 10.0}]}
    soft = {"distribution": "c51", "munchausen": True, "double": False}
    for kind, given in (("rainbow", {"learned_reward": "rnd"}), ("rainbow", larger), ("dqn", soft)):
        with pytest.raises(ConfigError, match="may go beyond; give v_min and v_max"):
            build_part("algorithm", {"kind": kind, **given}, ALGORITHMS)
    smaller = {"processing": [{"kind": "reward_scale", "factor": 0.1}, "reward_clip"]}
    build_part("algorithm", {"kind": "rainbow", **smaller}, ALGORITHMS)
    build_part("algorithm", {"kind": "rainbow", "learned_reward": "rnd", "v_min": -5, "v_max": 5}, ALGORITHMS)
