"""The members of the family and the games of `benchmarks.psro_family`, as scenarios of one budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Game:
    """env: the environment's id. budget: training episodes of all learners together. task: episodes of one training task. batch: of the
    algorithm, in episodes; as many environments are stepped together. span: returns that count as a clear defeat and a clear victory where
    win rates are read; None: those of the game."""

    env: str
    budget: int
    task: int
    batch: int
    span: tuple[float, float] | None = None


GAMES = {
    "kuhn": Game("openspiel/kuhn_poker", budget=400_000, task=5_000, batch=500, span=(-1.0, 1.0)),
    "leduc": Game("openspiel/leduc_poker", budget=2_400_000, task=15_000, batch=750, span=(-2.0, 2.0)),
    "goofspiel-5": Game(
        "openspiel/goofspiel(imp_info=True,num_cards=5,points_order=descending)",
        budget=1_200_000,
        task=15_000,
        batch=750,
    ),
    "liars-dice": Game("openspiel/liars_dice", budget=2_400_000, task=15_000, batch=750),
}

NASH: dict[str, Any] = {"kind": "nash", "slack": 0.9}
STEADY: dict[str, Any] = {"entropy": 0.2, "learning_rate": {"start": 0.003, "end": 0.0}, "epochs": 10}
FALLING: dict[str, float] = {"start": 0.003, "end": 0.0005}
METHODS: dict[str, dict[str, Any]] = {
    "psro": {"scenario": "psro", "meta_solver": NASH},
    "psro, sequential": {"scenario": "psro", "meta_solver": NASH, "order": "sequential"},
    "psro, uniform": {"scenario": "psro", "meta_solver": "uniform"},
    "psro, PRD": {"scenario": "psro", "meta_solver": "projected_replicator_dynamics"},
    "psro, regret matching+": {"scenario": "psro", "meta_solver": "regret_matching_plus"},
    "alpha-psro": {"scenario": "psro", "meta_solver": "alpha_rank", "responses": "preference"},
    "jpsro, CCE": {"scenario": "psro", "meta_solver": "cce"},
    "rectified": {"scenario": "psro", "meta_solver": "nash", "responses": "rectified"},
    "anytime": {"scenario": "anytime_psro", "rule": "hedge"},
    "self-play psro": {"scenario": "self_play_psro", "rule": "hedge", "share_of_new": 0.1},
    "efficient": {"scenario": "efficient_psro"},
    "xdo": {"scenario": "xdo", "algorithms": {"meta": "exact"}, "tolerance": 0.5},
    "nxdo": {"scenario": "xdo", "algorithms": {"meta": {"kind": "mmd", "batch": 750, "learning_rate": FALLING}}},
    "odo": {"scenario": "odo", "average": "window", "rounds": 1000},
    "psro, behavioural diversity": {
        "scenario": "psro",
        "meta_solver": NASH,
        "diversity": {"kind": "behavioural", "weight": 0.01},
    },
    "psro, response diversity": {
        "scenario": "psro",
        "meta_solver": NASH,
        "diversity": {"kind": "response", "weight": 1.0},
    },
    "neupl": {"scenario": "neupl", "meta_solver": NASH, "algorithm": {"entropy": {"start": 0.1, "end": 0.01}}},
    "pipeline": {"scenario": "pipeline_psro", "meta_solver": NASH, "levels": 3, "most": 1},
    "self-play": {"scenario": "self_play", "algorithm": STEADY},
    "self-play, past 20%": {"scenario": "self_play", "latest": 0.8, "past": "quality", "algorithm": STEADY},
    "fictitious self-play": {
        "scenario": "fictitious_self_play",
        "mode": "greedy",
        "algorithm": {"learning_rate": 0.01, "entropy": 0.05},
    },
    "pfsp": {"scenario": "pfsp", "algorithm": STEADY},
    "league": {"scenario": "league", "algorithm": STEADY},
}
"""Keys beside those that all have in common; an algorithm's options are added to the common ones. PSRO's members start from the last one,
and are played greedily, as in the `leduc` preset. Fictitious self-play averages best responses, which are greedy too, to a past that goes
on growing, so that its learning rate does not fall. A level of the pipeline trains in three tasks, for as many episodes as a response of
PSRO. Where the newest policy is what counts, small steps and much entropy: with the settings of best responses it ends at exploitability
2.0 in Leduc poker (self-play, seed 0), with these at 0.36.

NXDO has the rate of the preset `leduc-nxdo`, and was not tuned; half of its episodes learn in the restricted game.

NeuPL's network trains all its rows, eight from the eighth task on, in a task of as many episodes as a response of PSRO: a row has an eighth
of them, and an update, which waits for all rows, is of eight batches. It goes on from task to task, and its learning rate and entropy fall
over the whole run, where each response of PSRO begins both anew; its members are played with their own randomness. It has twice the
entropy, since rows to come start from what the network does (Kuhn, seed 11: 0.020 in the end without, 0.001 with it)."""


def scenario(game: str, method: str, seed: int, *, share: float = 1.0) -> dict[str, Any]:
    """The scenario of one cell. share: of the budget."""
    chosen, keys = GAMES[game], METHODS[method]
    budget = int(chosen.budget * share)
    out: dict[str, Any] = {
        "env": {"id": chosen.env, "num_envs": chosen.batch},
        "generations": -(-budget // (2 * chosen.task)),
        "response": {"episodes": chosen.task},
        "stop": {"episodes": budget},
        "share": "never",
        "seed": seed,
        **keys,
    }
    out["algorithm"] = {"kind": "ppo", "batch": chosen.batch, **keys.get("algorithm", {})}
    if keys["scenario"] in ("psro", "anytime_psro", "self_play_psro", "efficient_psro", "xdo", "odo"):
        out["warm_start"] = "last"
    if keys["scenario"] in ("pipeline_psro", "league"):  # many learners at once, so shorter tasks between them
        out["response"] = {"episodes": chosen.task // 3}
    if keys["scenario"] in ("self_play", "pfsp", "league") and chosen.span:
        out["span"] = list(chosen.span)
    return out
