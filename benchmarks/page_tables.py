"""The tables of docs/benchmarks.md: a function for each marked block of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from benchmarks.chaos.table import cells, promise_cells, sentence
from benchmarks.exact_sweeps import GAMES as SWEEPS
from benchmarks.exact_sweeps import WAYS
from benchmarks.exact_sweeps import figure as sweep_figure
from benchmarks.football_cells import CELLS as ACADEMIES
from benchmarks.harness import Medians, Missing
from benchmarks.learning_tasks import TASKS
from benchmarks.page_commands import COMMANDS
from benchmarks.page_games import connect_four, goofspiel, hidden_boards
from benchmarks.page_gpu import figures as gpu_figures
from benchmarks.page_gpu import rows as gpu_rows
from benchmarks.page_results import (
    RESULTS,
    TIMES,
    Rows,
    document,
    football_runs,
    goofspiel_runs,
    learning_outcomes,
    learning_runs,
    medians,
    number,
    outcomes,
    peer_scores,
    repetition,
    score,
    smax_runs,
    table,
    wanted,
)
from benchmarks.psro_family_cells import load
from benchmarks.psro_family_report import FINDINGS
from benchmarks.results import Outcome
from benchmarks.smax import PRESETS, peer_of
from benchmarks.training_speed import PEERS
from benchmarks.two_cores import RETURN, SECONDS, TURNS, ways

TITLES = {"sb3": "Stable-Baselines3", "ludus": "what suits Ludus"}


def _ratio(large: float, small: float) -> str:
    return f"{number(large / small)}{TIMES}"


def headline() -> str:
    """Return the dozen figures at the top of the page."""
    return table(("question", "Ludus", "compared with", "benchmark"), *_first_figures(), *_further_figures())


def _row(question: str, ours: str, theirs: str, command: str) -> tuple[str, ...]:
    return question, f"**{ours}**", theirs, f"`{command}`"


def _compared(
    question: str, ours: float, theirs: float, peer: str, command: str, *, seconds: bool = False
) -> tuple[str, ...]:
    """Return a row with the ratio to a peer. seconds: the less the better."""
    ratio = _ratio(theirs, ours) if seconds else _ratio(ours, theirs)
    return _row(question, number(ours), f"{number(theirs)}, {peer} ({ratio})", command)


def _first_figures() -> Rows:
    """Return what PSRO on Leduc poker, rollouts and updates come to."""
    exact, leduc, speed = medians("psro_leduc_exact"), medians("psro_leduc"), medians("training_speed")
    peers, rows = medians("rollout_peers"), Rows()
    rows.append(
        _compared(
            "exact PSRO on Leduc poker to NashConv 0.36, seconds",
            exact("ludus leduc-exact", "seconds to 0.36"),
            exact("psro_v2 exact", "seconds to 0.36"),
            "OpenSpiel's psro_v2",
            "psro_leduc_exact",
            seconds=True,
        )
    )
    ends = leduc.values("ludus leduc", "exploitability")
    rows.append(
        _row(
            "exploitability of preset `leduc` (PPO responses)",
            score(ends),
            f"in {number(leduc('ludus leduc', 'seconds'))} s a seed; [authors' figure](#psro)",
            "psro_leduc",
        )
    )
    key = "cartpole/gymnasium, steps per core second"
    rows.append(
        _compared(
            "environment steps per core second, Gymnasium's CartPole vector",
            peers("Ludus, cartpole", key),
            peers("SB3, cartpole", key),
            "Stable-Baselines3",
            "rollout_peers",
        )
    )
    key = "sb3/gymnasium, steps per wall second"
    rows.append(
        _compared(
            "PPO on CartPole, decisions collected and learned per second",
            speed("Ludus, PPO", key),
            speed("SB3, PPO", key),
            "Stable-Baselines3 with the same settings",
            "training_speed",
        )
    )
    for kind, of in (("dqn", "DQN"), ("sac", "SAC")):
        key = f"{kind}, updates per wall second"
        rows.append(
            _compared(
                f"{of}, updates per second",
                speed("Ludus, updates", key),
                speed("SB3, updates", key),
                "Stable-Baselines3",
                "training_speed",
            )
        )
    return rows


def _further_figures() -> Rows:
    """Return what learning, equilibria, tournaments, search, workers and kills come to."""
    solvers, matches, rows = medians("meta_solvers"), medians("tournament"), Rows()
    rows.append(
        _row(
            "PPO on CartPole after 100,000 decisions, return",
            score(_scores("cartpole-ppo")),
            "500, the best possible",
            "learning",
        )
    )
    rows.append(
        _compared(
            "equilibrium of a 1,000 × 1,000 zero-sum game to 1e-6, seconds",
            solvers("Ludus, Nash", "Nash: seconds"),
            solvers("OpenSpiel, Nash", "Nash: seconds"),
            "OpenSpiel's linear program",
            "meta_solvers",
            seconds=True,
        )
    )
    rows.append(
        _row(
            "tournament of 100 policies on Leduc poker, 495,000 games, seconds",
            number(matches("play", "seconds")),
            f"{number(matches('openspiel play', 'seconds'))}, a loop over OpenSpiel's states that looks tables up",
            "tournament",
        )
    )
    zero = medians("connect_four_alphazero")
    rows.append(
        _row(
            "AlphaZero on connect four after an hour on two cores: games won with 200 simulations",
            f"{zero('AlphaZero', 'search against 1000'):.4f}",
            "against OpenSpiel's tree search with 1,000",
            "connect_four_alphazero",
        )
    )
    goofspiel = min(mean(goofspiel_runs().values(name, "exploitability")) for name in goofspiel_runs().names)
    rows.append(
        _row(
            "Goofspiel with 13 cards, population exploitability after 19.2 M steps",
            number(goofspiel),
            "0.244, the best published (other responders)",
            "goofspiel13",
        )
    )
    rows.append(
        _row(
            "efficiency of 8 asynchronous workers on waiting environments",
            number(_outcome("distributed", "waiting environments, efficiency of 8 workers, async").value or 0.0),
            "1, no loss",
            "distributed",
        )
    )
    kills = [outcome for outcome in outcomes()["faults"] if outcome.name.endswith("lost or changed")]
    rows.append(
        _row(
            f"a process of each of {len(kills)} kinds killed at a random moment: results lost or changed",
            number(sum(outcome.value or 0.0 for outcome in kills), 0),
            f"recovered or ended in {number(max(o.value or 0.0 for o in outcomes()['faults'] if o.name.endswith('seconds')), 0)} s at most",
            "faults",
        )
    )
    return rows


def _outcome(benchmark: str, name: str) -> Outcome:
    return next(outcome for outcome in outcomes()[benchmark] if outcome.name == name)


def slower() -> str:
    """Return every bar that is missed, and the findings of the PSRO family's authors that do not hold; learning has a table of its own."""
    rows: Rows = [("benchmark", "bar", "wanted", "value")]
    for benchmark, bars in outcomes().items():
        for bar in bars:
            if bar.verdict == "short" and benchmark != "learning":
                rows.append((f"`{benchmark}`", bar.name, wanted(bar.wanted), f"{bar.value:.4g}"))
    for task, bars in learning_outcomes().items():
        short = [bar for bar in bars if bar.verdict == "short"]
        if short:
            own = score(_scores(task))
            ours = f"{own}; peer {score(peer_scores(task))}" if peer_scores(task) else own
            values = ", ".join(number(bar.value or 0.0) for bar in short)
            rows.append(
                (
                    "`learning`",
                    f"`{task}`",
                    wanted(short[0].wanted),
                    f"{ours} (ratio {values})" if TASKS[task].peer else ours,
                )
            )
    cells = load()
    judged = [(finding, finding.judge(cells)) for finding in FINDINGS]
    against = [f"`{finding.method}`" for finding, verdict in judged if verdict and verdict.holds is False]
    undecided = [finding for finding, verdict in judged if verdict and verdict.holds is None]
    rows.append(
        (
            "`psro_family`",
            f"findings of the authors that do not hold here: {', '.join(against)}",
            "",
            f"{len(against)} of {len(FINDINGS)}, {len(undecided)} undecided",
        )
    )
    return table(*rows, right=(3,))


def commands() -> str:
    """Return a row for every benchmark."""
    rows: Rows = [(f"`python -m benchmarks.{name}`", measures) for name, measures in COMMANDS.items()]
    return table(("command", "measures"), *rows)


# ------------------------------------------------------------------------------------------------------------------ populations


def psro() -> str:
    """Return the seconds behind the ratios on Leduc poker, and rollouts on its tree."""
    exact, dqn, leduc = medians("psro_leduc_exact"), medians("psro_leduc_dqn"), medians("psro_leduc")
    trees = medians("tree_rollouts")
    key = "decisions per core second"
    return table(
        ("Leduc poker", "Ludus", "compared with"),
        (
            "`leduc-exact`, seconds to NashConv 0.01",
            number(exact("ludus leduc-exact", "seconds to 0.01")),
            f"{number(exact('pyspiel loop', 'seconds to 0.01'))}, a loop over pyspiel",
        ),
        (
            "`leduc-dqn`, seconds to NashConv 1.7",
            number(dqn("ludus dqn", "seconds to 1.7")),
            f"{number(dqn('psro_v2 dqn', 'seconds to 1.7'))}, psro_v2 with its DQN",
        ),
        (
            "`leduc` with the split of 'PSRO in practice': exploitability",
            score(leduc.values("ludus leduc, the study's split", "exploitability")),
            "0.795 ± 0.057, its authors",
        ),
        (
            "decisions per core second on the tree: tables; a network",
            f"{number(trees('tables', key))}; {number(trees('network', key))}",
            f"{number(trees('pyspiel', key))}, pyspiel",
        ),
        right=(1,),
    )


SOLVERS = (
    ("α-Rank, infinite α, 50 strategies", "alpha-Rank, epsilon 0.01", "alpha-Rank, epsilon 0.01"),
    ("α-Rank, α 1, 50", "alpha-Rank, alpha 1", "alpha-Rank, alpha 1"),
    ("α-Rank, the limit (OpenSpiel sweeps), 50", "alpha-Rank, swept", "alpha-Rank, swept"),
    ("projected replicator dynamics, zero-sum, 200", "PRD, zero-sum", "PRD, zero-sum"),
    ("projected replicator dynamics, general-sum, 200", "PRD, general-sum", "PRD, general-sum"),
    ("regret matching, 200", "regret matching", "regret matching"),
    ("regret matching+ against regret matching, 200", "regret matching+", "regret matching"),
    ("coarse correlated equilibrium, maximum Gini, 20", "Gini CCE", "Gini CCE"),
    ("Nash to 1e-6, zero-sum, 1,000", "Nash", "Nash"),
)


def meta_solvers() -> str:
    """Return seconds of meta-solvers."""
    found = medians("meta_solvers")
    rows: Rows = [("meta-solver, strategies per player", "Ludus, s", "OpenSpiel, s", "times")]
    for title, ours, theirs in SOLVERS:
        fast, slow = found(f"Ludus, {ours}", f"{ours}: seconds"), found(f"OpenSpiel, {theirs}", f"{theirs}: seconds")
        rows.append((title, number(fast), number(slow), number(slow / fast)))
    warm = found("Ludus, Nash, re-solved", "Nash, re-solved: warm seconds")
    rows.append(("the same game with one more row and column, from the last solution", number(warm), "", ""))
    return table(*rows, right=(1, 2, 3))


def adaptive() -> str:
    """Return the NashConv of meta-strategies in the true meta-game by how matches are chosen."""
    rows: Rows = [("self-play by PPO", "episodes", "spread evenly", "adaptive", "three times as many, evenly")]
    folder = RESULTS / "adaptive_evaluation"
    for title, game in (
        ("Leduc poker", "leduc"),
        ("Goofspiel, 4 cards", "goofspiel"),
        ("Kuhn, 3 players", "kuhn-3-players"),
    ):
        cells = [_figures(folder / f"{game}-{seed}.json") for seed in range(5)]
        means = [mean(cell[f"{way}, NashConv"] for cell in cells) for way in ("even", "adaptive", "three times even")]
        rows.append((title, number(mean(c["adaptive, episodes"] for c in cells)), *(f"{value:.3f}" for value in means)))
    return table(*rows, right=(1, 2, 3, 4))


def _figures(path: object) -> Mapping[str, float]:
    return dict(document(str(path).removeprefix(f"{RESULTS}/").removesuffix(".json"))["figures"])


# --------------------------------------------------------------------------------------------------------------------- rollouts


def rollouts() -> str:
    """Return where the time of a rollout goes."""
    found = medians("rollout")
    header = "environment, 64 at once", "decisions/s", "environment", "policy", "overhead of the loop", "of a bare loop"
    rows: Rows = [header]
    for title, name in (
        ("Gymnasium's CartPole vector", "cartpole"),
        ("MPE2 simple_spread", "mpe2"),
        ("OpenSpiel connect_four", "connect_four"),
        ("PettingZoo connect_four_v3", "pettingzoo"),
        ("EnvPool Pong", "pong"),
    ):
        shares = (f"{found(f'share {name}', part):.1%}" for part in ("environment", "policy", "share"))
        rows.append((title, number(found(f"share {name}", "decisions per second")), *shares, _floor(found, name)))
    measured = any(row[-1] for row in rows[1:])
    return table(*(row if measured else row[:-1] for row in rows), right=range(1, len(header) - (not measured)))


def _floor(found: Medians, name: str) -> str:
    """Return the overhead of a bare loop; "" where it was not measured."""
    try:
        return f"{found(f'share {name}', 'floor share'):.1%}"
    except Missing:
        return ""


def rollout_peers() -> str:
    """Return steps per core second of Ludus and its peers."""
    found, peers = medians("rollout_peers"), ("Ludus", "SB3", "torchrl", "Tianshou", "Sample Factory")
    rows: Rows = [("steps per core second", *peers)]
    for title, contestant, setup in (
        ("CartPole, Gymnasium's vector", "cartpole", "cartpole/gymnasium"),
        ("CartPole, EnvPool", "cartpole", "cartpole/envpool"),
        ("CartPole, 64 Python environments", "cartpole", "cartpole/python"),
        ("Pong, EnvPool", "pong", "pong/envpool"),
        ("connect_four, PettingZoo", "connect_four", "connect_four/pettingzoo"),
    ):
        figure = f"{setup}, steps per core second"
        rows.append((title, *(number(found(f"{peer}, {contestant}", figure)) for peer in peers)))
    return table(*rows, right=range(1, 6))


def openspiel_arrays() -> str:
    """Return steps per core second of OpenSpiel's games as arrays, of its states in a vector, and bare."""
    steps = medians("openspiel_arrays")
    rows: Rows = [
        ("steps per core second", "arrays", "with information states", "states", "bare loop", "compilation, s")
    ]
    for game in ("phantom_ttt", "dark_hex(board_size=3)", "connect_four", "goofspiel(imp_info=True)", "liars_dice"):
        key, full = (f"{game}, {tensors}: steps per core second" for tensors in ("observation", "information_state"))
        rows.append(
            (
                f"`{game}`",
                number(steps("arrays", key)),
                "" if game == "connect_four" else number(steps("arrays", full)),
                number(steps("states", key)),
                number(steps("bare", key)),
                number(steps("compile", f"{game}: compile seconds")),
            )
        )
    return table(*rows, right=range(1, 6))


# --------------------------------------------------------------------------------------------------------------------- learners


def _scores(task: str) -> list[float]:
    return [run.figures["score"] for run in learning_runs().get(task, ())]


def learning() -> str:
    """Return a row for each task of `benchmarks.learning` with a bar that was played; a bar is bold if missed, in brackets if unjudged."""
    rows: Rows = [("task", "score", "wanted", "peer here", "published")]
    for name, bars in learning_outcomes().items():
        task, scores = TASKS[name], _scores(name)
        if scores:
            verdict = next(v for v in ("unjudged", "short", "met") if v in {bar.verdict for bar in bars})
            bar = wanted(task.wanted) + (f" {TIMES} {task.peer.name}" if task.peer else "")
            rows.append(
                (
                    f"`{name}`",
                    score(scores) + (f" ({len(scores)} seeds)" if 3 <= len(scores) < 5 else ""),
                    {"short": f"**{bar}**", "unjudged": f"({bar})", "met": bar}[verdict],
                    score(peer_scores(name)) if peer_scores(name) else "",
                    "" if task.published is None else number(task.published, 0 if abs(task.published) >= 1000 else 1),
                )
            )
    return table(*rows, right=(1, 3, 4))


def learning_others() -> str:
    """Return the scores of the tasks without a bar, a row for each group of tasks."""
    groups: dict[str, list[str]] = {}
    for name, task in TASKS.items():
        if _scores(name) and not task.wanted:
            group = next((group for group in GROUPS if name.startswith(f"{group}-")), "")
            seeds = len(_scores(name))
            peer = f"; {task.peer.name} {score(peer_scores(name))}" if peer_scores(name) and task.peer else ""
            said = f"`{name}` {score(_scores(name))}" + (f" ({seeds}{peer})" if seeds >= 3 else "")
            groups.setdefault(GROUPS.get(group, "others"), []).append(said)
    return table(
        ("tasks", "score (seeds, from three on)"), *((group, "; ".join(said)) for group, said in groups.items())
    )


GROUPS = {
    "spread": "simple_spread of MPE2, 1 M steps; random play has −74 to −78",
    "lbf": "foraging, 8×8-2p-2f-coop, 2 M steps; 1 is all food",
    "smax-3m": "SMAX 3m, 1 M steps; a won battle returns 6",
    "smax-2s3z": "SMAX 2s3z, 1 M steps; a won battle returns 10",
    "cheetah2x3": "MaMuJoCo, half-cheetah 2×3, 2 M steps",
    "ant2x4": "MaMuJoCo, ant 2×4, 1 M steps",
    "cartpole": "CartPole, imitated from 1, 10 or 100 episodes of the preset's PPO, which has 500",
    "leduc": "Leduc poker, exploitability after 2.4 M episodes",
}
"""Beginnings of the names of tasks without a bar, and what they have in common."""


def training_speed() -> str:
    """Return the decisions per second of PPO on CartPole at each peer's settings, and the ratios to the peer and to the bare loop."""
    found, kinds = medians("training_speed"), ("gymnasium", "python")
    rows: Rows = [("settings of", "Ludus", "peer", "of the peer", "of the limit")]
    for peer in (*PEERS, "ludus"):
        keys = [f"{peer}/{kind}, steps per wall second" for kind in kinds]
        limits, ours = ([found(f"{name}, PPO", key) for key in keys] for name in ("limit", "Ludus"))
        theirs = [found(f"{PEERS[peer]}, PPO", key) for key in keys] if peer in PEERS else []
        rows.append(
            (
                TITLES.get(peer, PEERS.get(peer, "")),
                number(ours[0]),
                number(theirs[0]) if theirs else "",
                "; ".join(f"{own / other:.1f}{TIMES}" for own, other in zip(ours, theirs, strict=False)),
                "; ".join(f"{own / limit:.2f}" for own, limit in zip(ours, limits, strict=True)),
            )
        )
    return table(*rows, right=range(1, 5))


def football() -> str:
    """Return the share of episodes with a goal by academy."""
    rows: Rows = [("academy", "seeds", "steps, M", "scored, of 500 new episodes", "wanted", "published")]
    for name, runs in football_runs().items():
        cell = ACADEMIES[name]
        scored = "; ".join(f"{run.figures['scored']:.3f}" for run in runs)
        steps = number(mean(run.figures["env steps"] for run in runs) / 1e6, 2)
        rows.append(
            (f"`{name}`", str(len(runs)), steps, scored, wanted(cell.wanted) if cell.wanted else "", cell.published)
        )
    return table(*rows, right=(1, 2))


def smax() -> str:
    """Return the battles won in SMAX, next to JaxMARL's own training."""
    found = smax_runs()
    rows: Rows = [("preset", "steps, M", "won, of 128", "seconds", "JaxMARL: won", "seconds")]

    def cells(name: str) -> tuple[str, str]:
        won = "; ".join(f"{value:.3f}" for value in found.values(name, "win rate"))
        return won, number(found(name, "seconds"))

    for preset in PRESETS:
        rows.append(
            (f"`{preset}`", number(found(preset, "env_steps") / 1e6, 2), *cells(preset), *cells(peer_of(preset)))
        )
    for preset, budget in (("smax-3m", 30_000_000), ("smax-2s3z", 50_000_000), ("smax-2s3z-qmix", 20_000)):
        figures = repetition(RESULTS / "smax" / f"{preset}-0-{budget}.json").figures
        steps, won = number(figures["env_steps"] / 1e6, 2), f"{figures['win rate']:.3f}"
        rows.append((f"`{preset}`", steps, won, number(figures["seconds"]), "", ""))
    return table(*rows, right=(1, 3, 5))


# -------------------------------------------------------------------------------------------------------------------- processes


def processes() -> str:
    """Return the bars of `benchmarks.distributed`."""
    rows: Rows = [("what", "value", "wanted")]
    rows += [
        (
            bar.name,
            number(bar.value or 0.0, 3),
            f"{wanted(bar.wanted)}{' (**short**)' if bar.verdict == 'short' else ''}",
        )
        for bar in outcomes()["distributed"]
    ]
    apex = medians("apex")
    seconds = "; ".join(number(apex(f"{n} actor{'s' if n > 1 else ''}", "seconds to solve"), 0) for n in (1, 2, 4, 8))
    rows.append(("Ape-X on waiting CartPole: seconds until solved by 1; 2; 4; 8 actors", seconds, ""))
    return table(*rows, right=(1,))


def two_cores() -> str:
    """Return what `benchmarks.two_cores` measured: seconds of whole commands, and what the policies are worth in the end."""
    result, rows = (
        medians("two_cores"),
        Rows([("a step of the environment", "how", "seconds", "× one process", "return")]),
    )
    for step in TURNS:
        alone = result(f"{step}, one process", SECONDS)
        for way in ways(step):
            seconds, end = (result(f"{step}, {way}", figure) for figure in (SECONDS, RETURN))
            rows.append((step, way, number(seconds, 1), number(alone / seconds, 2), number(end, 1)))
    return table(*rows, right=(2, 3, 4))


def exact_sweeps() -> str:
    """Return how exploitable uniform play is in the games of `benchmarks.exact_sweeps`, and how long that takes."""
    result = medians("exact_sweeps")
    rows: Rows = [
        ("game, policies see", "exploitability", "best responses earn", "s, two threads", "s, one thread", "MB")
    ]
    for game, (_, observation) in SWEEPS.items():
        value, first, second, size = (
            result("two threads", sweep_figure(game, what)) for what in ("exploitability", "best 0", "best 1", "MB")
        )
        seconds = [number(result(way, sweep_figure(game, "seconds")), 1) for way in WAYS]
        order = "all bids" if "dice" in game else "the order of their tries"
        what = order if observation == "information_state" else "their view"
        name = game.removesuffix(", by sequences")
        earned = f"{number(first, 4)}, {number(second, 4)}"
        rows.append((f"{name}, {what}", number(value, 4), earned, *seconds, number(size, 0)))
    load = " and ".join(number(result(way, "load"), 1) for way in WAYS)
    return f"{table(*rows, right=range(1, 6))}\n\nLoad before, of other work: {load} on two cores."


def gpu() -> str:
    """Return bars and figures of `benchmarks.gpu`, as stored or as measured before results were stored."""
    return "\n\n".join((table(*gpu_rows(), right=(2,)), table(*gpu_figures(), right=(1, 2, 3))))


def chaos() -> str:
    """Return what became of each harm, and how often each promise was checked."""
    found = document("chaos")
    outcomes, promises = cells(found), promise_cells(found)
    return "\n\n".join(
        (
            sentence(found),
            table(*outcomes, right=range(1, len(outcomes[0]))),
            table(*promises, right=range(1, len(promises[0]))),
        )
    )


def replay() -> str:
    """Return items per second through a replay table, in millions."""
    found, peers = medians("data_plane"), ("Ludus", "cpprb", "torchrl", "numpy")
    rows: Rows = [("million items of 1 KB per second", *peers)]
    for kind in ("uniform", "prioritised"):
        for what in ("inserts", "samples"):
            values = (_items(found, peer, f"1 KB/{kind}, {what} per second") for peer in peers)
            rows.append((f"{kind}: {what}", *values))
    return table(*rows, right=(1, 2, 3, 4))


def _items(found: Callable[[str, str], float], peer: str, figure: str) -> str:
    try:
        return f"{found(peer, figure) / 1e6:.3g}"
    except LookupError:
        return ""


def soak() -> str:
    """Return the slopes of long runs, and what commands need for a run of ten million matches."""
    parts = document("soak")["parts"]
    series = ("memory", "descriptors", "threads", "match", "decisions")
    head = (
        "memory, less the state where known",
        "descriptors",
        "threads",
        "database bytes per match",
        "processor time per decision",
    )
    rows: Rows = [("% per hour", "minutes", "policies", "matches", "MB", "kB of state per policy", *head)]
    for name, part in parts.items():
        if "slopes" not in part:
            continue
        last, slopes = part["last"], part["slopes"]
        rows.append(
            (
                name,
                number(part["minutes"], 0),
                number(last["policies"], 0),
                number(last["matches"], 0),
                number(last["anonymous"] / 1e6, 0),
                "not known" if (state := part["bytes of state per policy"]) is None else number(state / 1e3),
                *(_slope(slopes[one]) for one in series),
            )
        )
    large = parts["database"]
    costs: Rows = [(f"{large['matches']:,} matches, {large['bytes'] / 1e9:.1f} GB", "processor, s", "clock, s")]
    costs += [(f"`{name}`", number(cost["processor"]), number(cost["wall"])) for name, cost in large["costs"].items()]
    return "\n\n".join([table(*rows, right=range(1, len(rows[0]))), table(*costs, right=(1, 2))])


def _slope(slope: Mapping[str, float]) -> str:
    ends = ("percent", "low", "high")
    value, low, high = (number(slope[end] + 0.0, 1) for end in ends)
    return f"{value} [{low}, {high}]"


BLOCKS: Sequence[Callable[[], str]] = (
    headline,
    slower,
    psro,
    meta_solvers,
    goofspiel,
    hidden_boards,
    connect_four,
    adaptive,
    rollouts,
    rollout_peers,
    openspiel_arrays,
    learning,
    learning_others,
    training_speed,
    football,
    smax,
    processes,
    two_cores,
    exact_sweeps,
    chaos,
    gpu,
    replay,
    soak,
    commands,
)
"""A block of the page each, by its name."""
