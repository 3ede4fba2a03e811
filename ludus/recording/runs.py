"""Recordings of a run's policies."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

from ludus.envs.families import FAMILIES, adapter
from ludus.errors import ConfigError
from ludus.evaluation.stored import META, StoredRun
from ludus.recording.film import MOST_STEPS, Recording, Shown, Tell, record
from ludus.registry import load
from ludus.scenario import Environment
from ludus.types import Mixture


def record_run(
    run_dir: Path | str,
    *,
    policies: Sequence[str] = (),
    episodes: int = 1,
    seed: int = 0,
    steps: int = MOST_STEPS,
    tell: Tell | None = None,
    shown: Shown | None = None,
) -> Recording:
    """Play `episodes` episodes with a run's policies and keep what the environment shows.

    policies: one name per player, such as "0-12", or "meta" for its last meta-strategy; default: meta for all. Nothing is written.
    Raises ConfigError for unknown names, with the nearest, or another number of them; RunError for an unreadable run; EnvError for an
    environment that cannot be rendered.
    """
    stored, strategies = open_run(run_dir, policies)
    settings = stored.scenario.env.played
    alone = settings.model_copy(update={"wrappers": (), "workers": 0, "deadline": None, "restarts": 0})
    return record(
        alone.make(num_envs=1, **_rendering(settings)),
        strategies,
        stored.policy,
        episodes=episodes,
        seed=seed,
        steps=steps,
        wrappers=settings.wrappers,
        tell=tell,
        shown=shown,
    )


def open_run(run_dir: Path | str, policies: Sequence[str] = ()) -> tuple[StoredRun, Mixture]:
    """A run, and who plays: one name per player, default "meta" for all. Raises ConfigError for unknown names, with the nearest, or
    another number of them; RunError for an unreadable run."""
    stored = StoredRun(Path(run_dir))
    players = len(stored.population)
    names = list(policies) or [META] * players
    stored.check_names(names)
    if len(names) != players:
        raise ConfigError(
            f"{len(names)} {'policy was' if len(names) == 1 else 'policies were'} given; one for each of {players} players is needed."
        )
    for player, name in enumerate(names):
        if name != META and name not in stored.names(player):
            raise ConfigError(f"policy {name!r} cannot play as player {player}; {_choice(stored.names(player))}.")
    return stored, stored.mixture(names)


def _rendering(settings: Environment) -> dict[str, object]:
    """The option that makes an environment able to show itself, where its family or its class has one."""
    family, slash, _ = settings.id.partition("/")
    if slash:
        make = adapter(family).make if family in FAMILIES else None
    else:
        make = load("environment", settings.id, {})
    known = inspect.signature(make).parameters if callable(make) else {}
    if "render" in known and "render" not in settings.options:
        return {"render": True}
    if (
        "render_mode" in known and not slash and "render_mode" not in settings.options
    ):  # Gymnasium's and PettingZoo's word
        return {"render_mode": _mode(make)}
    return {}


def _mode(target: object) -> str:
    metadata = getattr(target, "metadata", {})
    modes = metadata.get("render_modes", ()) if isinstance(metadata, dict) else ()
    return "ansi" if "ansi" in modes and "rgb_array" not in modes else "rgb_array"


def _choice(names: Sequence[str]) -> str:
    return f"{names[0]} to {names[-1]} can" if len(names) > 1 else f"only {names[0]} can"
