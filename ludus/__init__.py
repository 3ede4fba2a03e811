"""Ludus trains populations of reinforcement-learning policies against each other.

import ludus

result = ludus.run(ludus.PSRO(env="openspiel/leduc_poker", oracle=ludus.PPO(), meta_solver="nash", generations=20))
print(result.nash_conv)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.algorithms.dqn.config import DQN
    from ludus.algorithms.exact.config import ExactBestResponse
    from ludus.algorithms.ppo.config import PPO
    from ludus.algorithms.tabular_q.config import TabularQ
    from ludus.errors import LudusError
    from ludus.evaluation.against import evaluate_against
    from ludus.evaluation.evaluate import evaluate_run
    from ludus.evaluation.run_population import evaluate_population
    from ludus.evaluation.run_ratings import rate_run
    from ludus.exploit import exploit_run
    from ludus.observe.callbacks import Callback
    from ludus.population_exploiters import exploit_population
    from ludus.report import write_report
    from ludus.result import Result
    from ludus.runner import resume, run
    from ludus.scenario import Checkpoints, Environment, Evaluation, Scenario
    from ludus.scenario_files import list_presets, load_scenario
    from ludus.scenarios.psro import PSRO
    from ludus.schedulers.warm_start import WarmStart

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
    "DQN": "ludus.algorithms.dqn.config",
    "PPO": "ludus.algorithms.ppo.config",
    "PSRO": "ludus.scenarios.psro",
    "Callback": "ludus.observe.callbacks",
    "Checkpoints": "ludus.scenario",
    "Environment": "ludus.scenario",
    "Evaluation": "ludus.scenario",
    "ExactBestResponse": "ludus.algorithms.exact.config",
    "LudusError": "ludus.errors",
    "Result": "ludus.result",
    "Scenario": "ludus.scenario",
    "TabularQ": "ludus.algorithms.tabular_q.config",
    "WarmStart": "ludus.schedulers.warm_start",
    "evaluate_against": "ludus.evaluation.against",
    "evaluate_population": "ludus.evaluation.run_population",
    "evaluate_run": "ludus.evaluation.evaluate",
    "exploit_population": "ludus.population_exploiters",
    "exploit_run": "ludus.exploit",
    "list_presets": "ludus.scenario_files",
    "load_scenario": "ludus.scenario_files",
    "rate_run": "ludus.evaluation.run_ratings",
    "resume": "ludus.runner",
    "run": "ludus.runner",
    "write_report": "ludus.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ludus' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
