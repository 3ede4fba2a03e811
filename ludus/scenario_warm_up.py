"""Whether learners that replay make an update before their policies are done."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ludus.algorithms.base import ComputedOracle
from ludus.algorithms.registry import ALGORITHMS
from ludus.errors import ScenarioError, either
from ludus.parts import kind_of
from ludus.schedulers.chunked import Chunked
from ludus.types import EnvSpec

if TYPE_CHECKING:
    from ludus.scenario import Scenario

WARM_UPS = ("start_decisions", "min_size")
"""Options of oracles: decisions before the first update."""


def check_warm_up(scenario: Scenario, env: EnvSpec) -> None:
    """That the first update comes before a policy is done, as far as that is known: where decisions are what is collected and limited.
    Raises ScenarioError: what delays it, and what would not."""
    oracle = scenario.oracle
    limit = None if scenario.response is None else scenario.response.limit("decisions")
    if isinstance(oracle, ComputedOracle) or limit is None or scenario.runtime.pace is not None:
        return
    learns = getattr(oracle, "best_response", oracle)  # NFSP's imitates what this one plays
    option = next((name for name in WARM_UPS if isinstance(getattr(learns, name, None), int)), None)
    collect, scheduler = oracle.collect(), scenario.scheduler(scenario.population(env))
    if option is None or collect.unit != "decisions":
        return
    tasks = scheduler.chunks if isinstance(scheduler, Chunked) else 1  # whose learners go on
    over = collect.amount + 2 * scenario.env.num_envs * len(env.agents)  # the last rollout's, with what is open then
    size, share = getattr(learns, option), getattr(learns, "updates_per_decision", None)
    more = 0 if share is None else _decisions(share)
    if tasks * (limit + over) >= size + more:
        return
    open_ = scenario.env.num_envs * max(len(env.agents_of(player)) for player in range(env.num_players))
    inner = "" if learns is oracle else "best_response."
    delay = f"{inner}{option}={size}" + (f", and {more} more at {inner}updates_per_decision={share:g}" if more else "")
    changes = [f"decisions: {math.ceil((size + more) / tasks) + open_} or more"]
    if (least := tasks * (limit - open_) - size) > 0 and more > 1:
        changes.append(f"oracle.{inner}updates_per_decision={math.ceil(1000 / least) / 1000:g} or more")
    if (most := tasks * (limit - open_) - more) > 0:
        changes.append(f"oracle.{inner}{option}={most} or less")
    raise ScenarioError(
        f"response: {limit} decisions{'' if tasks == 1 else f' in each of {tasks} tasks'} are fewer than the oracle "
        f"{kind_of(oracle, ALGORITHMS)!r} collects before the first update{'' if learns is oracle else ' of its best response'} "
        f"({size + more}: {delay}), so that its policies would stay as they begin. Up to {open_} are still open at the "
        f"end and count for nothing: give {either(changes)}."
    )


def _decisions(share: float) -> int:
    """After how many decisions an update is due, at `share` updates for each: of 0.02 after 50."""
    count = math.ceil(1.0 / share)
    return count if int(count * share) >= 1 else count + 1  # which is how learners count, in floats
