"""What is wrong with a training, from what is stored of it: pure functions of its counters and its curve.

TrainingRecord --diagnose--> Diagnosis: a name, and what was observed, what it means and what to do

A diagnosis is no proof. Each has a threshold that healthy trainings stay far away from, and its reason stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray

from ludus.core.recorders import FIXED
from ludus.core.types import Curve

FEW_UPDATES = 5
"""With fewer updates a policy is hardly trained, whatever its algorithm: even what is learned from scratch in a matrix game takes more."""
POINTS = 8
"""Points of a curve that have metrics, below which nothing is said of how these change."""
GROWTH = 1e3
"""Growth of a value loss that is suspicious. While a policy improves, its values grow, and the loss with their square: a tenfold return is
a growth of 100."""
LARGE = 3.0
"""Root of a value loss, over the largest return of an episode, above which an error is larger than all that could be predicted. A value
network that always says 0 stays below 1."""
FROZEN_KL = 1e-6
"""KL divergence of an update below which a policy does not change: a thousandth of what PPO's updates have at usual learning rates, and
about ten times the rounding of float32."""
CERTAIN = 0.01
"""Share of the largest entropy below which a policy of discrete actions explores no more: of two actions, the less likely one has a
probability below 0.001. Where responses of a sealed-bid auction began with 0.006 of it, they ended with gains of 0 and less, and others
gained 1.3; those that began with 0.03 found what there was."""
UNCERTAIN = 0.05
"""Share of the largest entropy above which a policy that does not change is not simply done."""

_VALUE_LOSSES = ("value_loss", "critic_loss", "loss")


class Diagnosis(NamedTuple):
    """kind: its name, by which it is stored, such as "no_episode". text: a sentence or several."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """What is stored of a training task, over or in progress.

    task, policy: ids. counters: `ludus.core.recorders.PROGRESS` by name. curve: how it went. truncated: episodes that barriers have
    ended. num_envs: environments it was played in. over: the task has ended. warm: the name of the policy that it started from; "" for
    fresh weights, and for a learner that goes on. entropy: nats of uniform play; None where actions are continuous. goes_on: its learner
    is that of an earlier task, or of later ones. limited: so few updates are what was asked for.
    """

    task: str
    policy: str
    counters: Mapping[str, int]
    curve: Curve
    truncated: int = 0
    num_envs: int = 1
    over: bool = True
    warm: str = ""
    entropy: float | None = None
    goes_on: bool = False
    limited: bool = False


def largest_entropy(action: Space[Any]) -> float | None:
    """Compute the entropy of uniform play.

    Args:
        action: The space of an agent's actions.

    Returns:
        Nats; None where actions are continuous, or have no entropy that is known.
    """
    if isinstance(action, Discrete):
        return float(np.log(action.n))
    if isinstance(action, MultiDiscrete):
        return float(np.log(action.nvec).sum())
    return float(np.prod(action.shape) * np.log(2)) if isinstance(action, MultiBinary) else None


def diagnose(record: TrainingRecord) -> tuple[Diagnosis, ...]:
    """Name what is wrong with a training.

    Args:
        record: What is stored of it. One in progress may be looked at again later; what was found stays true.

    Returns:
        A diagnosis for each thing that is wrong; empty for a healthy training.
    """
    if not record.counters.get("decisions"):  # it was computed, or has not begun
        return ()
    return tuple(diagnosis for rule in _RULES if (diagnosis := rule(record)) is not None)


# ---------------------------------------------------------------------------------------------- episodes and updates


def _no_episode(record: TrainingRecord) -> Diagnosis | None:
    """Counters alone say it: of a task in progress once a barrier has cut episodes, which it will do again."""
    if record.counters["episodes"] or not (record.over or record.truncated):
        return None
    decisions, envs = record.counters["decisions"], record.num_envs
    each = f", {-(-record.counters['env_steps'] // envs):,} steps in each of {envs:,} environments" if envs > 1 else ""
    cut, rarer = "", ""
    if record.truncated:
        cut = f"; barriers cut {record.truncated:,} that were open"
        rarer = "make barriers rarer (checkpoints.iterations), "
    return Diagnosis(
        "no_episode",
        f"task {record.task}: no episode of policy {record.policy} has ended in {decisions:,} decisions{each}{cut}. Nobody knows what it "
        "earns, and it learns from its own guesses of what comes after. Let responses train longer, play fewer environments "
        f"(env.num_envs), {rarer}or end episodes earlier "
        "(env.wrappers=[{kind: time_limit, steps: 200}]).",
    )


def _no_update(record: TrainingRecord) -> Diagnosis | None:
    if not record.over or record.counters["updates"]:
        return None
    return Diagnosis(
        "no_update",
        f"task {record.task} ended after {record.counters['decisions']:,} decisions without an update: policy {record.policy} is what it "
        "started from. Let responses train longer, or have the algorithm begin to learn earlier.",
    )


def _few_updates(record: TrainingRecord) -> Diagnosis | None:
    """Not of a learner that goes on from task to task, nor where so few are what was asked for."""
    updates = record.counters["updates"]
    if not record.over or not 0 < updates < FEW_UPDATES or record.goes_on or record.limited:
        return None
    return Diagnosis(
        "few_updates",
        f"task {record.task} ended after {record.counters['decisions']:,} decisions and only {updates} update{'s' * (updates > 1)} of "
        f"policy {record.policy}. Let responses train longer, or collect less for each update.",
    )


# ---------------------------------------------------------------------------------------------- how metrics change


def _value_loss(record: TrainingRecord) -> Diagnosis | None:
    """Grown, and larger than what can be earned: of the second alone, rewards that were scaled are a cause, of the first a policy that
    improves."""
    for name, values in _learned(record.curve, *_VALUE_LOSSES):
        first, last = _median(values, 0, 0.1), _median(values, 0.9, 1)
        if first >= 0 and last > max(GROWTH * first, (LARGE * _largest_return(record.curve)) ** 2):
            return Diagnosis(
                "value_loss",
                f"task {record.task}: the {name.replace('_', ' ')} of policy {record.policy} grew from {first:.2g} to {last:.2g}, far "
                "above what episodes return: its values diverge, and what it learns from them is noise. Discount the future "
                "(algorithm.gamma=0.99 or less, where episodes are cut and do not end), or lower algorithm.learning_rate.",
            )
    return None


def _frozen_policy(record: TrainingRecord) -> Diagnosis | None:
    """A policy that is certain, or of which nothing is left to learn, rightly stays as it is."""
    metrics = dict(_learned(record.curve, "kl", "entropy", "value_loss"))
    if not {"kl", "value_loss"} <= metrics.keys():
        return None
    kl, loss, entropy = metrics["kl"], metrics["value_loss"], metrics.get("entropy")
    if _median(np.abs(kl), 0.5, 1) >= FROZEN_KL or _median(loss, 0.75, 1) < 0.9 * _median(loss, 0, 0.25):
        return None
    if record.entropy is not None and (entropy is None or _median(entropy, 0.5, 1) < UNCERTAIN * record.entropy):
        return None
    return Diagnosis(
        "frozen_policy",
        f"task {record.task}: policy {record.policy} has stopped to change (KL {_median(np.abs(kl), 0.5, 1):.1g}) while its value loss "
        f"({_median(loss, 0.75, 1):.2g}) does not fall: it learns nothing more. A value loss that is too large takes all of a clipped "
        "gradient (algorithm.gamma, algorithm.value_coefficient); else raise algorithm.learning_rate.",
    )


def _low_entropy(record: TrainingRecord) -> Diagnosis | None:
    """Of a response that began as a copy of a policy which takes no chances any more."""
    entropy = record.curve["entropy"] if "entropy" in record.curve.columns else np.empty(0)
    entropy = entropy[np.isfinite(entropy)]
    if not record.warm or record.entropy is None or not len(entropy) or entropy[0] >= CERTAIN * record.entropy:
        return None
    return Diagnosis(
        "low_entropy",
        f"task {record.task}: policy {record.policy} started from {record.warm} with an entropy of {entropy[0]:.2g}: it hardly tries "
        "anything else than that policy does, so that a gain of 0 may mean that it did not look. Start from fresh weights "
        "(warm_start=random), raise algorithm.entropy_coefficient, and see what others gain: ludus evaluate RUN --exploit 10000.",
    )


_RULES: tuple[Callable[[TrainingRecord], Diagnosis | None], ...] = (
    _no_episode,
    _no_update,
    _few_updates,
    _value_loss,
    _frozen_policy,
    _low_entropy,
)


def _learned(curve: Curve, *names: str) -> list[tuple[str, NDArray[np.float64]]]:
    """Return the metrics of these names that have enough points: their finite values, in order."""
    metrics = [name for name in names if name in curve.columns and name not in FIXED]
    known = [(name, curve[name][np.isfinite(curve[name])]) for name in metrics]
    return [(name, values) for name, values in known if len(values) >= POINTS]


def _median(values: NDArray[np.float64], first: float, last: float) -> float:
    """Return the median of the part of a curve between two shares of it."""
    start = min(int(first * len(values)), len(values) - 1)
    return float(np.median(values[start : max(start + 1, round(last * len(values)))]))


def _largest_return(curve: Curve) -> float:
    """Return the largest size of a return; 0 where no episode has ended."""
    bounds = np.concatenate([curve["low"], curve["high"]])
    return float(np.abs(bounds[np.isfinite(bounds)]).max(initial=0.0))
