"""A scenario and a scheduler of your own, from zero: each generation trains against the newest policies of the others, all alike.

python examples/own_scheduler.py
PYTHONPATH=examples ludus train kuhn scenario=own_scheduler:Ladder newest=3 generations=4
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

import ludus
from ludus.testing.scheduler import check_scheduler

Task = ludus.TrainingTask | ludus.EvaluationTask


class LadderScheduler:
    """Announces generation 0, trains generation 1, announces it, trains generation 2 … Its state: which tasks have been answered."""

    together = (
        1  # training tasks that must be in progress at a time, since they play against each other: here they do not
    )

    def __init__(self, generations: int, newest: int, population: tuple[int, ...]) -> None:
        """population: [P] index of each player's population."""
        self.generations, self.newest, self.population = generations, newest, population
        self.answered: list[str] = []
        self.out: set[str] = set()

    def next_tasks(self, view: ludus.View, free: int) -> Sequence[Task]:
        """At most `free` tasks of the present stage that are neither answered nor out; nothing once the last one is answered."""
        for generation in range(self.generations + 1):
            for stage in (self._announcement, self._responses):
                tasks = [task for task in stage(view, generation) if task.id not in self.answered]
                if tasks:  # the next stage begins when all of this one is answered
                    tasks = [task for task in tasks if task.id not in self.out][:free]
                    self.out.update(task.id for task in tasks)
                    return tasks
        return []

    def _announcement(self, view: ludus.View, generation: int) -> list[Task]:
        """What the generation has come to: a row of the results, with its exploitability where the game has a tree."""
        task_id = f"solution-{generation}"
        if task_id in self.answered:  # by then populations have grown
            return [ludus.EvaluationTask(task_id, generation)]
        marginals = []
        for k in self.population:
            probs = np.zeros(len(view.populations[k]))
            probs[self._rungs(view, k, generation)] = 1.0
            marginals.append(probs / probs.sum())
        return [ludus.EvaluationTask(task_id, generation, solution=ludus.MetaSolution(tuple(marginals), gap=np.nan))]

    def _responses(self, view: ludus.View, generation: int) -> list[Task]:
        """A new policy for each population, against what has just been announced."""
        if generation == self.generations:
            return []
        others = {}
        for player, k in enumerate(self.population):
            policies = [view.populations[k][place] for place in self._rungs(view, k, generation)]
            others[player] = (policies, [1 / len(policies)] * len(policies))
        return [
            ludus.TrainingTask(
                id=f"train-{k}-{generation + 1}",
                generation=generation + 1,
                population=k,
                seats=tuple(player for player, which in enumerate(self.population) if which == k),
                policy=f"{k}-{generation + 1}",
                opponents=ludus.Mixture.product(others),
            )
            for k in sorted(set(self.population))
        ]

    def _rungs(self, view: ludus.View, population: int, generation: int) -> list[int]:
        """Places of the newest members that a generation has: those of the next may be there already."""
        last = view.first(population) - 1 + generation
        return list(range(max(0, last - self.newest + 1), last + 1))

    def on_result(self, result: ludus.TaskResult, view: ludus.View) -> None:
        """A result that is given twice counts once."""
        if result.task.id not in self.answered:
            self.answered.append(result.task.id)
        self.out.discard(result.task.id)

    def state_dict(self) -> dict[str, list[str]]:
        """All that the next tasks depend on."""
        return {"answered": list(self.answered)}

    def load_state_dict(self, state: dict[str, list[str]]) -> None:
        """Tasks that were out are given out again."""
        self.answered, self.out = list(state["answered"]), set()


class Ladder(ludus.Scenario):
    """Its fields are its keys in a scenario, beside those that every scenario has."""

    newest: int = Field(1, ge=1)

    @property
    def reads_payoffs(self) -> bool:
        """No matches are asked for."""
        return False

    def scheduler(self, population: tuple[int, ...]) -> LadderScheduler:
        return LadderScheduler(self.generations, self.newest, population)


def main(generations: int = 6) -> None:
    check_scheduler(lambda: LadderScheduler(3, newest=2, population=(0, 1)), population=(0, 1))
    scenario = Ladder(env="openspiel/kuhn_poker", algorithm="exact", newest=3, generations=generations)
    result = ludus.run(scenario)
    print("NashConv:", [round(value, 3) for value in result.nash_conv])


if __name__ == "__main__":
    main()
