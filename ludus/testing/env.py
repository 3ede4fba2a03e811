"""`check_env`: does a vector environment keep the contract of `ludus.envs.base`? For ours and for users' own.

play once, with a ledger -> rows, observations, masks, decisions, episodes, rewards
play again, in other ways -> determinism, neighbours, buffers, quotas, snapshots, illegal actions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ludus import seeding
from ludus.errors import EnvError
from ludus.testing.env_plays import LeftOut, Make, Plan
from ludus.testing.ledger import Ledger, Team
from ludus.types import Timestep

__all__ = ["Check", "check_env", "checks", "run_checks"]


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One check's result. failure: a sentence that says what is wrong, or None. note: what a reader should know about a check that
    passed, or why it was left out. advice: what to do about the failure. error: what was raised."""

    name: str
    failure: str | None = None
    note: str = ""
    left_out: bool = False
    advice: str = ""
    error: Exception | None = None


ADVICE = {
    "description": "Correct `spec`: players, agents in the order of their players, symmetry, ranges.",
    "steps": "Play the environment by itself, with that seed and some actions, and see what it does there.",
    "rows": "List slots as int32 in rising order, environment × agents of the player + agent, and one entry per row in every column.",
    "observations": "Give observations of the announced shape and dtype within the space's bounds, or announce a wider space.",
    "masks": "Give bool[n, actions] with at least one legal action in each row; end the episode of an agent that has none.",
    "first decisions": "Set `first` where an agent decides for the first time in an episode or after it came back, with reward 0.",
    "closed decisions": "When an agent leaves, or its episode ends, put its open decision into `ended` once, whoever moved last.",
    "episodes": "Count a step for each step in which somebody was due, and give `utility_range` bounds that hold, or infinities.",
    "rewards": "Pay everything between two decisions into the first of them; returns are the sum of all that was paid.",
    "determinism": "Take all randomness from the seed that `reset` is given, and keep nothing from earlier episodes; a vector may say "
    "determinism='none' in its spec.",
    "neighbours": "Give each environment a random stream of its own; a vector may say determinism='vector' in its spec.",
    "buffers": "Keep two sets of arrays and fill them in turn, or make new ones in each step.",
    "quotas": "Let an environment fall idle, with nothing due, after `episodes` episodes.",
    "snapshots": "Save everything that the next steps depend on, random streams included, or answer None.",
    "illegal actions": "Check actions before anything changes, and raise EnvError.",
}


def check_env(
    make: Make,
    *,
    num_envs: int = 4,
    steps: int = 100,
    seed: int = 0,
    team: Team = "either",
    early_rewards: bool = False,
) -> None:
    """Play random legal actions for `steps` steps in several ways and compare. Raises AssertionError with one sentence that says
    what is wrong.

    make: makes a vector of so many environments. team: whether each agent of a player is paid the player's whole return, or they split
    it; either: one of them. early_rewards: a player may be paid before its first decision in an episode; they belong to no decision.
    """
    found = checks(make, num_envs=num_envs, steps=steps, seed=seed, team=team, early_rewards=early_rewards)
    for check in found:
        if check.failure is not None:
            raise AssertionError(check.failure) from check.error


def run_checks(
    make: Make,
    *,
    num_envs: int = 4,
    steps: int = 100,
    seed: int = 0,
    team: Team = "either",
    early_rewards: bool | None = None,
) -> list[Check]:
    """All checks of `check_env`; a failure of one does not hide the others. early_rewards=None: allowed, and noted where they occur."""
    return list(checks(make, num_envs=num_envs, steps=steps, seed=seed, team=team, early_rewards=early_rewards))


def checks(
    make: Make, *, num_envs: int, steps: int, seed: int, team: Team, early_rewards: bool | None
) -> Iterator[Check]:
    """The same one by one, each as soon as it is known."""
    seeds = seeding.keys(seed, "check_env", count=num_envs)
    plan = Plan(make, seeds, steps)
    described = _run("description", plan.description)
    yield described
    if plan.spec is None:
        return
    yield from _watched(plan, team, early_rewards)
    for name, check in plan.others.items():
        yield _other(plan, name, check)


# ---------------------------------------------------------------------------------------------- one check at a time


def _run(name: str, check: Callable[[], str]) -> Check:
    """`check` answers with a note and raises AssertionError, or whatever the environment raises."""
    raised = "description" if name == "description" else "steps"  # the advice for what the environment itself raises
    try:
        return Check(name, note=check())
    except LeftOut as reason:
        return Check(name, note=str(reason), left_out=True)
    except AssertionError as error:
        return Check(name, str(error), advice=ADVICE[name], error=error)
    except EnvError as error:  # says itself which environment, and when
        return Check(name, str(error), advice=ADVICE[raised], error=error)
    except Exception as error:  # noqa: BLE001  whatever an environment raises is a failure of this check
        return Check(name, f"raised {type(error).__name__}: {error}", advice=ADVICE[raised], error=error)


def _other(plan: Plan, name: str, check: Callable[[], str]) -> Check:
    """One of the later plays. What stopped the first one stops most of them; it is told once."""
    found = _run(name, check)
    if plan.stopped is None or found.error is None or isinstance(found.error, AssertionError):
        return found
    return Check(name, note="not checked: it was stopped as the first play was", left_out=True)


def _watched(plan: Plan, team: Team, early: bool | None) -> Iterator[Check]:
    """The checks of a ledger over one play."""
    assert plan.spec is not None
    n = len(plan.seeds)
    ledger = Ledger(plan.spec, n, team=team, early_rewards=bool(early), collect=True)
    lenient = Ledger(plan.spec, n, team=team, early_rewards=True, collect=True)

    def watch(timestep: Timestep) -> None:
        ledger.see(timestep)
        if early is None:
            lenient.see(timestep)

    played = _run("steps", lambda: plan.watched(watch))
    failures = dict(ledger.failures)
    rewards_note = ""
    if early is None and "rewards" in failures and "rewards" not in lenient.failures:
        del failures["rewards"]
        rewards_note = "a player is also paid before its first decision; is that so?"
    if played.failure is None or not failures:  # an exception may be what a breach led to
        yield played
    for topic in ledger.TOPICS:
        if topic in failures:
            yield Check(topic, failures[topic], advice=ADVICE[topic])
        elif "rows" in failures or played.failure is not None:
            yield Check(topic, note="not checked to the end", left_out=True)
        elif topic == "masks" and not plan.masked:
            yield Check(topic, note="none: every action is always legal", left_out=True)
        else:
            notes = {"rewards": rewards_note, "episodes": _seen(ledger, plan.steps)}
            yield Check(topic, note=notes.get(topic, ""))


def _seen(ledger: Ledger, steps: int) -> str:
    episodes = int(ledger.finished.sum())
    left = f", {ledger.left} times an agent left before the end" if ledger.left else ""
    return f"{episodes} ended{left}" if episodes else f"none ended within {steps} steps, so ends were not checked"
