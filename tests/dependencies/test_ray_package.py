"""Ray's object store, behind the runtime `ray` (`ludus.contrib.ray.ray_runtime`). Ray takes seconds to start."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_ray")]


def test_arrays_come_out_of_the_object_store_read_only():
    """Parts that write to what they were given copy it first (`ludus.runtime.inprocess` states the rule)."""
    import ray

    array = ray.get(ray.put(np.zeros(1000)))
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_tensor_of_such_an_array_writes_into_the_object_store():
    """Why `ludus.policies.action_values.rows_of` and `ludus.rollout.inference.policy_cache` copy: others read the same memory."""
    import ray

    reference = ray.put(np.zeros(100_000))
    torch.from_numpy(ray.get(reference))[0] = 5.0
    assert ray.get(reference)[0] == 5.0


def test_tensors_come_out_as_copies_that_may_be_written():
    """Weights travel as arrays, which are shared; tensors would be copied for each reader."""
    import ray

    reference = ray.put(torch.zeros(100_000))
    ray.get(reference)[0] = 5.0
    assert float(ray.get(reference)[0]) == 0.0
