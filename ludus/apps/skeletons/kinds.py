"""What `ludus new` makes: kinds of skeletons, their parts and their scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """A module of a skeleton.

    Attributes:
        default: Name of its class, where the skeleton has several parts.
        meaning: What it is, for the README.
        group: Entry points that give it a short name; "": it has none.
        source: Its template, and test_… of its tests; "": named as the part.
    """

    default: str
    meaning: str
    group: str = ""
    source: str = ""


PARTS: Final[Mapping[str, Part]] = {
    "env": Part("Duel", "a game for two, with PettingZoo's parallel interface"),
    "task": Part("Line", "a task for one player, with Gymnasium's interface", source="task"),
    "algorithm": Part("PenalisedPPO", "an algorithm: the loss of a policy gradient", "ludus.algorithms"),
    "solver": Part("Newest", "a meta-solver", "ludus.meta_solvers"),
    "scheduler": Part("MixedPSRO", "a scenario and its scheduler"),
    "bot": Part("Cautious", "a bot", "ludus.bots"),
    "stopper": Part("Reduced", "a stopper"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of skeleton.

    Attributes:
        parts: Names of `PARTS`.
        summary: For pyproject.toml and the README.
        scenario: Its scenario.yaml, in which `{…}` are the names of classes.
        short: Changes to the scenario for its test.
        extra: Of Ludus, that the scenario needs; "": none.
    """

    parts: tuple[str, ...]
    summary: str
    scenario: str
    short: tuple[str, ...]
    extra: str = ""


_GAME = """\
env:
  id: ${package}.env:${env}
  num_envs: 64
  options: {rounds: 10, zero_sum: true, symmetry: [[0, 1]], utility_range: [[-1, 1], [-1, 1]]}
"""
_KUHN = "env: openspiel/kuhn_poker\n"
_SHORT = ("generations=1", "algorithm.batch=16", "response.episodes=200", "evaluation.episodes=20")

KINDS: Final[Mapping[str, Kind]] = {
    "env": Kind(
        ("env",),
        "An environment for Ludus: a game for two.",
        f"scenario: psro\n{_GAME}algorithm: {{kind: ppo, batch: 256}}\nmeta_solver: nash\ngenerations: 3\n"
        "response: {episodes: 3000}\nevaluation: {episodes: 200}\n",
        _SHORT,
    ),
    "task": Kind(
        ("task",),
        "An environment for Ludus: a task for one player.",
        "scenario: fixed_opponents\nenv: {id: '${package}.env:${env}', num_envs: 16, options: {cost: 0.02}}\n"
        "algorithm: {kind: ppo, batch: 1024, batch_unit: decisions, epochs: 10, minibatches: 4, learning_rate: 3.0e-3}\n"
        "generations: 1\nresponse: {decisions: 40000}\n",
        ("algorithm.batch=128", "response.decisions=1500", "evaluation.episodes=20"),
    ),
    "algorithm": Kind(
        ("algorithm",),
        "An algorithm for Ludus.",
        "scenario: fixed_opponents\nenv: {id: gymnasium/CartPole-v1, num_envs: 16}\n"
        "algorithm:\n  kind: ${package}.algorithm:${algorithm}\n  penalty: 1.0\n  batch: 1024\n  batch_unit: decisions\n"
        "  minibatches: 4\n  learning_rate: 1.0e-3\ngenerations: 1\nresponse: {decisions: 30000}\n",
        ("algorithm.batch=128", "response.decisions=1500", "evaluation.episodes=20"),
    ),
    "solver": Kind(
        ("solver",),
        "A meta-solver for Ludus.",
        f"scenario: psro\n{_KUHN}algorithm: exact\nmeta_solver: {{kind: '${{package}}.solver:${{solver}}', count: 3}}\ngenerations: 20\n",
        ("generations=1",),
        "openspiel",
    ),
    "scheduler": Kind(
        ("scheduler",),
        "A scenario for Ludus, with its scheduler.",
        f"scenario: ${{package}}.scheduler:${{scheduler}}\n{_KUHN}algorithm: exact\nmeta_solver: nash\nshare: 0.1\ngenerations: 20\n",
        ("generations=1",),
        "openspiel",
    ),
    "bot": Kind(
        ("bot",),
        "A bot for Ludus.",
        f"scenario: psro\n{_KUHN}algorithm: {{kind: ppo, batch: 250}}\nopponents: ['${{package}}.bot:${{bot}},daring=0.2']\n"
        "meta_solver: nash\nevaluation: {payoffs: simulate, episodes: 200, exploitability: off}\ngenerations: 2\n"
        "response: {episodes: 2500}\n",
        _SHORT,
        "openspiel",
    ),
    "stopper": Kind(
        ("stopper",),
        "A stopper for Ludus.",
        f"scenario: psro\n{_KUHN}algorithm: exact\nmeta_solver: nash\ngenerations: 50\n"
        "stop: {'${package}.stopper:${stopper}': 0.1}\n",
        ("generations=1",),
        "openspiel",
    ),
    "project": Kind(
        ("env", "algorithm", "bot"),
        "A project with Ludus: a game, an algorithm, and a bot to play against.",
        f"scenario: psro\n{_GAME}algorithm: {{kind: '${{package}}.algorithm:${{algorithm}}', penalty: 1.0, batch: 256}}\n"
        "opponents: ['${package}.bot:${bot},daring=0.2']\nmeta_solver: nash\ngenerations: 3\n"
        "response: {episodes: 3000}\nevaluation: {episodes: 200}\n",
        _SHORT,
    ),
}
