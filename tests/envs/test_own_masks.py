"""Where users' own environments may put their legal actions, and what a mask may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ludus.core.errors import EnvError
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.adapters.native import native_env
from ludus.envs.adapters.pettingzoo_vector import zoo_vector
from ludus.envs.adapters.single import single_env
from ludus.envs.adapters.tuple_env import tuple_vector
from ludus.envs.base import VectorEnv
from ludus.testing.env import check_env

BOX = Box(0, 9, (1,), np.float32)
BITS = Box(0, 1, (3,), np.int8)


class Beside(gymnasium.Env[Any, Any]):
    """Of three actions, number t % 3 is never legal; five steps, the last one cut off by time."""

    observation_space: Any = Dict({"seen": BOX, "action_mask": BITS})
    action_space: Any = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.shown(), self.info()

    def step(self, action: Any) -> Any:
        assert self.legal()[action], (action, self.t)
        self.t += 1
        return self.shown(), float(action), False, self.t == 5, self.info()

    def legal(self) -> Any:
        return (np.arange(3) != self.t % 3).astype(np.int8)

    def shown(self) -> Any:
        return {"seen": np.array([self.t], np.float32), "action_mask": self.legal()}

    def info(self) -> dict[str, Any]:
        return {}


class Several(Beside):
    """Two things are seen beside the mask."""

    observation_space = Dict({"seen": BOX, "half": BOX, "action_mask": BITS})

    def shown(self) -> Any:
        return {**super().shown(), "half": np.array([self.t / 2], np.float32)}


class Asked(Beside):
    """It is asked for its mask by the method that sb3-contrib calls, while more may be done."""

    observation_space = BOX

    def shown(self) -> Any:
        return np.array([self.t], np.float32)

    def action_masks(self) -> Any:
        return self.legal() == 1


def vector_of(mode: AutoresetMode, kind: type[Beside]) -> Callable[[int], VectorEnv]:
    return lambda n: native_env(SyncVectorEnv([kind] * n, autoreset_mode=mode), id="beside")


PLACES: dict[str, Callable[[int], VectorEnv]] = {
    "beside": lambda n: single_env(Beside, n, id="beside"),
    "beside several": lambda n: single_env(Several, n, id="several"),
    "behind wrappers": lambda n: single_env(lambda: gymnasium.wrappers.TimeLimit(Asked(), 4), n, id="asked"),
    "asked": lambda n: single_env(Asked, n, id="asked", restarts=1),
    **{f"vector, {mode.value}": vector_of(mode, Beside) for mode in AutoresetMode},
    "vector, several": vector_of(AutoresetMode.SAME_STEP, Several),
}


@pytest.mark.parametrize("place", PLACES)
def test_masks_are_taken_wherever_they_are(place: str) -> None:
    make = PLACES[place]
    check_env(make, num_envs=2, steps=12)  # an illegal action fails the environment's own assertion
    env = make(2)
    timestep = env.reset(np.zeros(2, np.uint64))
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[False, True, True]] * 2
    width = 2 if "several" in place else 1
    assert timestep.due[0].observation.shape == (2, width)
    while not len(timestep.ended[0].slot):
        assert timestep.due[0].mask is not None
        timestep = env.step((timestep.due[0].mask.argmax(axis=1),))
    last = 4 if place == "behind wrappers" else 5
    ended = timestep.ended[0]
    assert ended.observation[:, -1].tolist() == [last] * 2
    assert ended.mask is not None  # what was cut off is bootstrapped: with its mask
    assert ended.mask.tolist() == [[a != last % 3 for a in range(3)]] * 2
    env.close()


class Parts(Beside):
    """Numbers with masks of their own, side by side in a batch."""

    observation_space = Dict({"seen": BOX, "action_mask": Tuple((MultiBinary(2), MultiBinary(3)))})
    action_space = MultiDiscrete([2, 3])

    def step(self, action: Any) -> Any:
        assert action.tolist() == [1, 0]
        return *super().step(1)[:1], 0.0, False, False, {}

    def shown(self) -> Any:
        one = np.array([0, 1], np.int8), np.array([1, 0, 0], np.int8)
        return {"seen": np.array([self.t], np.float32), "action_mask": one}

    def legal(self) -> Any:
        return np.ones(3)


@pytest.mark.parametrize(
    "make", [lambda n: single_env(Parts, n, id="parts"), vector_of(AutoresetMode.NEXT_STEP, Parts)]
)
def test_a_mask_of_each_number_beside_the_observation(make: Callable[[int], VectorEnv]) -> None:
    env = make(2)
    timestep = env.reset(np.zeros(2, np.uint64))
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[False, True, True, False, False]] * 2
    env.step((np.array([[1, 0]] * 2),))
    env.close()


def test_masks_do_not_go_with_boxes() -> None:
    class Boxed(Beside):
        action_space = BOX

    for make in (lambda: single_env(Boxed, 1, id="boxed"), lambda: native_env(SyncVectorEnv([Boxed]), id="boxed")):
        with pytest.raises(EnvError, match="has action masks and the action space Box"):
            make()


# ------------------------------------------------------------------------------------------------ what is in a mask


class Held(Beside):
    """With the mask that it is given, in its info."""

    observation_space = BOX

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def shown(self) -> Any:
        return np.array([0], np.float32)

    def info(self) -> dict[str, Any]:
        return {} if self.mask is None else {"action_mask": self.mask}


class HeldBeside(Held):
    observation_space = Dict({"seen": BOX, "action_mask": Box(-np.inf, np.inf, (3,), np.float64)})

    def shown(self) -> Any:
        return {"seen": np.array([0], np.float32), "action_mask": self.mask}

    def info(self) -> dict[str, Any]:
        return {}


class HeldByAll:
    """PettingZoo's parallel interface. wide: of the second agent, whose actions are a part of its player's."""

    possible_agents: ClassVar[list[str]] = ["left_0", "left_1"]

    def __init__(self, mask: Any, wide: Any = (1, 1, 1, 1)) -> None:
        self.mask, self.wide = mask, wide

    def observation_space(self, agent: str) -> Any:
        return BOX

    def action_space(self, agent: str) -> Any:
        return Discrete(3 if agent == "left_0" else 4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        shown = {a: np.zeros(1, np.float32) for a in self.agents}
        return shown, {"left_0": {"action_mask": self.mask}, "left_1": {"action_mask": np.array(self.wide)}}

    def close(self) -> None:
        return None


TAKERS: dict[str, Callable[[Any], VectorEnv]] = {
    "single": lambda mask: single_env(lambda: Held(mask), 1, id="held"),
    "beside": lambda mask: single_env(lambda: HeldBeside(mask), 1, id="held"),
    "several agents": lambda mask: zoo_vector(lambda: HeldByAll(mask), 1, id="held", sides=Sides()),
    "padded": lambda mask: zoo_vector(lambda: HeldByAll(mask), 1, id="held", sides=Sides(teams="one")),
    "vector": lambda mask: native_env(SyncVectorEnv([lambda: Held(mask)]), id="held"),
    "vector, beside": lambda mask: native_env(SyncVectorEnv([lambda: HeldBeside(mask)]), id="held"),
}
MASKS = {  # the mask -> its entry that is no truth
    "added to logits": (np.array([0.0, -np.inf, 0.0]), "-inf"),
    "no number": (np.array([1.0, np.nan, 0.0]), "nan"),
    "minus one": (np.array([1, -1, 0]), "-1"),
    "half": (np.array([1, 0.5, 0], np.float16), "0.5"),
    "count": (np.array([1, 2, 0], np.uint8), "2"),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("mask", MASKS)
def test_other_numbers_are_refused(taker: str, mask: str) -> None:
    numbers, entry = MASKS[mask]
    with pytest.raises(
        EnvError, match=rf"a mask with the entry {entry}(\.0)?; expected 1 or True for a legal action, 0 or"
    ):
        TAKERS[taker](numbers).reset(np.zeros(1, np.uint64))


@pytest.mark.parametrize("taker", ["single", "several agents", "vector"])
@pytest.mark.parametrize("mask", [["1", "0", "1"], np.array([True, None, False])])
def test_nonfinite_masks_are_rejected(taker: str, mask: Any) -> None:
    with pytest.raises(EnvError, match=r"a mask with the entry (None|'1'); expected 1 or True"):
        TAKERS[taker](mask).reset(np.zeros(1, np.uint64))


@pytest.mark.parametrize("taker", TAKERS)
def test_truths_of_any_type_are_taken(taker: str) -> None:
    kinds: list[Any] = [bool, np.int8, np.float16, np.float64, np.uint64]
    for kind in kinds if taker == "vector, beside" else [*kinds, object]:  # which gymnasium cannot put into a Box
        timestep = TAKERS[taker](np.array([1, 0, 1], kind)).reset(np.zeros(1, np.uint64))
        assert timestep.due[0].mask is not None
        assert timestep.due[0].mask[0, :3].tolist() == [True, False, True]


def test_the_end_and_tuples_are_looked_at_too() -> None:
    class Late(Held):
        """Its mask is wrong where time runs out."""

        def legal(self) -> Any:
            return np.ones(3)

        def info(self) -> dict[str, Any]:
            return {"action_mask": np.array([1, 1, 1 if self.t < 5 else 7])}

    class Pair(HeldBeside):
        observation_space: Any = Tuple((HeldBeside.observation_space,) * 2)
        action_space: Any = Tuple((Discrete(3),) * 2)

        def shown(self) -> Any:
            return (super().shown(),) * 2

    for make in (
        lambda: single_env(lambda: Late(None), 1, id="late"),
        lambda: native_env(SyncVectorEnv([lambda: Late(None)], autoreset_mode=AutoresetMode.SAME_STEP), id="late"),
    ):
        env = make()
        env.reset(np.zeros(1, np.uint64))
        for _ in range(4):
            env.step((np.array([1]),))
        with pytest.raises(EnvError, match="a mask with the entry 7"):
            env.step((np.array([1]),))
    with pytest.raises(EnvError, match="a mask with the entry -1"):
        tuple_vector(lambda: Pair(np.array([1, -1, 0])), 1, id="pair", sides=Sides()).reset(np.zeros(1, np.uint64))


def test_only_masks_that_are_there_are_looked_at() -> None:
    """Of a vector, rows of those that gave none hold anything."""
    rows = np.array([1, 0, 1], np.int8), None
    env = native_env(SyncVectorEnv([lambda row=row: Held(row) for row in rows]), id="held")
    timestep = env.reset(np.zeros(2, np.uint64))
    assert timestep.due[0].mask is not None
    assert timestep.due[0].mask.tolist() == [[True, False, True], [True, True, True]]
