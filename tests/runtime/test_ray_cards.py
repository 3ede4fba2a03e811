"""Cards on Ray, which only counts them here: two that are made up."""

from __future__ import annotations

import os

import pytest

from ludus.core.errors import RunError

pytestmark = pytest.mark.slow


class Part:
    """Tells which cards it may see."""

    def __init__(self, _spec: None) -> None:
        pass

    def cards(self) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_each_part_sees_the_cards_that_it_is_given() -> None:
    """To torch the first of these is cuda:0. Halves share one; who asks for none sees none, and computes on the CPU."""
    from ludus.contrib.ray.ray_runtime import RayRuntime

    runtime = RayRuntime(gpus=2)
    try:
        asked = [1.0, 0.5, 0.5, 0.0]
        parts = [runtime.spawn(Part, None, resources={"num_cpus": 0.1, "num_gpus": gpus}) for gpus in asked]
        whole, half, other, none = (runtime.get(runtime.call(part, "cards"), timeout=60) for part in parts)
        assert {whole, half} == {"0", "1"}
        assert half == other
        assert none == ""
        with pytest.raises(
            RunError, match=r"'Part' has no place. It needs num_cpus 0.1, num_gpus 0.5; the cluster has .*GPU 2"
        ):
            runtime.spawn(Part, None, resources={"num_gpus": 0.5})
        runtime.stop(parts[1])
        again = runtime.spawn(Part, None, resources={"num_gpus": 0.5})
        assert runtime.get(runtime.call(again, "cards"), timeout=60) == other
    finally:
        runtime.close()
