"""The worker of `benchmarks.spellings`: one environment, its settings by every spelling, or one training.

python -m benchmarks.spellings_run --env CartPole --settings --seed 0
python -m benchmarks.spellings_run --env CartPole --algorithm ppo --seed 0
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core.config import to_yaml
from ludus.core.parts import resolve_name
from ludus.envs.config import Environment
from ludus.evaluation.evaluate import evaluate_run
from ludus.runs.runner import run
from ludus.runs.scenario import SCENARIOS, Scenario
from ludus.runs.scenario_defaults import complete, env_spec
from ludus.runs.scenario_files import load_scenario

_TEAM: Mapping[str, Any] = {"options": {"teams": "one", "state": True}, "wrappers": ["agent_ids"]}


@dataclass(frozen=True, slots=True)
class Task:
    """env: options of an environment. bars: by algorithm, the least score, which is 80% of what is stated on the way from random play to
    it. changes: to how long is trained, by algorithm. player: whose score it is, where there are several: against others who play at
    random, after one response."""

    env: Mapping[str, Any]
    bars: Mapping[str, float]
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    player: int = 0


def share(random: float, stated: float) -> float:
    """80% of the way from what random play has to what is stated."""
    return round(random + 0.8 * (stated - random), 3)


TASKS: Mapping[str, Task] = {
    "CartPole": Task({"id": "gymnasium/CartPole-v1"}, {"ppo": 0.8 * 500, "dqn": 0.8 * 497.8}),
    "Acrobot": Task({"id": "gymnasium/Acrobot-v1"}, {"ppo": share(-500, -68.5), "dqn": share(-500, -73.6)}),
    "Pendulum": Task(
        {"id": "gymnasium/Pendulum-v1"},
        {"ppo": share(-1236, -150), "sac": share(-1236, -150)},
        {"sac": ("response.decisions=20000",)},
    ),
    "Catch": Task({"id": "gymnax/Catch-bsuite"}, {"ppo": share(-0.6, 1.0), "dqn": share(-0.6, 1.0)}),
    "own class": Task(
        {"id": "ludus.testing.fakes:KeyAndDoor", "options": {"size": 4}},
        {"ppo": share(0.0, 1.0), "dqn": share(0.0, 1.0)},
    ),
    "kuhn": Task({"id": "openspiel/kuhn_poker"}, {"ppo": 0.8 * 0.5, "dqn": 0.8 * 0.5}),
    "leduc": Task({"id": "openspiel/leduc_poker"}, {"ppo": 0.8 * 2.0875, "dqn": 0.8 * 2.0875}),
    "connect four": Task({"id": "openspiel/connect_four"}, {"ppo": share(0.14, 1.0), "dqn": share(0.14, 1.0)}),
    "tic-tac-toe": Task({"id": "pettingzoo/tictactoe_v3"}, {"ppo": share(0.22, 1.0), "dqn": share(0.22, 1.0)}),
    "simple_spread": Task(
        {"id": "mpe2/simple_spread_v3", **_TEAM}, {"ppo": share(-77.4, -56.6), "dqn": share(-77.4, -56.8)}
    ),
    "simple_adversary": Task(
        {"id": "mpe2/simple_adversary_v3", "options": {"teams": "prefix", "state": True}, "wrappers": ["agent_ids"]},
        {"ppo": share(16.75, 26.2), "dqn": share(16.75, 26.2)},
        player=1,
    ),
    "Pgx's tic-tac-toe": Task({"id": "pgx/tic_tac_toe"}, {"ppo": share(0.0, 1.0), "dqn": share(0.0, 1.0)}),
}
"""By name. What is stated: the presets' results (docs/benchmarks.md); what best responses to random play earn; of simple_spread, what the
presets' settings come to in as many decisions; of simple_adversary, PPO before this rule, with γ 0.95 by hand."""


# --------------------------------------------------------------------------------------------------------------------
# The same, said in different ways.


def spellings(env: Mapping[str, Any], algorithm: str, folder: Path) -> Iterator[tuple[str, Scenario]]:
    """Each with its name; the first is the id's. folder: for a file."""
    flags = [f"env.{key}={json.dumps(value)}" for key, value in env.items() if key != "id"]
    cls, id = resolve_name("algorithm", algorithm, ALGORITHMS), str(env["id"])
    first = load_scenario(id, [*flags, f"algorithm={algorithm}"])
    kind = resolve_name("scenario", first.kind, SCENARIOS)
    players = range(env_spec(first.env).num_players)
    path = folder / "scenario.yaml"
    path.write_text(to_yaml({"scenario": first.kind, "env": dict(env), "algorithm": algorithm}), encoding="utf-8")
    yield "id", first
    yield "id, object", load_scenario(id, flags, algorithm=cls())
    yield "id, class", load_scenario(id, flags, algorithm=cls)
    yield "file", load_scenario(path)
    yield "scenario object", complete(kind(env=env, algorithm=algorithm))
    yield "object of objects", complete(kind(env=Environment(**env), algorithm=cls()))
    yield "id, by player", load_scenario(id, [*flags, *(f"algorithms.{player}={algorithm}" for player in players)])
    yield "object, by player", complete(kind(env=env, algorithms={player: cls() for player in players}))


def settings(scenario: Scenario) -> Mapping[str, Any]:
    """All of them, with the algorithm of player 0 as the algorithm."""
    data = scenario.model_dump(mode="json")
    named = data.pop("algorithms")
    return {**data, "algorithm": named.get("0", data["algorithm"]), "scenario": scenario.kind}


def differing(task: Task) -> dict[str, float]:
    """How many spellings there are, over the task's algorithms, and how many have other settings than the first."""
    count = wrong = 0
    for algorithm in task.bars:
        with tempfile.TemporaryDirectory() as folder:
            (_, first), *others = spellings(task.env, algorithm, Path(folder))
        count += 1 + len(others)
        wrong += sum(settings(scenario) != settings(first) for _, scenario in others)
    return {"spellings": float(count), "differ": float(wrong)}


# --------------------------------------------------------------------------------------------------------------------
# One training.


def score(task: Task, algorithm: str, seed: int, *, changes: Sequence[str] = ()) -> dict[str, float]:
    """What the newest policy comes to: over 100 episodes alone, or against players who play at random."""
    flags = [f"env.{key}={json.dumps(value)}" for key, value in task.env.items() if key != "id"]
    texts = [
        *flags,
        f"algorithm={algorithm}",
        "generations=1",
        f"seed={seed}",
        *task.changes.get(algorithm, ()),
        *changes,
    ]
    with tempfile.TemporaryDirectory() as folder:
        result = run(load_scenario(str(task.env["id"]), texts), run_dir=Path(folder) / "run", report=False)
        if result.payoffs.mean.shape[0] == 1:
            (match,) = evaluate_run(Path(folder) / "run", episodes=100, policies=["@newest"]).matches
            return {"score": float(match.mean[0]), "updates": float(result.summary.counters.get("updates", 0))}
    place = tuple(int(player == task.player) for player in range(result.payoffs.mean.shape[0]))
    return {
        "score": float(result.payoffs.mean[(task.player, *place)]),
        "updates": float(result.summary.counters.get("updates", 0)),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True, choices=TASKS)
    parser.add_argument("--settings", action="store_true", help="compare the settings, and train nothing")
    parser.add_argument("--algorithm")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    task, lines = TASKS[args.env], Lines(("ludus", "torch", "numpy"))
    lines.figures(differing(task) if args.settings else score(task, args.algorithm, args.seed))
    lines.figures({"seconds": lines.seconds})


if __name__ == "__main__":
    main()
