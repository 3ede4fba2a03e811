"""Spaces of other libraries' environments: what is flattened, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple, flatten
from gymnasium.vector.utils import concatenate, create_empty_array

from ludus.core.errors import EnvError
from ludus.envs.adapters.native import batch_writer
from ludus.envs.spaces import action_space, observation_space

FLATTENED = [
    Discrete(4, start=2),
    MultiBinary((2, 2)),
    MultiDiscrete([2, 3], start=[1, 0]),
    MultiDiscrete([[2, 3], [4, 2]]),
    Tuple((Discrete(3), Box(-1, 1, (2, 2)))),
    Dict({"b": Box(0, 255, (2,), np.uint8), "a": Dict({"x": Discrete(2), "y": MultiBinary(2)})}),
]


@pytest.mark.parametrize("space", FLATTENED)
def test_batches_are_flattened_as_gymnasium_flattens_one(space: Any) -> None:
    space.seed(0)
    values = [space.sample() for _ in range(5)]
    batch = concatenate(space, values, create_empty_array(space, 5))
    expected = np.stack([flatten(space, value) for value in values]).astype(np.float32)
    out = np.full(expected.shape, 7, np.float32)
    batch_writer(space, what="x")(batch, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("space", [*FLATTENED, Text(3), Dict({"t": Text(3), "d": Discrete(2, start=-1)})])
def test_single_values_are_flattened_as_gymnasium_flattens_them(space: Any) -> None:
    box, encode = observation_space(space, what="x")
    assert encode is not None
    space.seed(0)
    for _ in range(5):
        value = space.sample()
        np.testing.assert_array_equal(encode(value), flatten(space, value).astype(np.float32))
        assert encode(value).dtype == np.float32
        assert encode(value).shape == box.shape


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Discrete(3), 3),
        (Discrete(3), -1),
        (Discrete(3), 1.5),
        (Discrete(3, start=1), 0),
        (Tuple((Discrete(3), Discrete(2))), (-1, 0)),
        (Tuple((Discrete(3), Discrete(2))), (3, 0)),  # would be read as the second one's 0
        (MultiDiscrete([2, 3]), [2, 0]),  # likewise
        (MultiDiscrete([2, 3]), [0, -1]),
        (MultiDiscrete([2, 3]), [0]),
        (MultiBinary(3), [1]),
        (Dict({"a": Discrete(2), "b": Discrete(2)}), {"a": 0}),
        (Dict({"a": Discrete(2)}), None),
        (Dict({"a": Box(-1, 1, (2,))}), {"a": np.zeros(3)}),
        (Text(3), 5),
    ],
)
def test_values_outside_of_their_space_are_refused(space: Any, value: Any) -> None:
    _, encode = observation_space(space, what="x")
    assert encode is not None
    with pytest.raises(ValueError, match=r"^the observation .* is not in (Discrete|Tuple|Multi|Dict|Text)"):
        encode(value)


@pytest.mark.parametrize(
    ("space", "batch"),
    [
        (Discrete(3), [0, 3]),
        (Discrete(3), [-1, 0]),
        (MultiDiscrete([2, 3]), [[0, 0], [2, 0]]),
        (Tuple((Discrete(3), Discrete(2))), ([0, 1], [1, 2])),
    ],
)
def test_batches_outside_of_their_space_are_refused(space: Any, batch: Any) -> None:
    with pytest.raises(ValueError, match="must be below"):
        batch_writer(space, what="x")(batch, np.zeros((2, 5 if not isinstance(space, Discrete) else 3), np.float32))


def test_batches_that_are_no_arrays_are_refused() -> None:
    with pytest.raises(EnvError, match="whose batches are not arrays"):
        batch_writer(Dict({"text": Text(3)}), what="x")


def test_spaces_without_a_number_are_refused() -> None:
    nothing = (Box(0, 1, (0,)), Box(0, 255, (0, 8), np.uint8), Dict({"nothing": Box(0, 1, (0,))}), Dict({}), Tuple(()))
    for space in nothing:
        with pytest.raises(EnvError, match=r"^observations of x are in (Box|Dict|Tuple).*, which holds no number"):
            observation_space(space, what="x")
    with pytest.raises(EnvError, match=r"^actions of x are in Box.*, which holds no number"):
        action_space(Box(-1, 1, (0,)), what="x")
    assert action_space(Box(-1, 1, ()), what="x").shape == ()
