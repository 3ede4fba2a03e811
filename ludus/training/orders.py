"""The orders of a training task: who learns, in which seats, against whom, and with which random streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakValueDictionary

from ludus import seeding
from ludus.algorithms.base import Collect
from ludus.errors import ScenarioError
from ludus.opponents.moving import Moving, live_refs, start_of
from ludus.policies.base import Policy
from ludus.rollout.base import RolloutOrder
from ludus.rollout.draws import learner_refs, mixture_refs
from ludus.rollout.manager import Remote, RolloutManager
from ludus.training.collecting import Policies
from ludus.training.counts import Counts
from ludus.types import Mixture, PolicyRef, TrainingTask


class Newest(Protocol):
    """A learner in progress."""

    def newest(self, mode: str) -> tuple[PolicyRef, Policy | Remote]:
        """Its newest weights, and the ref with their version."""
        ...


class Orders:
    """Makes the orders of one task; what it has given out is counted in `Counts`."""

    def __init__(
        self,
        task: TrainingTask,
        collect: Collect,
        rollouts: RolloutManager,
        policy: Callable[[PolicyRef], Policy],
        *,
        seed: int,
        apart: bool,
    ) -> None:
        """policy: gives a frozen one. seed: of the task. apart: whether hosts have orders of their own. Raises UnknownName or ConfigError
        for opponents that are moved by a rule that there is not."""
        self.opponents = Moving(task.opponents)
        self._task, self._collect, self._rollouts, self._seed, self._apart = task, collect, rollouts, seed, apart
        refs = mixture_refs(start_of(task.opponents))
        self._frozen = [(ref, policy(ref)) for ref in refs if ref.version is not None]
        self._live = live_refs(task.opponents)
        self._learners: WeakValueDictionary[tuple[int, str], Newest] = WeakValueDictionary()
        self._seats: dict[int, tuple[int, ...]] = {}  # by host: its environment e plays seats[e mod len]

    def meet(self, learners: Mapping[tuple[int, str], Newest]) -> None:
        """The trainings in progress together, by (population, policy), which the caller keeps: whose newest weights live opponents are."""
        self._learners = WeakValueDictionary(learners)  # a task meets itself, too

    @property
    def met(self) -> bool:
        """Whether every live opponent is known."""
        return all((ref.population, ref.policy) in self._learners for ref in self._live)

    def order(
        self, count: Counts, *, learner: PolicyRef, weights: Policy | Remote, carry_on: bool, host: int
    ) -> tuple[RolloutOrder, Policies]:
        """The next one, and the policies that it names. learner: with its newest version, whose weights are `weights`."""
        collect = self._collect
        if not carry_on:
            seats = self._task.seats
            first = count.orders % len(seats)  # every seat has its turn, even with one environment
            self._seats[host] = seats[first:] + seats[:first]
        if (
            self._apart or collect.unit == "decisions"
        ):  # ids differ from those of open episodes, whoever has to begin anew
            envs = self._rollouts.num_envs
            count.next_episode = -(-count.next_episode // envs) * envs
        opponents, policies = self.playing(learner, weights)
        share = self._task.together
        order = RolloutOrder(
            learner=learner,
            seats=self._seats[host],
            opponents=opponents,
            unit=collect.unit,
            amount=collect.amount,
            seed=seeding.key(self._seed, "collect", count.orders),
            carry_on=carry_on,
            extras=collect.extras,
            first_episode=count.next_episode,
            modes=collect.modes,
            modes_seed=self._seed,
            state=collect.state,
            together=int((count.orders + 1) * share) > int(count.orders * share),
        )
        named = {**dict(policies), **dict.fromkeys(learner_refs(order), weights)}
        count.orders += 1
        if self._apart and collect.unit == "episodes":
            count.next_episode += collect.amount
        return order, [*named.items()]

    def playing(self, learner: PolicyRef, weights: Policy | Remote) -> tuple[Mixture, Policies]:
        """The opponents as they are now, and everybody who may play, each once. Raises ScenarioError if a live opponent is nobody who is in
        progress."""
        if not self.met:
            raise self._unknown()
        policies: dict[PolicyRef, Policy | Remote] = {learner: weights}

        def live(ref: PolicyRef) -> PolicyRef:
            now, policy = self._learners[ref.population, ref.policy].newest(ref.mode)
            policies.setdefault(now, policy)
            return now

        return self.opponents.mixture(live), [*policies.items(), *self._frozen]

    def _unknown(self) -> ScenarioError:
        ref = next(ref for ref in self._live if (ref.population, ref.policy) not in self._learners)
        known = (
            ", ".join(f"{policy!r} of population {population}" for population, policy in self._learners) or "nothing"
        )
        return ScenarioError(
            f"task {self._task.id} plays against the newest weights of {ref.policy!r} of population {ref.population}, which no task in "
            f"progress with it trains; those train {known}. The scheduler must give them out together."
        )
