"""The table of `benchmarks.gpu` in docs/benchmarks.md: stored results, and what was measured before results were stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks import gpu, gpu_jax
from benchmarks.gpu_acting import STACKS
from benchmarks.gpu_auto import GIVEN
from benchmarks.gpu_auto import NAMES as AUTO
from benchmarks.gpu_learning import NAMES as REPLAYED
from benchmarks.gpu_resident import MMD_THERE, PPO_THERE
from benchmarks.gpu_runs import LEDUC, LEDUC_OWN, SECONDS, SHOWN
from benchmarks.gpu_store import Store
from benchmarks.harness import Medians
from benchmarks.page_results import RESULTS, number
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
EARLIER_FIGURES = {(LEDUC, SECONDS): 39.7, (LEDUC_OWN, SECONDS): 38.7}
BEFORE = "1, `--quick`", f"H200, {DATE}"


def rows(folder: Path = RESULTS / "gpu") -> list[tuple[str, ...]]:
    """Return the heading, and a row for each bar."""
    store = Store(folder)
    found = gpu.medians(store)
    out: list[tuple[str, ...]] = [("bar", "wanted", "value", "repetitions", "measured")]
    for bar in gpu.bars("cuda"):
        outcome, source = bar.judge(found), ("", bar.why)
        if outcome.value is not None:
            source = _source(store, sorted(found.read))
        elif bar.name in EARLIER:
            before = replace(bar, value=lambda _, name=bar.name: EARLIER[name])  # type: ignore[misc]
            outcome, source = before.judge(Medians({})), BEFORE
        out.append((bar.name, _condition(bar.wanted) + bar.unit, _value(outcome), *source))
    return out


def figures(folder: Path = RESULTS / "gpu") -> list[tuple[str, ...]]:
    """Return the heading, and a row for each figure that is shown and was measured."""
    store = Store(folder)
    found = gpu.medians(store)
    out: list[tuple[str, ...]] = [("figure", "median", "least", "most", "repetitions", "measured")]
    for name, figure in (*SHOWN, *gpu_jax.SHOWN):
        if name in found.names:
            values = found.values(name, figure)
            spread = (number(value) for value in (median(values), min(values), max(values)))
            out.append((f"{name}: {figure}", *spread, *_source(store, [name])))
        elif (name, figure) in EARLIER_FIGURES:
            out.append((f"{name}: {figure}", number(EARLIER_FIGURES[name, figure]), "", "", *BEFORE))
    return out


def _source(store: Store, names: Sequence[str]) -> tuple[str, str]:
    """Return how many repetitions of these contestants there are, and where and when they were measured."""
    read = [store.read(each) for each in gpu.contestants("cuda").values() if each.name in names]
    counts = sorted({len(document["repetitions"]) for document in read})
    gpus, dates = ({document[key] for document in read} for key in ("gpu", "date"))
    return " and ".join(map(str, counts)), ", ".join([*sorted(gpus - {""}), *sorted(dates)])


def _condition(wanted: str) -> str:
    return wanted.replace(">=", "≥").replace("<=", "≤")


def _value(outcome: Outcome) -> str:
    if outcome.value is None:
        return outcome.verdict
    value = f"{outcome.value:.4g}{outcome.unit}".replace("e+0", "e")
    return f"**{value}**" if outcome.verdict == "short" else value
