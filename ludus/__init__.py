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
    importlib.import_module("ludus.testing.rounding_noise").install(os.environ["LUDUS_ROUNDING_NOISE"])

if TYPE_CHECKING:
    from ludus.algorithms.alphazero.config import AlphaZero
    from ludus.algorithms.ddpg.config import DDPG, TD3, ApeXDDPG
    from ludus.algorithms.dqn.config import DQN, IQN, QRDQN, ApeX, MunchausenDQN, Rainbow
    from ludus.algorithms.exact.oracle import ExactBestResponse
    from ludus.algorithms.mmd.config import MMD, RNaD
    from ludus.algorithms.nfsp.config import NFSP
    from ludus.algorithms.on_policy.config import A2C, IMPALA, Reinforce
    from ludus.algorithms.ppo.config import MAPPO, PPO
    from ludus.algorithms.r2d2.config import R2D2
    from ludus.algorithms.sac.config import SAC, SACDiscrete
    from ludus.apps.hub.zoo import ZooEntry, pull, push
    from ludus.apps.interfaces.make import gymnasium_env, gymnasium_vector_env, pettingzoo_env, sb3_vec_env
    from ludus.apps.tracking.session import Tracking, track
    from ludus.apps.ui.report import write_report
    from ludus.contrib.algorithms.coma.config import COMA
    from ludus.contrib.algorithms.maddpg.config import MADDPG
    from ludus.contrib.algorithms.mat.config import MAT, MATDec
    from ludus.contrib.algorithms.mpo.config import MPO, VMPO
    from ludus.contrib.algorithms.muzero.config import MuZero
    from ludus.contrib.algorithms.qmix.config import CDSQMIX, CWQMIX, OWQMIX, QMIX, QPLEX, VDN
    from ludus.contrib.algorithms.sequential.config import A2PO, HAPPO, HATRPO, CoPPO
    from ludus.contrib.algorithms.tabular_q.config import TabularQ
    from ludus.core.config import Config
    from ludus.core.errors import (
        ConfigError,
        EnvError,
        LudusError,
        ResourceError,
        RunWarning,
        ScenarioError,
        SolverError,
    )
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
    from ludus.envs.base import VectorEnv
    from ludus.envs.config import Environment
    from ludus.envs.registry import make_env
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.evaluation.evaluate import evaluate_run
    from ludus.evaluation.exact_exploitability import evaluate_exact
    from ludus.evaluation.exploiters import exploit_population, exploit_run
    from ludus.evaluation.population_exploitability import evaluate_population
    from ludus.evaluation.run_ratings import rate_run
    from ludus.evaluation.trained import TrainedPolicy, load_policy
    from ludus.metagame.population.base import Payoffs, View
    from ludus.metagame.solvers.base import MetaSolver
    from ludus.policies.base import Policy
    from ludus.runs.control import StopRequest
    from ludus.runs.runner import Result, resume, run
    from ludus.runs.scenario import (
        ODO,
        PBT,
        PFSP,
        PSRO,
        XDO,
        AnytimePSRO,
        Checkpoints,
        EfficientPSRO,
        Evaluation,
        FictitiousSelfPlay,
        FixedOpponents,
        League,
        NeuPL,
        PipelinePSRO,
        Scenario,
        SelfPlay,
        SelfPlayPSRO,
    )
    from ludus.runs.scenario_files import list_presets, load_scenario
    from ludus.schedulers.base import Scheduler
    from ludus.schedulers.config import ScheduleContext
    from ludus.schedulers.psro import WarmStart
    from ludus.storage.base import GenerationRecord, NullObserver
    from ludus.tournament.cross_play import evaluate_cross_play
    from ludus.tournament.run import TournamentOptions, play_tournament
    from ludus.training.callbacks import Callback
    from ludus.training.standalone import StandaloneLearner, learner
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

__version__ = "0.2.0"

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
    "ResourceError",
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
    "TournamentOptions",
    "Tracking",
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
    "evaluate_cross_play",
    "evaluate_exact",
    "evaluate_population",
    "evaluate_run",
    "exploit_population",
    "exploit_run",
    "gymnasium_env",
    "gymnasium_vector_env",
    "learner",
    "list_presets",
    "load_policy",
    "load_scenario",
    "make_env",
    "pettingzoo_env",
    "play_tournament",
    "pull",
    "push",
    "rate_run",
    "resume",
    "run",
    "sb3_vec_env",
    "track",
    "write_report",
]

# Resolved when they are first used, so that `import ludus` and the commands that need no torch stay fast.
_NAMES = {
    "ludus.algorithms.alphazero.config": "AlphaZero",
    "ludus.algorithms.ddpg.config": "ApeXDDPG DDPG TD3",
    "ludus.algorithms.dqn.config": "ApeX DQN IQN MunchausenDQN QRDQN Rainbow",
    "ludus.algorithms.exact.oracle": "ExactBestResponse",
    "ludus.algorithms.mmd.config": "MMD RNaD",
    "ludus.algorithms.nfsp.config": "NFSP",
    "ludus.algorithms.on_policy.config": "A2C IMPALA Reinforce",
    "ludus.algorithms.ppo.config": "MAPPO PPO",
    "ludus.algorithms.r2d2.config": "R2D2",
    "ludus.algorithms.sac.config": "SAC SACDiscrete",
    "ludus.apps.hub.zoo": "ZooEntry pull push",
    "ludus.apps.interfaces.make": "gymnasium_env gymnasium_vector_env pettingzoo_env sb3_vec_env",
    "ludus.apps.tracking.session": "Tracking track",
    "ludus.apps.ui.report": "write_report",
    "ludus.core.config": "Config",
    "ludus.core.errors": "ConfigError EnvError LudusError ResourceError RunWarning ScenarioError SolverError",
    "ludus.core.types": (
        "ActionRequests AgentSpec ClosedDecisions EnvSpec EvaluationTask FinishedEpisodes MetaSolution Mixture "
        "PolicyRef PolicySpec TaskResult Timestep TrainingTask"
    ),
    "ludus.envs.base": "VectorEnv",
    "ludus.envs.config": "Environment",
    "ludus.envs.registry": "make_env",
    "ludus.envs.tree.game_tree": "compile_tree",
    "ludus.evaluation.evaluate": "evaluate_run",
    "ludus.evaluation.exact_exploitability": "evaluate_exact",
    "ludus.evaluation.exploiters": "exploit_population exploit_run",
    "ludus.evaluation.population_exploitability": "evaluate_population",
    "ludus.evaluation.run_ratings": "rate_run",
    "ludus.evaluation.trained": "TrainedPolicy load_policy",
    "ludus.metagame.population.base": "Payoffs View",
    "ludus.metagame.solvers.base": "MetaSolver",
    "ludus.policies.base": "Policy",
    "ludus.runs.control": "StopRequest",
    "ludus.runs.runner": "Result resume run",
    "ludus.runs.scenario": (
        "AnytimePSRO Checkpoints EfficientPSRO Evaluation FictitiousSelfPlay FixedOpponents League NeuPL ODO PBT PFSP PSRO "
        "PipelinePSRO Scenario SelfPlay SelfPlayPSRO XDO"
    ),
    "ludus.runs.scenario_files": "list_presets load_scenario",
    "ludus.schedulers.base": "Scheduler",
    "ludus.schedulers.config": "ScheduleContext",
    "ludus.schedulers.psro": "WarmStart",
    "ludus.storage.base": "GenerationRecord NullObserver",
    "ludus.tournament.cross_play": "evaluate_cross_play",
    "ludus.tournament.run": "TournamentOptions play_tournament",
    "ludus.training.callbacks": "Callback",
    "ludus.training.standalone": "StandaloneLearner learner",
    "ludus.training.stopping": (
        "AllOf AnyOf BestResponseGain Decisions Episodes Generations NashConv NoImprovement Progress Samples "
        "Seconds Steps Stopper Updates WinRate"
    ),
}
"""Public names by the module that defines them."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

_CONTRIB = {
    "A2PO": "a2po",
    "CDSQMIX": "cds_qmix",
    "COMA": "coma",
    "CWQMIX": "cw_qmix",
    "CoPPO": "coppo",
    "HAPPO": "happo",
    "HATRPO": "hatrpo",
    "MADDPG": "maddpg",
    "MAT": "mat",
    "MATDec": "mat_dec",
    "MPO": "mpo",
    "MuZero": "muzero",
    "OWQMIX": "ow_qmix",
    "QMIX": "qmix",
    "QPLEX": "qplex",
    "TabularQ": "tabular_q",
    "VDN": "vdn",
    "VMPO": "vmpo",
}
"""Algorithms of `ludus.contrib`, by the names that their entry points have."""

_RENAMED = {
    "Due": "ActionRequests",
    "Ended": "ClosedDecisions",
    "Finished": "FinishedEpisodes",
    "HandLearner": "StandaloneLearner",
    "Silent": "NullObserver",
    "Solution": "MetaSolution",
    "evaluate_against": "evaluate_cross_play",
}
"""Names of earlier releases, which still work and warn."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"ludus.{name} is called ludus.{_RENAMED[name]} now.", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name in _CONTRIB:
        value = _algorithm(_CONTRIB[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'ludus' has no attribute {name!r}")
    globals()[name] = value
    return value


def _algorithm(name: str) -> Any:
    registry = importlib.import_module("ludus.algorithms.common.registry")
    return importlib.import_module("ludus.core.parts").resolve_name("algorithm", name, registry.ALGORITHMS)


def __dir__() -> list[str]:
    return sorted(__all__)
