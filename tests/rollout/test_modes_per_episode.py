"""A learner that plays its episodes in several published modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, PolicyOutput, PolicyRef, PolicySpec
from ludus.envs.registry import make_env
from ludus.policies.specs import mode_keys, sample_modes
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

ME = PolicyRef(0, "me", 1)
MODES = (("greedy", 0.25), ("explore", 0.75))
NAMES = [name for name, _ in MODES]
EVERY = ("explore", "greedy")


class Signs:
    """Answers 1 in the mode "greedy", else 0."""

    modes: ClassVar[tuple[str, ...]] = EVERY
    noise_width = 1
    memory_shape = None
    takes_ids = True
    spec = PolicySpec("signs")

    def act(self, observation: Any, mask: Any, memory: Any, noise: Any, *, mode: str = "explore") -> PolicyOutput:
        action = np.full(len(observation), int(mode == "greedy"), np.int32)
        return PolicyOutput(action, np.zeros(len(action), np.float32))

    def tabulate(self, enumeration: Any, player: int, *, mode: str = "explore") -> None:
        return None

    def weights(self) -> Mapping[str, Any]:
        return {}


def worker(num_envs: int = 6) -> RolloutWorker:
    env = make_env("openspiel/kuhn_poker", num_envs=num_envs)
    return RolloutWorker(env, LocalBank(env.spec, env.num_envs))


def request(unit: str, amount: int, **options: Any) -> RolloutRequest:
    mixture = Mixture(()) if options.get("together") else Mixture.product({p: ([ME], [1.0]) for p in (0, 1)})
    given = {"seed": 3, "modes": MODES, "modes_seed": 5, **options}
    return RolloutRequest(ME, (0, 1), mixture, unit, amount, **given)  # type: ignore[arg-type]


POLICIES = [(ME._replace(mode=mode), Signs()) for mode in EVERY]


def assert_as_drawn(rows: Any) -> None:
    """What the policy answered says in which mode it was asked."""
    mode = sample_modes(mode_keys(5, 2)[rows.seat], rows.episode, MODES)
    expected = np.array([int(NAMES[m] == "greedy") for m in mode])
    np.testing.assert_array_equal(rows.action, np.repeat(expected, np.diff(rows.start)))


@pytest.mark.parametrize("together", [False, True])
def test_every_episode_is_played_in_the_mode_that_its_id_draws(together: bool) -> None:
    rollout = worker().play(request("episodes", 400, together=together), POLICIES)
    rows = rollout.trajectories
    assert rows is not None
    assert_as_drawn(rows)
    share = rows.action[rows.start[:-1]].mean()
    assert 0.15 < share < 0.35
    if together:  # seats draw by themselves
        first = {(e, s): a for e, s, a in zip(rows.episode, rows.seat, rows.action[rows.start[:-1]], strict=True)}
        pairs = {(first[e, 0], first[e, 1]) for e, s in first if s == 0 and (e, 1) in first}
        assert len(pairs) == 4


def test_open_episodes_keep_their_mode_under_newer_weights() -> None:
    playing, found = worker(), []
    for k in range(30):
        new = ME._replace(version=k + 1)
        policies = [(new._replace(mode=mode), Signs()) for mode in EVERY]
        given = RolloutRequest(
            new,
            (0, 1),
            Mixture(()),
            "decisions",
            7,
            seed=k,
            together=True,
            modes=MODES,
            modes_seed=5,
            carry_on=k > 0,
        )
        rows = playing.play(given, policies).trajectories
        if rows is not None:
            assert_as_drawn(rows)
            found.append(rows.num_rows)
    assert sum(found) >= 200


def test_draws_are_those_of_the_episode_and_the_player_alone() -> None:
    keys, episode = mode_keys(9, 3), np.arange(20_000)
    first = sample_modes(np.full(len(episode), keys[0]), episode, MODES)
    assert abs((first == 0).mean() - 0.25) < 0.015
    np.testing.assert_array_equal(first[::-1], sample_modes(np.full(len(episode), keys[0]), episode[::-1], MODES))
    second = sample_modes(np.full(len(episode), keys[1]), episode, MODES)
    assert abs((first == 0)[second == 0].mean() - 0.25) < 0.03
    assert (sample_modes(np.full(9, keys[0]), np.arange(9), (("only", 1.0),)) == 0).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"modes": (("greedy", 0.5), ("explore", 0.6))}, "probabilities that sum to 1"),
        ({"modes": (("greedy", -0.5), ("explore", 1.5))}, "probabilities that sum to 1"),
        ({"learner": None, "seats": ()}, "a request without a learner was given modes"),
    ],
)
def test_invalid_mode_shares_are_rejected(changed: dict[str, Any], message: str) -> None:
    from dataclasses import replace

    with pytest.raises(ScenarioError, match=message):
        worker().play(replace(request("episodes", 6), **changed), POLICIES)
