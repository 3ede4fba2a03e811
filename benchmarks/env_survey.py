"""What `ludus check-env` finds in installed environments: a JSON of results, and the page docs/environments/survey.md made of it.

    python -m benchmarks.env_survey                   environments without a result
    python -m benchmarks.env_survey --again pgx       those of a family again, or of ids
    python -m benchmarks.env_survey --page            the page

Each environment has a process of its own, with bounds of time and memory. Large families are represented by some of their ids (`IDS`); of
the others all are surveyed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.lines import versions
from benchmarks.machine import ROOT, this_machine, today

RESULTS = ROOT / "benchmarks" / "results" / "env_survey.json"
PAGE = ROOT / "docs" / "environments" / "survey.md"
SECONDS = 2.0
"""Budget of the detectors for one environment, in seconds of this process on a processor."""
EPISODES = 150
WALL = 240.0
"""Seconds after which a process is stopped: compilers of JAX are slow."""
MEMORY = 6 << 30
"""Bytes of memory after which it is stopped."""
PACKAGES = (
    "ale-py", "dm-control", "envpool", "gymnasium", "gymnasium-robotics", "gymnax", "jaxmarl", "jumanji", "lbforaging", "magent2",
    "mpe2", "open-spiel", "pettingzoo", "pgx", "rware", "vmas",
)  # fmt: skip
IDS: dict[str, tuple[str, ...]] = {
    "ale": ("breakout", "pong", "space_invaders", "freeway", "montezuma_revenge", "seaquest", "skiing", "tetris"),
    "dmc": (
        "acrobot-swingup", "ball_in_cup-catch", "cartpole-balance", "cartpole-swingup", "cheetah-run", "dog-walk", "finger-spin",
        "hopper-hop", "humanoid-walk", "manipulator-bring_ball", "pendulum-swingup", "point_mass-easy", "quadruped-walk",
        "reacher-easy", "walker-walk",
    ),
    "envpool": (
        "Acrobot-v1", "Ant-v5", "BipedalWalker-v3", "Blackjack-v1", "Breakout-v5", "CarRacing-v3", "CartPole-v1", "Catch-v0",
        "CheetahRun-v1", "CliffWalking-v0", "FrozenLake-v1", "HalfCheetah-v5", "Hopper-v5", "LunarLander-v3", "MountainCar-v0",
        "MountainCarContinuous-v0", "NChain-v0", "Pendulum-v1", "Pong-v5", "Taxi-v3", "Walker2d-v5", "WalkerWalk-v1",
        "AnimalShogi-v1", "Backgammon-v1", "Chess-v1", "ConnectFour-v1", "Go9x9-v1", "Hex-v1", "KuhnPoker-v1", "LeducHoldem-v1",
        "Othello-v1", "TicTacToe-v1", "Cleaner-v0", "Connector-v2", "CVRP-v1", "FlatPack-v0", "JobShop-v0", "LevelBasedForaging-v0",
        "MMST-v0", "RobotWarehouse-v0", "Snake-v1", "Sudoku-v0",
    ),
    "football": ("11_vs_11_stochastic", "5_vs_5", "academy_3_vs_1_with_keeper", "academy_empty_goal"),
    "lbf": ("Foraging-8x8-2p-1f-v3", "Foraging-8x8-2p-2f-coop-v3", "Foraging-10x10-3p-3f-v3", "Foraging-10x10-4p-4f-v3"),
    "mamujoco": ("Ant-2x4", "HalfCheetah-2x3", "Hopper-3x1", "Humanoid-9|8", "ManySegmentSwimmer-10x2", "Swimmer-2x1", "Walker2d-2x3"),
    "rware": ("rware-tiny-2ag-v2", "rware-tiny-4ag-v2", "rware-small-4ag-easy-v2", "rware-medium-6ag-hard-v2"),
    "vmas": (
        "balance", "discovery", "dropout", "flocking", "football", "give_way", "navigation", "sampling", "simple_adversary",
        "simple_tag", "transport", "wheel",
    ),
}  # fmt: skip
"""Of families whose ids are many variants of few environments, some."""
FIRST = (
    "gymnasium/CartPole-v1", "openspiel/kuhn_poker", "openspiel/leduc_poker", "openspiel/tic_tac_toe", "mpe2/simple_spread_v3",
    "pettingzoo/connect_four_v3", "pettingzoo/rps_v2", "pgx/tic_tac_toe", "pgx/sparrow_mahjong", "gymnax/Breakout-MinAtar",
    "gymnax/SpaceInvaders-MinAtar", "gymnax/DiscountingChain-bsuite", "pettingzoo/multiwalker_v9", "jaxmarl/MPE_simple_tag_v3",
    "envpool/Cleaner-v0", "envpool/CVRP-v1", "envpool/MMST-v0", "envpool/RobotWarehouse-v0", "jumanji/PacMan-v1", "jumanji/Snake-v1",
    "jumanji/Cleaner-v0", "vmas/simple_tag", "magent2/battle_v4", "openspiel/dark_hex", "openspiel/2048", "openspiel/hanabi",
    "gymnasium/Taxi-v4", "gymnasium/Blackjack-v1", "gymnasium/FrozenLake-v1", "jaxmarl/hanabi", "jaxmarl/overcooked", "jaxmarl/SMAX",
)  # fmt: skip
"""These come first where the time is short."""


def surveyed_ids() -> dict[str, list[str]]:
    """Return, of each installed family, the ids that are surveyed."""
    from ludus.envs.families import FAMILIES
    from ludus.envs.registry import list_envs

    ids = {}
    installed = sorted(name for name, entry in FAMILIES.items() if entry.installed)
    for family in sorted(
        installed, key=lambda name: name != "gymnasium"
    ):  # before other packages register theirs there
        every = list_envs(family)
        chosen = [f"{family}/{name}" for name in IDS.get(family, ())]
        ids[family] = [id for id in chosen if id in every] or every
    return dict(sorted(ids.items()))


# --------------------------------------------------------------------------------------------------------------------
# One environment, in a process of its own.


def examine(id: str, *, seconds: float = SECONDS, episodes: int = EPISODES) -> dict[str, Any]:
    """Return what was played in an environment, and findings, as plain data."""
    from ludus.core.jsonable import to_builtins
    from ludus.envs.config import Environment
    from ludus.testing.detector.detect import detect
    from ludus.testing.detector.recording import Recording
    from ludus.testing.detector.session import Budget
    from ludus.testing.detector.summary import summarize

    environment = Environment(id=id)
    recordings: list[Recording] = []
    budget = Budget(seconds=seconds, episodes=episodes, clock=time.process_time)
    findings = [
        {"check": one.check, "severity": one.severity, "sentence": one.sentence, "evidence": dict(one.evidence)}
        for one in detect(lambda n: environment.make(num_envs=n), budget=budget, recordings=recordings)
    ]
    text = json.dumps(to_builtins({**summarize(recordings[0]), "findings": findings}))
    result: dict[str, Any] = json.loads(text.replace(sys.prefix, "PREFIX"))  # a message may name a file of this machine
    return result


def examine_apart(id: str) -> dict[str, Any]:
    """Return the same from a process of its own; {"failed": why} where it raised, died, or took too much time or memory."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.env_survey", "--one", id]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    begin, stopped = time.monotonic(), ""
    while not stopped:
        try:
            out, err = process.communicate(timeout=1.0)
            break
        except subprocess.TimeoutExpired:
            if time.monotonic() - begin > WALL:
                stopped = f"stopped after {WALL:g} s"
            elif resident(process.pid) > MEMORY:
                stopped = f"stopped at {MEMORY >> 30} GiB of memory"
    if stopped:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"failed": stopped}
    lines = [line for line in out.splitlines() if line.startswith('{"result"')]
    if lines:
        result: dict[str, Any] = json.loads(lines[-1])["result"]
        return result
    last = next((line for line in reversed(err.splitlines()) if line.strip()), f"exit code {process.returncode}")
    return {"failed": last[:300]}


def resident(pid: int) -> int:
    """Return the bytes of memory of a process; 0 of one that is over."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


# --------------------------------------------------------------------------------------------------------------------
# All of them.


def load() -> dict[str, Any]:
    """Return the results so far."""
    if RESULTS.exists():
        document: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
        return document
    return {"format": 1, "families": {}, "environments": {}}


def survey(again: Sequence[str], *, minutes: float, jobs: int) -> None:
    """Examine what has no result yet, and `again` families and ids; results are written after each."""
    from ludus.envs.registry import list_envs

    document = load()
    results = document["environments"]
    document |= {
        "machine": this_machine().as_json(),
        "day": today(),
        "seconds": SECONDS,
        "versions": versions(PACKAGES),
        "bars": [],
    }
    ids = surveyed_ids()
    document["families"] = {
        family: len(list_envs(family) if family in IDS else chosen) for family, chosen in ids.items()
    }
    every = [id for family in ids.values() for id in family]
    for id in list(results):
        if id not in every or id in again or id.partition("/")[0] in again:
            del results[id]
    rank = {id: k / len(family) for family in ids.values() for k, id in enumerate(family)}
    rank |= {id: k - len(FIRST) for k, id in enumerate(FIRST)}
    todo = sorted((id for id in every if id not in results), key=lambda id: rank[id])  # some of each family soon
    until = time.monotonic() + 60 * minutes

    def one(id: str) -> tuple[str, dict[str, Any] | None]:
        return id, None if time.monotonic() > until else examine_apart(id)

    left = 0
    with ThreadPoolExecutor(jobs) as pool:
        for k, done in enumerate(as_completed([pool.submit(one, id) for id in todo])):
            id, result = done.result()
            if result is None:
                left += 1
                continue
            results[id] = result
            write(document)
            counts = Counter(finding["severity"] for finding in result.get("findings", ()))
            print(f"{k + 1}/{len(todo)} {id} {result.get('failed', dict(counts))}", flush=True)
    if left:
        print(f"{left} are left; the same command continues", flush=True)


def write(document: dict[str, Any]) -> None:
    """Write the results, an environment a line."""
    order = sorted(document["environments"])
    head = {key: value for key, value in document.items() if key != "environments"}
    lines = [f"  {json.dumps(id)}: {json.dumps(document['environments'][id], ensure_ascii=False)}" for id in order]
    text = json.dumps(head, ensure_ascii=False)[:-1] + ',\n "environments": {\n' + ",\n".join(lines) + "\n}}\n"
    temporary = RESULTS.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(RESULTS)


# --------------------------------------------------------------------------------------------------------------------
# The page.


def page(document: dict[str, Any]) -> str:
    """Return the page of results."""
    results = document["environments"]
    findings = [one for result in results.values() for one in result.get("findings", ())]
    counts = Counter(one["severity"] for one in findings)
    failed = sum("failed" in result for result in results.values())
    machine = document["machine"]
    lines = [
        "# Survey of environments",
        "",
        f"What [`ludus check-env`](../guides/check.md#the-search-for-faults) finds in {len(results)} installed environments with random "
        f"legal play of about {document['seconds']:g} s of processor time each, four at a time, on {machine['cpu']}, {document['day']}: "
        f"{', '.join(f'{name}s: {counts[name]}' for name in ('error', 'warning', 'note'))}; not played: {failed}. "
        "A longer search finds more: `ludus check-env ID --seconds 60`.",
        "",
        "The page is made by `python -m benchmarks.env_survey --page` from `benchmarks/results/env_survey.json`, which has the evidence. "
        "Speeds are of calls of `step` with random actions, while other work shared the machine.",
        "",
    ]
    for family, total in document["families"].items():
        ids = [id for id in sorted(results) if id.partition("/")[0] == family]
        if ids:
            lines += _family(family, total, {id: results[id] for id in ids})
    return "\n".join(lines).rstrip() + "\n"


def _family(family: str, total: int, results: dict[str, Any]) -> Iterator[str]:
    of = f"{len(results)} of {total} ids" if len(results) < total else f"{total} ids"
    yield from (
        f"## {family}: {of}",
        "",
        "| id | players | agents | episode | steps/s | findings |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for id, result in results.items():
        name = id.partition("/")[2].replace("|", "\\|")
        if "failed" in result:
            yield f"| `{name}` | | | | | not played: {_cell(result['failed'])} |"
            continue
        speed = f"{1e6 / result['microseconds']:,.0f}" if result["microseconds"] else ""
        yield f"| `{name}` | {result['players']} | {result['agents']} | {_length(result)} | {speed} | {_findings(result['findings'])} |"
    yield ""
    grave = {
        id: [one for one in result.get("findings", ()) if one["severity"] != "note"] for id, result in results.items()
    }
    if any(grave.values()):
        yield from ("| id | | what was observed |", "| --- | --- | --- |")
        for id, findings in grave.items():
            for one in findings:
                yield f"| `{id.partition('/')[2]}` | {one['severity']} | {one['check']}: {_cell(one['sentence'])} |".replace(
                    "9|8", "9\\|8"
                )
        yield ""


def _length(result: dict[str, Any]) -> str:
    if not result["length"]:
        return f"none ended in {result['steps']:,} steps"
    least, mean, most = result["length"]
    cut = result["episodes"] - result["terminated"]
    ends = (
        "" if not cut else ", truncated" if cut == result["episodes"] else f", {cut / result['episodes']:.0%} truncated"
    )
    return f"{least:,}{ends}" if least == most else f"{least:,} – {mean:,.0f} – {most:,}{ends}"


def _findings(findings: Sequence[dict[str, Any]]) -> str:
    names = [
        f"**{one['check']}**" if one["severity"] == "error" else one["check"]
        for one in findings
        if one["severity"] != "note"
    ]
    notes = [f"({one['check']})" for one in findings if one["severity"] == "note"]
    return ", ".join([*names, *notes])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Run the survey, or one part of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", metavar="ID", help="examine one environment and print the result")
    parser.add_argument("--again", nargs="+", default=[], metavar="FAMILY|ID", help="survey these again")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after these")
    parser.add_argument(
        "--jobs", type=int, default=1, help="environments at a time; more than one shares the processor"
    )
    parser.add_argument("--page", action="store_true", help="write the page")
    options = parser.parse_args()
    if options.one:
        print(json.dumps({"result": examine(options.one)}, ensure_ascii=False), flush=True)
    elif options.page:
        PAGE.write_text(page(load()), encoding="utf-8")
    else:
        survey(options.again, minutes=options.minutes, jobs=options.jobs)
        PAGE.write_text(page(load()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
