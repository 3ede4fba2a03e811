"""Scenarios from the experiment files of Light-MALib (`expr.yaml` of DB-Football and of GRF_MARL).

python -m ludus.contrib.malib expr.yaml > my.yaml     # then: ludus train my.yaml

The keys that say what is learned have a place in a scenario. Those of machines, of logging and of the network's initialisation have none;
what else is left out, or taken for something near, is a note.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ludus.core.config import from_yaml
from ludus.core.errors import ConfigError, LudusError, one_line

__all__ = ["ImportedScenario", "read_expr"]

FOOTBALL: dict[str, tuple[str, dict[str, float]]] = {
    "10_vs_10_kaggle": ("11_vs_11_kaggle", {}),
    "benchmark_full_game_11_vs_11_easy": ("11_vs_11_easy_stochastic", {"difficulty": 0.05}),
    "benchmark_full_game_11_vs_11_medium": ("11_vs_11_stochastic", {"difficulty": 0.6}),
    "benchmark_full_game_11_vs_11_hard": ("11_vs_11_hard_stochastic", {"difficulty": 1.0}),
    "benchmark_full_game_5_vs_5_easy": ("5_vs_5", {"difficulty": 0.05}),
    "benchmark_full_game_5_vs_5_medium": ("5_vs_5", {"difficulty": 0.6}),
    "benchmark_full_game_5_vs_5_hard": ("5_vs_5", {"difficulty": 1.0}),
}
"""Name of a scenario there -> name here, and its options. The academies have the same names after `benchmark_`."""
CARDS = {"kuhn_poker": "openspiel/kuhn_poker", "leduc_poker": "openspiel/leduc_poker"}
SEQUENTIAL = ("HAPPO", "HATRPO", "A2PO", "CoPPO")
"""Names of `sub_algorithm_name` there; here in small letters."""
STARTS = {"random": "random", "inherit_last": "last", "inherit_last_best": "best"}


@dataclass(frozen=True, slots=True)
class ImportedScenario:
    """A scenario that was read from another system's file.

    Attributes:
        options: Keys of the scenario, as a YAML file has them.
        notes: What was left out, or is not the same here.
    """

    options: Mapping[str, Any]
    notes: tuple[str, ...]

    def as_yaml(self) -> str:
        """Return the scenario's file, with the notes as comments."""
        comments = "".join(f"# {note}\n" for note in self.notes)
        return comments + yaml.safe_dump(dict(self.options), sort_keys=False, default_flow_style=None, width=120)


def read_expr(path: Path | str) -> ImportedScenario:
    """Read an experiment file of Light-MALib.

    Args:
        path: The file, `expr.yaml`; `${section.key}` in it stands for the value there.

    Returns:
        The scenario, and notes on what it lacks.

    Raises:
        ConfigError: For a file that cannot be read, is no experiment, or plays what Ludus does not.
    """
    try:
        data = from_yaml(Path(path).read_text(encoding="utf-8"), what="the experiment", source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error}.") from error
    missing = [key for key in ("framework", "rollout_manager", "populations") if not _get(data, key)]
    if missing:
        raise ConfigError(
            f"{str(path)!r} has no {missing[0]!r}; expected an experiment of Light-MALib, with framework, rollout_manager and populations."
        )
    try:
        return _Expr(data).scenario()
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise ConfigError(
            f"{str(path)!r} has not the form of an experiment of Light-MALib: {type(error).__name__}: {one_line(error)}."
        ) from error


def _get(data: Any, path: str, default: Any = None) -> Any:
    """Return the value at `a.b.c`; lists by number. `default` where there is none, or null."""
    for key in path.split("."):
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, Mapping):
            data = data.get(key)
        else:
            return default
    return default if data is None else data


@dataclass
class _Expr:
    """An experiment, and what is noted while it is read."""

    data: Any
    notes: list[str] = field(default_factory=list)

    def get(self, path: str, default: Any = None) -> Any:
        """As `_get`, where `${a.b}` stands for the value at a.b."""
        value = _get(self.data, path, default)
        for _ in range(10):  # a value may refer to one that refers
            reference = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if reference is None:
                return value
            value = _get(self.data, reference[1], default)
        raise ConfigError(f"{path} refers to itself: {value}.")

    def number(self, path: str, default: float) -> Any:
        """A number; YAML reads 1e-2 as a text."""
        value = self.get(path, default)
        try:
            return float(value) if isinstance(value, str) else value + 0
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path} is {value!r}; expected a number.") from error

    def scenario(self) -> ImportedScenario:
        env, agents = self.env()
        single = self.single
        rounds = int(self.number("framework.max_rounds", self.number("framework.max_generations", 1)))
        options: dict[str, Any] = {"scenario": "fixed_opponents" if single else "psro"}
        if name := re.sub(r"[^\w.-]+", "_", str(self.get("expr_name", ""))).strip("._-"):
            options["name"] = name
        options |= {"env": env, "algorithm": self.algorithm(agents), "generations": rounds, "response": self.response()}
        if not single:
            options |= self.psro()
        episodes = int(self.number("evaluation_manager.num_eval_rollouts", 100))
        options["evaluation"] = {"episodes": max(2, episodes)}
        options["seed"] = int(self.number("seed", 0))
        return ImportedScenario(options, tuple(self.notes))

    @property
    def single(self) -> bool:
        """Whether one policy is trained against what the environment brings."""
        rounds = self.number("framework.max_rounds", self.number("framework.max_generations", 1))
        return rounds == 1 and not self.get("agent_manager.share_policies", False)

    # ------------------------------------------------------------------------------------------ environment

    def env(self) -> tuple[dict[str, Any], int]:
        """Return the environment, and the agents of a player."""
        env = self.get("rollout_manager.worker.envs.0", {})
        cls, workers = env.get("cls"), int(self.number("rollout_manager.num_workers", 1))
        if workers > 1:
            self.notes.append(
                f"{workers} workers had an environment each: env.num_envs. Processes are runtime.workers."
            )
        if cls == "gr_football":
            return self.football(env, workers)
        if cls in CARDS:
            return {"id": CARDS[cls]}, 1
        if cls == "magent":
            sizes = {key: env[key] for key in ("map_size", "max_cycles") if key in env}
            name = str(env.get("env_id", "battle_v4")).replace("battle_v3", "battle_v4")
            return {"id": f"magent2/{name}", "num_envs": workers, "options": sizes}, 1
        known = ", ".join(["gr_football", *CARDS, "magent"])
        raise ConfigError(f"the environment's cls is {cls!r}; {known} can be imported. Name another one in a scenario.")

    def football(self, env: Mapping[str, Any], workers: int) -> tuple[dict[str, Any], int]:
        config = env.get("scenario_config", {})
        name = str(config.get("env_name", ""))
        scenario, difficulty = FOOTBALL.get(name, (name.removeprefix("benchmark_"), {}))
        left = int(config.get("number_of_left_players_agent_controls", 1))
        options: dict[str, Any] = {"sides": "left" if self.single else "both", "agents": left, **difficulty}
        if name not in FOOTBALL:
            options["duration"] = int(self.number("rollout_manager.worker.rollout_length", 400))
        if terms := self.rewards(env):
            options["rewards"] = terms
        if self.single:
            self.notes.append("The right side is the engine's, as their built_in policy is.")
        self.notes.append("Observations are Ludus's features, not theirs: trained models cannot be imported.")
        return {"id": f"football/{scenario}", "num_envs": workers, "options": options}, left

    def rewards(self, env: Mapping[str, Any]) -> dict[str, float]:
        """Return terms of the rewards that have the same meaning here."""
        config = env.get("reward_config", {})
        terms = {"score": float(config.get("goal_reward") or 0), "yellow_card": float(config.get("yellow_reward") or 0)}
        official = float(config.get("official_reward") or 0)
        if official:
            names = str(_get(env, "scenario_config.rewards", "scoring")).replace(" ", "").split(",")
            terms["score"] += official * ("scoring" in names)
            terms["checkpoints"] = 0.1 * official * ("checkpoints" in names)
        if win := float(config.get("win_reward") or 0):
            terms["win"] = win
        known = {"goal_reward", "official_reward", "yellow_reward", "win_reward"}
        others = sorted(key for key, value in config.items() if value and key not in known)
        if others:
            self.notes.append(f"Shaped rewards without a counterpart are left out: {', '.join(others)}.")
        return {term: weight for term, weight in terms.items() if weight}

    # ------------------------------------------------------------------------------------------ algorithm

    def algorithm(self, agents: int) -> dict[str, Any]:
        name = str(self.get("populations.0.algorithm.name", ""))
        if name == "MAPPO":
            return self.policy_gradient(agents)
        if name in ("DQN", "QMIX"):
            return self.action_values(name.lower())
        if name == "QLearning":
            return {"kind": "tabular_q", "gamma": self.custom("gamma", 1.0)}
        raise ConfigError(
            f"the algorithm is {name!r}; MAPPO and what builds on it, DQN, QMIX and QLearning can be imported."
        )

    def custom(self, key: str, default: float) -> Any:
        return self.number(f"populations.0.algorithm.custom_config.{key}", default)

    def layers(self, part: str) -> tuple[list[int], str]:
        """Return widths and activation of the perceptron `actor` or `critic`."""
        layers = self.get(f"populations.0.algorithm.model_config.{part}.layers", [])
        widths = [int(layer["units"]) for layer in layers] or [64, 64]
        activation = str(_get(layers, "0.activation", "ReLU")).lower()
        return widths, activation if activation in ("relu", "tanh") else "relu"

    def kind(self, agents: int) -> str:
        """The algorithm's name here. Whether there is a central critic is in the model's name there."""
        model = str(self.get("populations.0.algorithm.model_config.model", ""))
        sub = str(self.get("populations.0.algorithm.custom_config.sub_algorithm_name", ""))
        if "_mat" in model:
            return "mat_dec" if self.get("populations.0.algorithm.model_config.actor.dec_actor", False) else "mat"
        if sub in SEQUENTIAL:
            return sub.lower()
        return "mappo" if "centralized" in model and agents > 1 else "ppo"

    def policy_gradient(self, agents: int) -> dict[str, Any]:
        kind = self.kind(agents)
        options: dict[str, Any] = {
            "kind": kind,
            **self.batch(agents),
            "epochs": int(self.custom("ppo_epoch", 10)),
            "minibatches": int(self.custom("num_mini_batch", 1)),
            "learning_rate": self.number("training_manager.trainer.actor_lr", 5e-4),
            "gamma": self.custom("gamma", 0.99),
            "gae_lambda": self.custom("gae.gae_lambda", 0.95),
            "entropy": self.custom("entropy_coef", 0.0),
            "clip": self.custom("clip_param", 0.2),
            "max_gradient_norm": self.custom("max_grad_norm", 10.0),
        }
        if kind in ("mat", "mat_dec"):
            for name, key in (("embed_dim", "width"), ("num_blocks", "layers"), ("num_heads", "heads")):
                options[key] = int(self.number(f"populations.0.algorithm.model_config.backbone.{name}", 1))
        else:
            options["hidden"], options["activation"] = self.layers("actor")
        if self.get("populations.0.algorithm.custom_config.use_popart", False):
            options["normalise_returns"] = True
            self.notes.append("PopArt: here returns are divided by their running deviation.")
        if self.get("populations.0.algorithm.custom_config.use_rnn", False):
            options["memory"] = "gru"
        critic = self.number("training_manager.trainer.critic_lr", options["learning_rate"])
        if critic != options["learning_rate"]:
            self.notes.append(f"critic_lr {critic:g}: here actor and critic have one learning rate.")
        return options

    def batch(self, agents: int) -> dict[str, Any]:
        """What an update learns from: whole episodes, or fragments of `sample_length` steps of every agent."""
        items = int(self.number("training_manager.batch_size", 64))
        length = int(self.number("rollout_manager.worker.sample_length", 0))
        if length and self.get("rollout_manager.worker.envs.0.cls") not in CARDS:
            return {"batch": items * length * agents, "batch_unit": "decisions"}
        return {"batch": items, "batch_unit": "episodes"}

    def action_values(self, kind: str) -> dict[str, Any]:
        hidden, activation = self.layers("critic")
        explore = "populations.0.algorithm.custom_config.explore_cfg"
        return {
            "kind": kind,
            "hidden": hidden,
            "activation": activation,
            "batch": int(self.number("training_manager.batch_size", 64)),
            "capacity": int(self.number("data_server.table_cfg.capacity", 100_000)),
            "learning_rate": self.number("training_manager.trainer.actor_lr", 5e-4),
            "gamma": self.custom("gamma", 0.99),
            "epsilon": {
                "start": self.number(f"{explore}.max_epsilon", 1.0),
                "end": self.number(f"{explore}.min_epsilon", 0.05),
            },
            "target_period": int(self.custom("target_update_freq", 100)),
        }

    # ------------------------------------------------------------------------------------------ schedule

    def response(self) -> dict[str, Any]:
        """How long a policy trains: iterations there have `batch_size` episodes each."""
        steps = int(self.number("framework.stopper.kwargs.max_steps", 100))
        episodes = steps * int(self.number("rollout_manager.batch_size", 1))
        self.notes.append(f"{steps} iterations of {episodes // steps} episodes: response.episodes.")
        response: dict[str, Any] = {"episodes": episodes}
        if (rate := self.number("framework.stopper.kwargs.min_win_rate", 1.0)) < 1.0:
            response["win_rate"] = rate
        if self.get("framework.stopper.kwargs.min_reward_thresh_percent"):
            self.notes.append("Their stopper by a share of the exact best response is left out.")
        return response

    def psro(self) -> dict[str, Any]:
        framework = str(self.get("framework.name", "psro"))
        if framework not in ("psro", "seq_league"):
            raise ConfigError(f"framework.name is {framework!r}; psro and seq_league can be imported.")
        options: dict[str, Any] = {"meta_solver": str(self.get("framework.meta_solver", "nash"))}
        if framework == "seq_league":
            options["responses"] = "sequential_league"
        options["warm_start"] = self.warm_start()
        options["share"] = "auto" if self.get("agent_manager.share_policies", True) else "never"
        return options

    def warm_start(self) -> list[dict[str, Any]]:
        """Return the rules for the first policy, whose condition there is ==0, and for later ones."""
        policies = self.get("populations.0.algorithm.policy_init_cfg.agent_0", {})
        sources = {str(rule.get("condition")): rule.get("strategy") for rule in policies.get("init_cfg") or []}
        initial = [str(policy.get("policy_id")) for policy in policies.get("initial_policies") or []]
        if initial:
            self.notes.append(f"Initial policies are left out: {', '.join(initial)}. Name yours under `opponents`.")
        if unknown := sorted({str(source) for source in sources.values()} - set(STARTS)):
            self.notes.append(f"Policies start from {', '.join(unknown)} there, and at random here: see warm_start.")
        first, later = (STARTS.get(str(sources.get(key)), "random") for key in ("==0", "default"))
        return [{"source": later}] if first == later else [{"source": first, "last": 1}, {"source": later, "first": 2}]


def main(arguments: list[str] | None = None) -> int:
    """Print the scenario of an experiment file. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ludus.contrib.malib", description=__doc__)
    parser.add_argument("expr", help="an experiment file of Light-MALib, expr.yaml")
    try:
        sys.stdout.write(read_expr(parser.parse_args(arguments).expr).as_yaml())
    except LudusError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
