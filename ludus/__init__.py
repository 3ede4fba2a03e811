"""Ludus trains populations of reinforcement-learning policies against each other.

import ludus

result = ludus.run(ludus.PSRO(env="openspiel/leduc_poker", algorithm=ludus.PPO(), meta_solver="nash", generations=20))
print(result.nash_conv)
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

if os.environ.get("LUDUS_ROUNDING_NOISE"):  # before anything is compiled, or has looked up what it calls
    importlib.import_module("ludus.core.rounding_noise").install(os.environ["LUDUS_ROUNDING_NOISE"])

if TYPE_CHECKING:
    from ludus.core.config import Config
    from ludus.core.errors import ConfigError, EnvError, LudusError, RunWarning, ScenarioError, SolverError
    from ludus.core.types import (
        ActionRequests,
        AgentSpec,
        ClosedDecisions,
        EnvSpec,
        EvaluationTask,
        FinishedEpisodes,
        MetaSolution,
        Mixture,
        PolicyRef,
        PolicySpec,
        TaskResult,
        Timestep,
        TrainingTask,
    )
    from ludus.driver.control import StopRequest
    from ludus.driver.result import Result
    from ludus.driver.runner import resume, run
    from ludus.driver.scenario import Checkpoints, Evaluation, Scenario
    from ludus.driver.scenario_files import list_presets, load_scenario
    from ludus.driver.scenario_kinds import (
        ODO,
        PBT,
        PFSP,
        PSRO,
        XDO,
        AnytimePSRO,
        EfficientPSRO,
        FictitiousSelfPlay,
        FixedOpponents,
        League,
        NeuPL,
        PipelinePSRO,
        SelfPlay,
        SelfPlayPSRO,
    )
    from ludus.envs.base import VectorEnv
    from ludus.envs.options import Environment
    from ludus.envs.registry import make_env
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.evaluation.against import evaluate_against
    from ludus.evaluation.evaluate import evaluate_run
    from ludus.evaluation.exploiters import exploit_population, exploit_run
    from ludus.evaluation.population import evaluate_population
    from ludus.evaluation.ratings import rate_run
    from ludus.evaluation.trained import TrainedPolicy, load_policy
    from ludus.evaluation.zoo import ZooEntry, pull, push
    from ludus.learners.alphazero.options import AlphaZero
    from ludus.learners.coma.options import COMA
    from ludus.learners.ddpg.options import DDPG, TD3, ApeXDDPG
    from ludus.learners.dqn.options import DQN, IQN, QRDQN, ApeX, MunchausenDQN, Rainbow
    from ludus.learners.exact.oracle import ExactBestResponse
    from ludus.learners.maddpg.options import MADDPG
    from ludus.learners.mat.options import MAT, MATDec
    from ludus.learners.mmd.options import MMD, RNaD
    from ludus.learners.mpo.options import MPO, VMPO
    from ludus.learners.muzero.options import MuZero
    from ludus.learners.nfsp.options import NFSP
    from ludus.learners.on_policy.options import A2C, IMPALA, Reinforce
    from ludus.learners.ppo.options import MAPPO, PPO
    from ludus.learners.qmix.options import CDSQMIX, CWQMIX, OWQMIX, QMIX, QPLEX, VDN
    from ludus.learners.r2d2.options import R2D2
    from ludus.learners.sac.options import SAC, SACDiscrete
    from ludus.learners.sequential.options import A2PO, HAPPO, HATRPO, CoPPO
    from ludus.learners.tabular_q.options import TabularQ
    from ludus.policies.base import Policy
    from ludus.population.base import View
    from ludus.population.payoffs import Payoffs
    from ludus.schedulers.base import Scheduler
    from ludus.schedulers.options import ScheduleContext
    from ludus.schedulers.psro import WarmStart
    from ludus.solvers.base import MetaSolver
    from ludus.storage.base import GenerationRecord, NullObserver
    from ludus.training.by_hand import StandaloneLearner, learner
    from ludus.training.callbacks import Callback
    from ludus.training.stopping import (
        AllOf,
        AnyOf,
        BestResponseGain,
        Decisions,
        Episodes,
        Generations,
        NashConv,
        NoImprovement,
        Progress,
        Samples,
        Seconds,
        Steps,
        Stopper,
        Updates,
        WinRate,
    )
    from ludus.view.report import write_report

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022  in the order of `sorted`, not of isort
    "A2C",
    "A2PO",
    "ActionRequests",
    "AgentSpec",
    "AllOf",
    "AlphaZero",
    "AnyOf",
    "AnytimePSRO",
    "ApeX",
    "ApeXDDPG",
    "BestResponseGain",
    "CDSQMIX",
    "COMA",
    "CWQMIX",
    "Callback",
    "Checkpoints",
    "ClosedDecisions",
    "CoPPO",
    "Config",
    "ConfigError",
    "DDPG",
    "DQN",
    "Decisions",
    "EfficientPSRO",
    "EnvError",
    "EnvSpec",
    "Environment",
    "Episodes",
    "Evaluation",
    "EvaluationTask",
    "ExactBestResponse",
    "FictitiousSelfPlay",
    "FinishedEpisodes",
    "FixedOpponents",
    "GenerationRecord",
    "Generations",
    "HAPPO",
    "HATRPO",
    "IMPALA",
    "IQN",
    "League",
    "LudusError",
    "MADDPG",
    "MAPPO",
    "MAT",
    "MATDec",
    "MMD",
    "MPO",
    "MetaSolution",
    "MetaSolver",
    "Mixture",
    "MuZero",
    "MunchausenDQN",
    "NFSP",
    "NashConv",
    "NeuPL",
    "NoImprovement",
    "NullObserver",
    "ODO",
    "OWQMIX",
    "PBT",
    "PFSP",
    "PPO",
    "PSRO",
    "Payoffs",
    "PipelinePSRO",
    "Policy",
    "PolicyRef",
    "PolicySpec",
    "Progress",
    "QMIX",
    "QPLEX",
    "QRDQN",
    "R2D2",
    "RNaD",
    "Rainbow",
    "Reinforce",
    "Result",
    "RunWarning",
    "SAC",
    "SACDiscrete",
    "Samples",
    "Scenario",
    "ScenarioError",
    "ScheduleContext",
    "Scheduler",
    "Seconds",
    "SelfPlay",
    "SelfPlayPSRO",
    "SolverError",
    "StandaloneLearner",
    "Steps",
    "StopRequest",
    "Stopper",
    "TD3",
    "TabularQ",
    "TaskResult",
    "Timestep",
    "TrainedPolicy",
    "TrainingTask",
    "Updates",
    "VDN",
    "VMPO",
    "VectorEnv",
    "View",
    "WarmStart",
    "WinRate",
    "XDO",
    "ZooEntry",
    "__version__",
    "compile_tree",
    "evaluate_against",
    "evaluate_population",
    "evaluate_run",
    "exploit_population",
    "exploit_run",
    "learner",
    "list_presets",
    "load_policy",
    "load_scenario",
    "make_env",
    "pull",
    "push",
    "rate_run",
    "resume",
    "run",
    "write_report",
]

# Resolved when they are first used, so that `import ludus` and the commands that need no torch stay fast.
_HOMES = {
    "A2C": "ludus.learners.on_policy.options",
    "A2PO": "ludus.learners.sequential.options",
    "ActionRequests": "ludus.core.types",
    "AgentSpec": "ludus.core.types",
    "AllOf": "ludus.training.stopping",
    "AlphaZero": "ludus.learners.alphazero.options",
    "AnyOf": "ludus.training.stopping",
    "AnytimePSRO": "ludus.driver.scenario_kinds",
    "ApeX": "ludus.learners.dqn.options",
    "ApeXDDPG": "ludus.learners.ddpg.options",
    "BestResponseGain": "ludus.training.stopping",
    "CDSQMIX": "ludus.learners.qmix.options",
    "COMA": "ludus.learners.coma.options",
    "CWQMIX": "ludus.learners.qmix.options",
    "Callback": "ludus.training.callbacks",
    "Checkpoints": "ludus.driver.scenario",
    "ClosedDecisions": "ludus.core.types",
    "CoPPO": "ludus.learners.sequential.options",
    "Config": "ludus.core.config",
    "ConfigError": "ludus.core.errors",
    "DDPG": "ludus.learners.ddpg.options",
    "DQN": "ludus.learners.dqn.options",
    "Decisions": "ludus.training.stopping",
    "EfficientPSRO": "ludus.driver.scenario_kinds",
    "EnvError": "ludus.core.errors",
    "EnvSpec": "ludus.core.types",
    "Environment": "ludus.envs.options",
    "Episodes": "ludus.training.stopping",
    "Evaluation": "ludus.driver.scenario",
    "EvaluationTask": "ludus.core.types",
    "ExactBestResponse": "ludus.learners.exact.oracle",
    "FictitiousSelfPlay": "ludus.driver.scenario_kinds",
    "FinishedEpisodes": "ludus.core.types",
    "FixedOpponents": "ludus.driver.scenario_kinds",
    "GenerationRecord": "ludus.storage.base",
    "Generations": "ludus.training.stopping",
    "HAPPO": "ludus.learners.sequential.options",
    "HATRPO": "ludus.learners.sequential.options",
    "IMPALA": "ludus.learners.on_policy.options",
    "IQN": "ludus.learners.dqn.options",
    "League": "ludus.driver.scenario_kinds",
    "LudusError": "ludus.core.errors",
    "MADDPG": "ludus.learners.maddpg.options",
    "MAPPO": "ludus.learners.ppo.options",
    "MAT": "ludus.learners.mat.options",
    "MATDec": "ludus.learners.mat.options",
    "MMD": "ludus.learners.mmd.options",
    "MPO": "ludus.learners.mpo.options",
    "MetaSolution": "ludus.core.types",
    "MetaSolver": "ludus.solvers.base",
    "Mixture": "ludus.core.types",
    "MuZero": "ludus.learners.muzero.options",
    "MunchausenDQN": "ludus.learners.dqn.options",
    "NFSP": "ludus.learners.nfsp.options",
    "NashConv": "ludus.training.stopping",
    "NeuPL": "ludus.driver.scenario_kinds",
    "NoImprovement": "ludus.training.stopping",
    "NullObserver": "ludus.storage.base",
    "ODO": "ludus.driver.scenario_kinds",
    "OWQMIX": "ludus.learners.qmix.options",
    "PBT": "ludus.driver.scenario_kinds",
    "PFSP": "ludus.driver.scenario_kinds",
    "PPO": "ludus.learners.ppo.options",
    "PSRO": "ludus.driver.scenario_kinds",
    "Payoffs": "ludus.population.payoffs",
    "PipelinePSRO": "ludus.driver.scenario_kinds",
    "Policy": "ludus.policies.base",
    "PolicyRef": "ludus.core.types",
    "PolicySpec": "ludus.core.types",
    "Progress": "ludus.training.stopping",
    "QMIX": "ludus.learners.qmix.options",
    "QPLEX": "ludus.learners.qmix.options",
    "QRDQN": "ludus.learners.dqn.options",
    "R2D2": "ludus.learners.r2d2.options",
    "RNaD": "ludus.learners.mmd.options",
    "Rainbow": "ludus.learners.dqn.options",
    "Reinforce": "ludus.learners.on_policy.options",
    "Result": "ludus.driver.result",
    "RunWarning": "ludus.core.errors",
    "SAC": "ludus.learners.sac.options",
    "SACDiscrete": "ludus.learners.sac.options",
    "Samples": "ludus.training.stopping",
    "Scenario": "ludus.driver.scenario",
    "ScenarioError": "ludus.core.errors",
    "ScheduleContext": "ludus.schedulers.options",
    "Scheduler": "ludus.schedulers.base",
    "Seconds": "ludus.training.stopping",
    "SelfPlay": "ludus.driver.scenario_kinds",
    "SelfPlayPSRO": "ludus.driver.scenario_kinds",
    "SolverError": "ludus.core.errors",
    "StandaloneLearner": "ludus.training.by_hand",
    "Steps": "ludus.training.stopping",
    "StopRequest": "ludus.driver.control",
    "Stopper": "ludus.training.stopping",
    "TD3": "ludus.learners.ddpg.options",
    "TabularQ": "ludus.learners.tabular_q.options",
    "TaskResult": "ludus.core.types",
    "Timestep": "ludus.core.types",
    "TrainedPolicy": "ludus.evaluation.trained",
    "TrainingTask": "ludus.core.types",
    "Updates": "ludus.training.stopping",
    "VDN": "ludus.learners.qmix.options",
    "VMPO": "ludus.learners.mpo.options",
    "VectorEnv": "ludus.envs.base",
    "View": "ludus.population.base",
    "WarmStart": "ludus.schedulers.psro",
    "WinRate": "ludus.training.stopping",
    "XDO": "ludus.driver.scenario_kinds",
    "ZooEntry": "ludus.evaluation.zoo",
    "compile_tree": "ludus.envs.tree.game_tree",
    "evaluate_against": "ludus.evaluation.against",
    "evaluate_population": "ludus.evaluation.population",
    "evaluate_run": "ludus.evaluation.evaluate",
    "exploit_population": "ludus.evaluation.exploiters",
    "exploit_run": "ludus.evaluation.exploiters",
    "learner": "ludus.training.by_hand",
    "list_presets": "ludus.driver.scenario_files",
    "load_policy": "ludus.evaluation.trained",
    "load_scenario": "ludus.driver.scenario_files",
    "make_env": "ludus.envs.registry",
    "pull": "ludus.evaluation.zoo",
    "push": "ludus.evaluation.zoo",
    "rate_run": "ludus.evaluation.ratings",
    "resume": "ludus.driver.runner",
    "run": "ludus.driver.runner",
    "write_report": "ludus.view.report",
}


_RENAMED = {
    "Due": "ActionRequests",
    "Ended": "ClosedDecisions",
    "Finished": "FinishedEpisodes",
    "HandLearner": "StandaloneLearner",
    "Silent": "NullObserver",
    "Solution": "MetaSolution",
}
"""Names of earlier releases, which still work and warn."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"ludus.{name} is called ludus.{_RENAMED[name]} now.", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'ludus' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
