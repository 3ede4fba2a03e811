"""All detectors, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from ludus.testing.detector import actions, costs, ends, masks, outcomes, rewards, seeds, spies
from ludus.testing.detector.finding import Finding
from ludus.testing.detector.recording import Recording, record_episodes
from ludus.testing.detector.session import Budget, Make, Session

FAULT = "random play"
Pure: TypeAlias = Callable[[Recording], Iterator[Finding]]
Probe: TypeAlias = Callable[[Session], Iterator[Finding]]

PURE: tuple[Pure, ...] = (
    ends.limits,
    ends.ends_at_once,
    ends.too_many_decisions,
    outcomes.zero_sum,
    outcomes.symmetry,
    outcomes.utility_range,
    outcomes.winners,
    rewards.rewards_after_the_end,
    rewards.teams,
    costs.pauses,
)
"""They read the recording, and nothing else."""
PROBES: tuple[tuple[str, float, Probe], ...] = (
    ("seeds", 0.06, seeds.chance),
    ("episodes", 0.06, seeds.leaks),
    ("legal actions", 0.06, actions.legal),
    ("effects", 0.08, actions.effects),
    ("masks", 0.08, masks.masks),
    ("answers", 0.06, spies.listen),
    ("descriptions", 0.02, costs.descriptions),
    ("memory", 0.18, costs.memory),
)
"""(what the progress calls it, its share of the time at most, the probe); the recording has the rest."""
_RECORDING = 0.4


def detect(
    make: Make,
    *,
    num_envs: int = 4,
    seed: int = 0,
    budget: Budget | None = None,
    progress: Callable[[str], None] | None = None,
    recordings: list[Recording] | None = None,
) -> Iterator[Finding]:
    """Yield what is wrong with an environment, or to know about it, each as soon as it is known.

    Args:
        make: Makes a vector of the given number of environments.
        num_envs: Number of environments that are played at a time, at least 2.
        seed: Of all random streams.
        budget: How much is played.
        progress: Told what is done now.
        recordings: The recording is appended.

    Yields:
        Findings.
    """
    budget = budget or Budget()
    say = progress or (lambda _: None)
    session = Session(make, num_envs, seed, budget)
    try:
        recording = _record(session, budget, say)
        if recordings is not None:
            recordings.append(recording)
        session.recording = recording
        yield from _of_recording(recording, budget)
        for name, share, probe in PROBES:
            say(name)
            session.allot(share)
            yield from _probe(session, probe, recording)
    finally:
        session.renew()


def _record(session: Session, budget: Budget, say: Callable[[str], None]) -> Recording:
    def count(recording: Recording) -> None:
        say(f"{len(recording.episodes):,} episodes, {recording.steps:,} steps")

    recording = record_episodes(
        session.env,
        session.seeds("recording"),
        episodes=budget.episodes,
        seconds=_RECORDING * budget.seconds,
        longest=budget.longest,
        seed_of=session.reset_seed,
        clock=budget.clock,
        progress=count,
    )
    if recording.fault is None:
        recording.attributes = _whole_numbers(session.game())
    return recording


def _whole_numbers(game: Any) -> dict[str, int]:
    values = {**(getattr(type(game), "__dict__", None) or {}), **(getattr(game, "__dict__", None) or {})}
    return {name: value for name, value in values.items() if type(value) is int and value > 1}


def _of_recording(recording: Recording, budget: Budget) -> Iterator[Finding]:
    if recording.fault is not None:
        yield Finding(
            FAULT,
            "error",
            f"random legal play stopped: {' '.join(str(recording.fault).split())}",
            "Play it by itself, with that seed and those actions.",
            {"episodes": len(recording.episodes), "steps": recording.steps},
        )
    endless: Pure = partial(ends.endless, longest=budget.longest)
    for detector in (*PURE, endless):
        yield from detector(recording)


def _probe(session: Session, probe: Probe, recording: Recording) -> Iterator[Finding]:
    """Yield a probe's findings. One that random play stopped before may stop probes too, and is reported once."""
    try:
        yield from probe(session)
    except Exception as error:  # noqa: BLE001  whatever an environment raises is a finding
        session.renew()
        if recording.fault is None:
            yield Finding(
                FAULT,
                "error",
                f"a probe was stopped: {' '.join(str(error).split())}",
                "Play it by itself, with that seed and those actions.",
                {"error": type(error).__name__},
            )
