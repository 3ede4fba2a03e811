"""ludus record"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli.command import Command, check_new, positive_number, run_and_policies, whole_number, without_window
from ludus.cli.output import facts
from ludus.cli.progress_line import EpisodesProgress, ProgressLine
from ludus.core.errors import ConfigError, join_or
from ludus.core.machine import check_place, replace_file
from ludus.storage.run_dirs import is_entry

if TYPE_CHECKING:
    from ludus.apps.episodes.recording import Recording
    from ludus.apps.episodes.schemas import Replay

_STEPS, _FPS = 1000, 15
_PAGE, _JSON, _LINES = ".html", ".json", ".jsonl"
_FILMS = (".gif", ".mp4")
_ENDS = (*_FILMS, ".txt", _PAGE, _JSON)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[@WHAT]|FILE.jsonl",
        help="name of a run in ./runs, or its directory (works while the run is still running). @WHAT: the policies that play (default: "
        "@meta, the last meta-strategy). Or an episode that `ludus debug` saved, for a replay",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=_file,
        help="output file: .gif, .mp4 or .txt, or a replay to step through, .html or .json (default: episode.gif or episode.txt in the "
        "run's directory; for an entry of a zoo, in the current directory)",
    )
    parser.add_argument(
        "--policies",
        metavar="NAME",
        nargs="+",
        default=[],
        help="after RUN: the policies that play, one for all or one per player: @meta, @best, @strongest, @12, @PLAYER/POLICY of RUN, any "
        "policy of another run of the game, a file, random, bot:NAME, module:Class or an agent (command:PROGRAM)",
    )
    parser.add_argument("--out", type=_file, metavar="FILE", help="the same as FILE")
    parser.add_argument("--keep", action="store_true", help="save the replay with the run, for its page and report")
    parser.add_argument(
        "--trajectories",
        type=_file,
        metavar="FILE.parquet",
        help="write the decisions instead, as training data: --episodes per player, in many environments at a time",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="overwrite the file of --out or --trajectories, or the default file of an entry of a zoo",
    )
    parser.add_argument(
        "--episodes", type=positive_number, default=1, help="number of episodes, played in turn (default: 1)"
    )
    parser.add_argument(
        "--steps", type=positive_number, help=f"maximum length of an episode; a longer one is cut (default: {_STEPS})"
    )
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the episodes (default: 0)")
    parser.add_argument("--fps", type=positive_number, help=f"images per second (default: {_FPS}; for boards 1)")
    parser.add_argument(
        "--players",
        metavar="PLAYER",
        nargs="+",
        help="players whose decisions --trajectories writes, by number or by agent name (default: all)",
    )
    parser.add_argument(
        "--num-envs",
        type=positive_number,
        metavar="N",
        help="number of environments stepped together for --trajectories",
    )


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("'' was given, a file was expected")
    return Path(text)


def _execute(options: argparse.Namespace) -> int:
    if options.file is not None and options.out is not None:
        raise ConfigError(f"{str(options.file)!r} and --out {str(options.out)!r} were given. Leave one out.")
    options.out = options.out or options.file
    suffix = options.out.suffix.lower() if options.out is not None else ""
    if options.out is not None and suffix not in _ENDS:
        raise ConfigError(f"{str(options.out)!r} was given; a name that ends in {join_or(_ENDS)} is needed.")
    film = options.trajectories is None
    for name in ("players", "num_envs") if film else ("out", "steps", "fps"):
        if getattr(options, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is of {'no use without' if film else 'films; it is of no use with'} --trajectories."
            )
    if options.keep or options.run.endswith(_LINES) or suffix in (_PAGE, _JSON):
        return _replay(options)
    run_dir, policies = run_and_policies(options.run, options.policies)
    if suffix in _FILMS and options.trajectories is None and options.episodes == 1 and _has_boards(run_dir):
        return _replay(options)
    options.policies = policies
    if film and suffix in _FILMS and options.episodes != 1 and _has_boards(run_dir):
        raise ConfigError(
            f"a {suffix} of a board is of one episode, and --episodes {options.episodes} was given. Leave it out, or name a .txt file."
        )
    return _film(run_dir, options) if film else _trajectories(run_dir, options)


def _film(run_dir: Path, options: argparse.Namespace) -> int:
    without_window()
    from ludus.apps.episodes.recording import check_kind, check_target, record_run, save

    fps = options.fps or _FPS
    into = Path() if is_entry(run_dir) else run_dir  # an entry of a zoo stays as it was signed

    def target(text: bool) -> Path:
        return options.out or into / ("episode.txt" if text else "episode.gif")

    def check(text: bool) -> None:
        if into != run_dir and options.out is None:  # not into a folder of ours
            check_new("the recording", target(text), options)
        check_target(target(text), fps=fps)
        check_kind(target(text), text=text)

    if options.out is not None:
        check_target(options.out, fps=fps)
        check_new("--out", options.out, options)
    recording = record_run(
        run_dir,
        policies=options.policies,
        episodes=options.episodes,
        seed=options.seed,
        steps=options.steps or _STEPS,
        tell=_Progress(options.episodes),
        shown=check,
    )
    path = target(text=not recording.frames)
    save(recording, path, fps=fps)
    _show(recording, path)
    return 0


def _replay(options: argparse.Namespace) -> int:
    """Return an episode that can be stepped through, as a page or JSON, and beside the run."""
    from ludus.apps.ui.static_page import replay_file
    from ludus.core.jsonable import to_json

    without_window()
    path: Path | None = options.out
    if options.trajectories is not None or options.episodes > 1:
        raise ConfigError("a replay is of one episode, without --trajectories and --episodes. Leave these out.")
    if options.fps is not None and (path is None or path.suffix.lower() not in _FILMS):
        raise ConfigError(f"--fps is of films, whose names end in {join_or(_FILMS)}. Leave it out.")
    if path is not None:
        _check_replay(path, fps=options.fps or _FPS)
        check_new("the replay", path, options)
    elif not options.keep:
        raise ConfigError(
            f"{options.run!r} was given alone; say where its replay is to go: FILE{_PAGE} or FILE{_JSON}."
        )
    replay, run_dir = _replay_of(options)
    pairs = [("players", " against ".join(seat.name for seat in replay.seats))]
    if path is not None:
        replace_file(path, replay_file(to_json(replay), path.suffix.lower(), fps=options.fps))
        pairs.insert(0, ("file", str(path)))
    if options.keep and run_dir is not None:
        from ludus.apps.play.replays import FOLDER, save_replay

        pairs.insert(0, ("kept", str(run_dir / FOLDER / f"{save_replay(run_dir, to_json(replay))}.json")))
    pairs.append(("episode", f"{replay.steps} steps, returns {' '.join(f'{value:+.3g}' for value in replay.returns)}"))
    facts("Replay", pairs)
    return 0


def _check_replay(path: Path, *, fps: int) -> None:
    """What can be known before anything is played. Raises ConfigError."""
    suffix = path.suffix.lower()
    if suffix in _FILMS:
        from ludus.apps.episodes.recording import check_target

        check_target(path, fps=fps)
    elif suffix not in (_PAGE, _JSON):
        known = join_or((_PAGE, _JSON, *_FILMS))
        raise ConfigError(f"{str(path)!r} was given for a replay; a name that ends in {known} is needed.")
    else:
        check_place(path)


def _replay_of(options: argparse.Namespace) -> tuple[Replay, Path | None]:
    """And the run's directory, where it is of one."""
    from ludus.apps.play.views import View

    if options.run.endswith(_LINES):
        from ludus.apps.episodes.debugger import RecordedEpisode

        if options.keep or options.policies or options.seed or options.steps:
            raise ConfigError(
                f"{options.run!r} is an episode that was played; --keep, --policies, --seed and --steps are of no use."
            )
        episode = RecordedEpisode(Path(options.run))
        return View(episode, episode.episode.policy).replay(seed=episode.episode.seed), None
    from ludus.apps.play.replays import play
    from ludus.apps.play.run_game import RunGame
    from ludus.evaluation.policies import META

    run_dir, policies = run_and_policies(options.run, options.policies)
    if options.keep and is_entry(run_dir):
        raise ConfigError(f"{str(run_dir)!r} is an entry of a zoo, which stays as it was signed. Write a file instead.")
    return play(RunGame(run_dir), policies or [f"@{META}"], seed=options.seed, steps=options.steps or _STEPS), run_dir


def _has_boards(run_dir: Path) -> bool:
    """Return whether the run's game is drawn as a board, and has no pictures of its own."""
    from ludus.storage.stored_run import open_run

    return open_run(run_dir).env.id.startswith("openspiel/")


def _trajectories(run_dir: Path, options: argparse.Namespace) -> int:
    from ludus.apps.episodes.trajectory_export import check_file, record_run_trajectories

    path: Path = options.trajectories
    check_file(path)
    check_new("--trajectories", path, options)
    with closing(EpisodesProgress()) as progress:
        written = record_run_trajectories(
            run_dir,
            path,
            policies=options.policies,
            players=options.players or (),
            episodes=options.episodes,
            seed=options.seed,
            num_envs=options.num_envs,
            tell=progress,
        )
    pairs = [("file", str(path)), ("decisions", f"{written.decisions:,}")]
    for (player, name), episodes in written.played.items():
        pairs.append((f"player {player}", f"{name}, {episodes:,} episode{'' if episodes == 1 else 's'}"))
    facts("Trajectories", pairs)
    return 0


class _Progress(ProgressLine):
    """A line a second, once a film takes long."""

    def __init__(self, episodes: int) -> None:
        super().__init__(quiet=2.0)
        self._episodes = episodes

    def __call__(self, episode: int, step: int) -> None:
        if self.due():
            self.say(f"episode {episode + 1} of {self._episodes}, step {step}")


def _show(recording: Recording, path: Path) -> None:
    from ludus.apps.common.progress import signed

    pairs = [("file", str(path))]
    if recording.frames:
        height, width = recording.frames[0].shape[:2]
        pairs.append(("images", f"{len(recording.frames)} of {width} × {height}"))
    for k, (returns, length) in enumerate(zip(recording.returns, recording.length, strict=True)):
        paid = " ".join(signed(float(value), 3) for value in returns)
        pairs.append((f"episode {k + 1}", f"{length} steps, returns {paid}"))
    if recording.cut:
        pairs.append((f"episode {len(recording.returns) + 1}", recording.cut))
    facts("Recording", pairs)


COMMAND = Command(
    name="record",
    summary="Record episodes of a run's policies: as a replay, a GIF, an MP4, text or training data.",
    examples=(
        ("ludus record leduc-20261120-120000", "the meta-strategies"),
        ("ludus record try1@best", "the best policies"),
        ("ludus record try1 --policies @0/0-3 @1/1-7 --out match.mp4 --seed 4", "two policies, another seed"),
        ("ludus record try1@best game.html", "a page to step through, without a server"),
        ("ludus record try1 --trajectories games.parquet --episodes 5000", "decisions, for `ludus clone`"),
        ("ludus record tag1 --trajectories a.parquet --players adversary_0", "decisions of one player, by agent name"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
