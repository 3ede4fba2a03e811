"""Ludus trains populations of reinforcement-learning policies against each other.

import ludus

result = ludus.run(ludus.PSRO(env="openspiel/leduc_poker", algorithm=ludus.PPO(), meta_solver="nash", generations=20))
print(result.nash_conv)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.core.errors import LudusError
    from ludus.driver.result import Result
    from ludus.driver.runner import resume, run
    from ludus.driver.scenario import Checkpoints, Evaluation, Scenario
    from ludus.driver.scenario_files import list_presets, load_scenario
    from ludus.driver.scenario_kinds import PSRO
    from ludus.envs.options import Environment
    from ludus.evaluation.against import evaluate_against
    from ludus.evaluation.evaluate import evaluate_run
    from ludus.evaluation.exploiters import exploit_population, exploit_run
    from ludus.evaluation.population import evaluate_population
    from ludus.evaluation.ratings import rate_run
    from ludus.learners.dqn.options import DQN
    from ludus.learners.exact.oracle import ExactBestResponse
    from ludus.learners.ppo.options import PPO
    from ludus.learners.tabular_q.options import TabularQ
    from ludus.schedulers.psro import WarmStart
    from ludus.training.callbacks import Callback
    from ludus.view.report import write_report

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022  in the order of `sorted`, not of isort
    "Callback",
    "Checkpoints",
    "DQN",
    "Environment",
    "Evaluation",
    "ExactBestResponse",
    "LudusError",
    "PPO",
    "PSRO",
    "Result",
    "Scenario",
    "TabularQ",
    "WarmStart",
    "__version__",
    "evaluate_against",
    "evaluate_population",
    "evaluate_run",
    "exploit_population",
    "exploit_run",
    "list_presets",
    "load_scenario",
    "rate_run",
    "resume",
    "run",
    "write_report",
]

# Resolved when they are first used, so that `import ludus` and the commands that need no torch stay fast.
_HOMES = {
    "DQN": "ludus.learners.dqn.options",
    "PPO": "ludus.learners.ppo.options",
    "PSRO": "ludus.driver.scenario_kinds",
    "Callback": "ludus.training.callbacks",
    "Checkpoints": "ludus.driver.scenario",
    "Environment": "ludus.envs.options",
    "Evaluation": "ludus.driver.scenario",
    "ExactBestResponse": "ludus.learners.exact.oracle",
    "LudusError": "ludus.core.errors",
    "Result": "ludus.driver.result",
    "Scenario": "ludus.driver.scenario",
    "TabularQ": "ludus.learners.tabular_q.options",
    "WarmStart": "ludus.schedulers.psro",
    "evaluate_against": "ludus.evaluation.against",
    "evaluate_population": "ludus.evaluation.population",
    "evaluate_run": "ludus.evaluation.evaluate",
    "exploit_population": "ludus.evaluation.exploiters",
    "exploit_run": "ludus.evaluation.exploiters",
    "list_presets": "ludus.driver.scenario_files",
    "load_scenario": "ludus.driver.scenario_files",
    "rate_run": "ludus.evaluation.ratings",
    "resume": "ludus.driver.runner",
    "run": "ludus.driver.runner",
    "write_report": "ludus.view.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ludus' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
