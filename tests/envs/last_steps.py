"""Episodes whose last permitted step is also a real end: its environment decides, and the limit may be any."""

from __future__ import annotations

from typing import Any

from ludus.core.seeding import keys
from ludus.envs.registry import make_env
from ludus.testing.ledger import Actor


def first_end(id: str, *, seed: int = 0, **options: Any) -> tuple[int, bool]:
    """(length, whether terminated) of the first episode of one environment, played by legal random actions."""
    env, seeds = make_env(id, num_envs=1, **options), keys(seed, "last step", count=1)
    try:
        actor, timestep = Actor(env.spec, seeds), env.reset(seeds, episodes=1)
        while not len(timestep.finished.environment):
            timestep = env.step(actor.actions(timestep))
        return int(timestep.finished.length[0]), bool(timestep.finished.terminated[0])
    finally:
        env.close()


def check_last_step(id: str, limit: str, *, most: int, seed: int = 0, shorter: bool = True, **options: Any) -> int:
    """A real end in the last permitted step is a termination, and the limit one step earlier a truncation. limit: the option's name.
    most: a limit that the end comes before. shorter: whether the earlier limit is tried. Returns the length."""
    length, terminated = first_end(id, seed=seed, **{limit: most}, **options)
    assert terminated, f"{id} was not over in {length} steps; give another seed"
    assert 1 < length < most
    assert first_end(id, seed=seed, **{limit: length}, **options) == (length, True)
    if shorter:
        assert first_end(id, seed=seed, **{limit: length - 1}, **options) == (length - 1, False)
    return length
