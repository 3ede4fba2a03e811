"""The table of `benchmarks.gpu` in docs/benchmarks.md: stored results, and what was measured before results were stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import gpu
from benchmarks.gpu_acting import STACKS
from benchmarks.gpu_auto import GIVEN
from benchmarks.gpu_auto import NAMES as AUTO
from benchmarks.gpu_learning import NAMES as REPLAYED
from benchmarks.gpu_resident import MMD_THERE, PPO_THERE
from benchmarks.gpu_runs import LEDUC
from benchmarks.gpu_store import Store
from benchmarks.harness import Medians
from benchmarks.page_results import RESULTS
from benchmarks.results import Outcome

DATE = "2026-11-27"
DQN, SAC = REPLAYED.values()
EARLIER: Mapping[str, float] = {
    f"{LEDUC}, a whole run": 39.7,
    "Leduc, random play": 3.8e9,
    "Leduc, random play, aim": 3.8e9,
    "NashConv of 1,000 Leduc profiles, times one core": 61.8,
    MMD_THERE: 3.7e7,
    PPO_THERE: 4.8e7,
    "PPO, Nature CNN, bf16, of the limit": 0.88,
    f"{DQN}, of the limit": 0.67,
    f"{SAC}, of the limit": 1.20,
    f"{DQN}, times SB3": 11.2,
    f"{SAC}, times SB3": 22,
    "transformer of 10 M parameters, of the peak": 0.41,
    **dict(zip((f"50 opponents, {name}, of the speed of one" for name in list(STACKS)[1:]), (0.89, 0.71), strict=True)),
    f"{AUTO['auto_learning']}, {GIVEN}, times one core": 1.3,
    "navigation, MAPPO: bare steps and bare learner, share of it": 1.13,
}
"""Bars of one repetition with `--quick` on an H200 (torch 2.11) on DATE, typed: nothing was stored then."""


def rows(folder: Path = RESULTS / "gpu") -> list[tuple[str, ...]]:
    """Return the heading, and a row for each bar."""
    store = Store(folder)
    found = gpu.medians(store)
    by_name = {each.name: each for each in gpu.contestants("cuda").values()}
    out: list[tuple[str, ...]] = [("bar", "wanted", "value", "repetitions", "measured")]
    for bar in gpu.bars("cuda"):
        outcome, repetitions, when = bar.judge(found), "", bar.why
        if outcome.value is not None:
            measured = [(len(found.repetitions(each)), store.read(by_name[each])) for each in found.read]
            repetitions = " and ".join(str(count) for count in sorted({count for count, _ in measured}))
            gpus = sorted({document["gpu"] for _, document in measured} - {""})
            when = ", ".join([*gpus, *sorted({document["date"] for _, document in measured})])
        elif bar.name in EARLIER:
            before = replace(bar, value=lambda _, name=bar.name: EARLIER[name])  # type: ignore[misc]
            outcome, repetitions, when = before.judge(Medians({})), "1, `--quick`", f"H200, {DATE}"
        out.append(
            (
                bar.name,
                f"{bar.wanted.replace('>=', '≥').replace('<=', '≤')}{bar.unit}",
                _value(outcome),
                repetitions,
                when,
            )
        )
    return out


def _value(outcome: Outcome) -> str:
    if outcome.value is None:
        return outcome.verdict
    value = f"{outcome.value:.4g}{outcome.unit}".replace("e+0", "e")
    return f"**{value}**" if outcome.verdict == "short" else value
