"""ludus evaluate; `evaluation_output.py` has what it prints."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ludus.backend.device import parse_device
from ludus.cli.command import Command, add_device, add_rating, positive_number, whole_number
from ludus.cli.evaluation_output import (
    show_against,
    show_exact,
    show_exploiters,
    show_matches,
    show_population,
    show_ratings,
    show_responders,
)
from ludus.cli.progress_line import EpisodesProgress, ProgressLine
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import find_run

_EPISODES, _DEALS = 10_000, 100
_ROUNDS, _STEERING = 4, 1000


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[@WHAT]",
        help="name of a run in ./runs, or its directory (works while the run is still running). @WHAT: the policies whose exploitability "
        "is computed (default: @meta)",
    )
    parser.add_argument(
        "--episodes",
        type=positive_number,
        help=f"episodes per match (default: {_EPISODES}); with --against: deals, each played in every seating (default: {_DEALS})",
    )
    parser.add_argument(
        "--policies",
        metavar="NAME",
        nargs="+",
        default=[],
        help="after RUN: the policies to play, in every combination of one per player: @meta, @best, @strongest, @12, @PLAYER/POLICY of "
        "RUN, any policy of another run of the game, a file or random (default: @WHAT, or @meta and the newest)",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="exploitability of @WHAT, computed without playing: in games with a tree, and in phantom tic-tac-toe and dark hex, whose "
        "trees are too large",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=positive_number,
        help="with --exact: threads of sweeps over games without a tree (default: all cores); they change no digit",
    )
    parser.add_argument(
        "--exploit",
        metavar="EPISODES",
        type=positive_number,
        help="train an approximate best response per population against @WHAT for EPISODES episodes; its gain is a lower bound on "
        "exploitability, for games of any size",
    )
    parser.add_argument(
        "--start",
        metavar="NAME",
        help="with --exploit: initial policy of the best response: @best, RUN@PLAYER/POLICY or a file (default: new networks)",
    )
    parser.add_argument(
        "--population",
        action="store_true",
        help="exploitability of the least exploitable mixture of all policies, independent of the meta-solver: exact if the game has a "
        "tree; with --exploit EPISODES, by best responses that are trained for EPISODES episodes each, one per round",
    )
    parser.add_argument(
        "--rounds",
        type=positive_number,
        metavar="N",
        help=f"rounds of --population with --exploit (default: {_ROUNDS})",
    )
    parser.add_argument(
        "--against",
        metavar="RUN",
        help="another run of the game: all policies of one run against all of the other, played or computed, and which population is "
        "better",
    )
    add_rating(parser, "from stored results: nothing is played")
    parser.add_argument("--seed", type=whole_number, help="seed of --exploit and --against (default: 0)")
    add_device(parser, what="for exact values and for the learners of --exploit")


def _execute(options: argparse.Namespace) -> int:
    _one_question(options)
    options.device = parse_device(options.device or "auto")
    run_dir, of = _run(options)
    episodes = options.episodes or _EPISODES
    if options.rating:
        from ludus.evaluation.run_ratings import rate_run

        show_ratings(rate_run(run_dir, options.rating))
    elif options.exact:
        _exact(run_dir, of, options)
    elif options.against is not None:
        _against(run_dir, options)
    elif options.population:
        _population(run_dir, options, episodes)
    elif options.exploit is not None:
        from ludus.evaluation.exploiters import exploit_run

        tell = _Progress(lambda _, population: f"exploiting, population {population}")
        result = exploit_run(
            run_dir,
            budget=options.exploit,
            episodes=episodes,
            seed=options.seed or 0,
            of=of,
            start=options.start,
            device=options.device,
            tell=tell,
        )
        show_exploiters(result)
    else:
        from ludus.evaluation.evaluate import evaluate_run

        with closing(EpisodesProgress()) as progress:
            report = evaluate_run(
                run_dir, episodes=episodes, policies=options.policies, of=of, device=options.device, tell=progress
            )
        show_matches(report)
    return 0


def _run(options: argparse.Namespace) -> tuple[Path, str]:
    """The run, and whose exploitability is asked for. Raises RunError for a part of a run where a whole one is needed."""
    if options.rating or options.against is not None or options.population:
        return find_run(options.run), ""
    from ludus.evaluation.policies import META, split_name

    folder, of = split_name(options.run, find_run)
    return folder, of or f"@{META}"


def _exact(run_dir: Path, of: str, options: argparse.Namespace) -> None:
    from ludus.evaluation.exact_exploitability import evaluate_exact

    with closing(_SweepProgress()) as progress:
        report = evaluate_exact(run_dir, of=of, threads=options.threads, device=options.device, tell=progress)
    show_exact(report)


def _against(run_dir: Path, options: argparse.Namespace) -> None:
    from ludus.tournament.cross_play import evaluate_cross_play

    with closing(EpisodesProgress()) as progress:
        result = evaluate_cross_play(
            run_dir,
            find_run(options.against),
            deals=options.episodes or _DEALS,
            seed=options.seed or 0,
            device=options.device,
            tell=progress,
        )
    show_against(result)


def _population(run_dir: Path, options: argparse.Namespace, episodes: int) -> None:
    if options.exploit is None:
        from ludus.evaluation.population_exploitability import evaluate_population

        show_population(evaluate_population(run_dir, device=options.device))
        return
    from ludus.evaluation.exploiters import exploit_population

    rounds = options.rounds or _ROUNDS

    def doing(number: int, population: int) -> str:
        what = f"round {number + 1} of {rounds}" if number < rounds else "measuring"
        return f"{what}, population {population}"

    result = exploit_population(
        run_dir,
        budget=options.exploit,
        rounds=rounds,
        episodes=min(_STEERING, episodes),
        checks=episodes,
        seed=options.seed or 0,
        device=options.device,
        tell=_Progress(doing),
    )
    show_responders(result)


_SUBJECTS = {
    "rating": "stored results",
    "against": "two runs",
    "population": "mixtures",
    "exact": "exploitability",
    "exploit": "meta-strategies",
    "policies": "policies",
}


def _one_question(options: argparse.Namespace) -> None:
    """Raise ConfigError for options that ask about different things."""
    subjects = [name for name in _SUBJECTS if getattr(options, name)]
    if len(subjects) > 1 and subjects != ["population", "exploit"]:
        first, second = (f"--{name} (of {_SUBJECTS[name]})" for name in subjects[:2])
        raise ConfigError(f"{first} and {second} were given, which are two questions; leave one out.")
    if options.rounds is not None and subjects != ["population", "exploit"]:
        raise ConfigError("--rounds was given, which belongs to --population with --exploit EPISODES.")
    if options.start is not None and subjects != ["exploit"]:
        raise ConfigError(
            "--start was given, which belongs to --exploit EPISODES alone: with --population each responder starts from the best one known."
        )
    if options.seed is not None and not {"exploit", "against"} & {*subjects}:
        raise ConfigError(
            "--seed was given, which belongs to --exploit and --against. Matches have seeds of their own; more --episodes say more."
        )
    if options.threads is not None and subjects != ["exact"]:
        raise ConfigError("--threads was given, which belongs to --exact. Leave it out.")
    if options.episodes is not None and subjects in (["rating"], ["population"], ["exact"]):
        raise ConfigError(
            f"--episodes was given, and --{subjects[0]} (of {_SUBJECTS[subjects[0]]}) plays nothing. Leave it out."
        )
    if options.rating and options.device is not None:
        raise ConfigError(
            f"--device {options.device} was given; ratings are computed from what is recorded. Leave it out."
        )


class _SweepProgress(ProgressLine):
    """How much of a sweep is done, with the time left once it can be estimated; and at first the memory that it needs."""

    def __init__(self) -> None:
        super().__init__(quiet=2.0, live=True)
        self._first: tuple[int, float] | None = None  # what was done by when; before that policies were asked

    def __call__(self, done: int, total: int, size: int) -> None:
        """What `evaluate_exact` tells."""
        now = time.monotonic()
        if not done:
            self.say(f"sweeping takes up to {max(size / 1e6, 0.1):,.1f} MB")
            self.begin()
        elif self._first is None:
            self._first = done, now
        elif done < total and self.due():
            from ludus.apps.common.progress import duration

            before, since = self._first
            self.say(
                f"{done} of {total} tries, about {duration((now - since) * (total - done) / (done - before))} left"
            )


class _Progress(ProgressLine):
    """A line every five seconds, with the time left for the present population of the present round."""

    def __init__(self, doing: Callable[[int, int], str]) -> None:
        """doing: what is going on, in a round and with a population."""
        super().__init__(quiet=2.0, every=5.0)
        self._doing = doing
        self._stage: tuple[int, int] | None = None

    def __call__(self, number: int, population: int, share: float | None) -> None:
        """What `exploit_run` and `exploit_population` tell."""
        if (number, population) != self._stage:
            self._stage = number, population
            self.begin()
        if not share or not self.due():
            return
        from ludus.apps.common.progress import duration

        left = duration((time.monotonic() - self.begun) * (1 - share) / share)
        self.say(f"{self._doing(number, population)}: {share:.0%}, {left} left")


COMMAND = Command(
    name="evaluate",
    summary="Play a run's policies against each other: payoffs with confidence intervals, exploitability, ratings.",
    examples=(
        ("ludus evaluate leduc-20261120-120000", "the meta-strategies and the newest policies"),
        ("ludus evaluate try1@12", "the meta-strategies after generation 12"),
        ("ludus evaluate tag1 --policies @meta @adversary_0/0-3", "a policy by its player's agent name"),
        (
            "ludus evaluate try1 --episodes 100000 --policies @meta @0/0-3 try2@best",
            "the named policies against each other",
        ),
        ("ludus evaluate phantom1@best --exact", "exact exploitability of its best policies"),
        ("ludus evaluate try1@best --exploit 200000", "the gain of a policy trained against the best ones"),
        ("ludus evaluate try1 --exploit 200000 --start @newest", "the same, starting from the newest policy"),
        ("ludus evaluate try1 --population", "exploitability of its best mixture of policies, exact"),
        ("ludus evaluate try1 --population --exploit 50000", "the same by training, for games without a tree"),
        ("ludus evaluate try1 --against try2", "relative population performance of two runs"),
        ("ludus evaluate try1 --rating mean_payoff,alpha_rank", "rate all of its policies from stored results"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
