"""ludus play"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ludus.cli.command import Command, run_and_policies, without_window
from ludus.cli.output import stream, write
from ludus.cli.ui import add_server, serve_until_ctrl_c, server_of, serving
from ludus.core.errors import ConfigError, PlayError
from ludus.core.packages import optional
from ludus.storage.run_dirs import is_entry

if TYPE_CHECKING:
    from ludus.apps.play.game_sessions import GameSession

_PERSON = "person"
_QUIT = ("q", "quit", "exit")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[@WHAT]",
        help="name of a run in ./runs, or its directory (works while the run is still running). @WHAT: your opponents (default: @meta, the "
        "mixture)",
    )
    parser.add_argument(
        "--against",
        metavar="NAME",
        nargs="+",
        default=[],
        help="your opponents, one for all other seats or one per seat: @meta, @best, @strongest, @PLAYER/POLICY, random, bot:NAME, person",
    )
    parser.add_argument(
        "--seat",
        default="0",
        metavar="PLAYER",
        help="your player, by number or by agent name (default: 0)",
    )
    parser.add_argument("--name", default="", help="your name in the list of people")
    parser.add_argument("--hints", action="store_true", help="show what the policies would do in your position")
    parser.add_argument("--rated", action="store_true", help="count the result for your rating")
    parser.add_argument("--text", action="store_true", help="play in the terminal, by entering numbers")
    add_server(parser)


def _execute(options: argparse.Namespace) -> int:
    without_window()
    from ludus.evaluation.policies import META

    run_dir, against = run_and_policies(options.run, options.against, "--against", who="who plays against you")
    if options.rated and options.hints:
        raise ConfigError("--rated and --hints were given; who is told what to do is not rated. Leave one out.")
    if options.rated and options.text:
        raise ConfigError("--rated and --text were given; only games on the page are kept and rated. Leave one out.")
    against = against or [f"@{META}"]
    if options.watch_only:
        raise ConfigError(
            "--watch-only was given, with which nobody may play. Leave it out, or show the runs by `ludus ui --watch-only`."
        )
    if options.text and (unread := serving(options)):
        raise ConfigError(f"--text was given with {unread}: in the terminal nothing is served. Leave one out.")
    return _in_terminal(run_dir, against, options) if options.text else _on_the_page(run_dir, against, options)


def seats_of(players: int, seat: int, against: Sequence[str]) -> list[str]:
    """Return [P] who sits where. Raises ConfigError for another number of opponents."""
    others = list(against) * (players - 1) if len(against) == 1 else list(against)
    if len(others) != players - 1:
        raise ConfigError(
            f"{len(others)} opponents were given; the game has {players - 1}. Name one for all, or one for each."
        )
    return [*others[:seat], _PERSON, *others[seat:]]


# --------------------------------------------------------------------------------------------------------------------
# On the page.


def _on_the_page(run_dir: Path, against: Sequence[str], options: argparse.Namespace) -> int:
    from ludus.apps.play.run_game import check_name
    from ludus.storage.stored_run import StoredRun

    with optional("the page", extra="ui"):
        from ludus.apps.ui.server.known_runs import entry_id, id_of

    for name in against:
        check_name(name)  # the page takes them joined by commas, and no others
    run = StoredRun(run_dir)
    seat = run.player_names.player(options.seat, what="--seat")
    wanted = {
        "seats": ",".join(seats_of(len(run.population), seat, against)),
        "name": options.name,
        "hints": "1" if options.hints else "",
        "rated": "1" if options.rated else "0",
        "start": "1",
    }
    id = entry_id(run_dir) if is_entry(run_dir) else id_of(run_dir)
    place = f"#/run/{id}/play?{urlencode({key: value for key, value in wanted.items() if value})}"
    return serve_until_ctrl_c(server_of(options, [str(run_dir)]), to=place, browser=not options.no_open)


# --------------------------------------------------------------------------------------------------------------------
# In the terminal.


def _in_terminal(run_dir: Path, against: Sequence[str], options: argparse.Namespace) -> int:
    from ludus.apps.play.game_sessions import GameSession, SeatRequest
    from ludus.apps.play.run_game import RunGame
    from ludus.core.player_names import PlayerNames

    if _PERSON in against:
        raise ConfigError("the terminal has one seat for a person. Play with others on the page, without --text.")
    game = RunGame(run_dir)
    seat = PlayerNames.of(game.spec).player(options.seat, what="--seat")
    who = seats_of(game.spec.num_players, seat, against)
    requests = [
        SeatRequest(who=name, name=options.name or "you") if name == _PERSON else SeatRequest(who=name) for name in who
    ]
    session = GameSession("terminal", game, requests, hints="" if options.hints else None, rated=False)
    try:
        while _play(session, seat) and _asked("Another game? [y/N] ").lower() in ("y", "yes"):
            session.again(seat)
    finally:
        session.close()
    return 0


def _play(session: GameSession, player: int) -> bool:
    """One game; whether it was played to its end."""
    while not (view := session.view(player))["over"]:
        write("\n".join(_position(view)))
        for one in view["frame"]["decisions"]:
            write("\n".join(_choices(one)))
            answer = _asked("> ")
            if answer.lower() in _QUIT:
                return False
            _move(session, player, one, answer, view["frame"]["number"])
            if session.view(player) is not view:  # the game has gone on: what is left here is of the position before
                break
    write("\n".join(_position(view)))
    returns = ", ".join(
        f"{seat['name']} {0.0 if value is None else value:+g}"
        for seat, value in zip(view["players"], view["frame"]["returns"], strict=True)
    )
    write(f"The game is over ({view['over']}): {returns}.")
    return True


def _move(session: GameSession, player: int, one: Mapping[str, Any], answer: str, number: int) -> None:
    """Make a move, or say what is wrong with it. number: of the frame that the decision is of."""
    from ludus.apps.play.game_sessions import MoveRequest

    legal = {option["label"]: option["action"] for option in one["legal"]}
    legal |= dict(zip(numbers_of([*legal]), legal.values(), strict=True))
    try:
        vector = one["box"] is not None
        action = [float(part) for part in answer.replace(",", " ").split()] if vector else legal[answer]
        session.move(player, [MoveRequest(player=player, agent=one["agent"], action=action)], number)
    except (ValueError, KeyError):
        write(f"{answer!r} is no move; give the number of one, or its name, or q to leave.")
    except PlayError as error:
        write(str(error))


def numbers_of(labels: Sequence[str]) -> list[str]:
    """Return what stands for each choice: the number that its name ends with ("column 4"), or, where not all do, its place from 1."""
    last = [label.rpartition(" ")[2] for label in labels]
    named = len({*last}) == len(last) and all(word.isdecimal() for word in last)
    return last if named else [str(place) for place in range(1, len(labels) + 1)]


def _asked(prompt: str) -> str:
    try:
        stream().flush()
        return input(prompt).strip()
    except EOFError:
        return "q"


def _position(view: Mapping[str, Any]) -> Iterator[str]:
    frame = view["frame"]
    yield ""
    for move in frame["last"]:
        yield f"{view['players'][move['player']]['name']}: {move['label']}"
    yield from board_lines(frame["board"])


def _choices(one: Mapping[str, Any]) -> Iterator[str]:
    if one["box"] is not None:
        yield f"{one['name']}: {len(one['box']['low'])} numbers, from {one['box']['low']} to {one['box']['high']}"
        return
    hint = one["hint"]
    numbers = numbers_of([legal["label"] for legal in one["legal"]])
    for place, legal in enumerate(one["legal"]):
        line = f"  {numbers[place]:>4}  {legal['label']}"
        if hint is not None and one["probs"] is not None:
            line += f"  ({hint['policy']} {_share(one['probs'][place])}"
            line += f", mixture {_share(hint['meta'][place])}" if hint["meta"] is not None else ""
            line += f", value {one['values'][place]:+.3g})" if _known(one["values"], place) else ")"
        yield line
    if hint is not None and one["probs"] is None:
        yield f"  {hint['how']}"


def _share(prob: float | None) -> str:
    return "?" if prob is None else f"{prob:.0%}"


def _known(values: Sequence[float | None] | None, place: int) -> bool:
    return values is not None and values[place] is not None


def board_lines(board: Mapping[str, Any]) -> Iterator[str]:
    """Yield a board's JSON as lines of text."""
    kind = board["kind"]
    if kind == "grid":
        yield from _grid_lines(board)
    elif kind == "cards":
        yield from _card_lines(board)
    elif kind == "matrix":
        for player, names in enumerate(board["actions"]):
            yield f"player {player}: {', '.join(names)}"
    elif kind == "text":
        yield from board["text"].splitlines()
    else:
        yield f"(a picture of {board['width']} × {board['height']}; it is shown on the page, without --text)"


def _grid_lines(board: Mapping[str, Any]) -> Iterator[str]:
    signs = {"": ".", "0": "x", "1": "o"}
    rows, columns = board["labels"]["rows"], board["labels"]["columns"]
    wide = max(map(len, rows), default=0)
    for r, row in enumerate(board["cells"]):
        lean = " " * r if board["shape"] == "hex" else ""
        yield f"{lean}{rows[r] if rows else '':>{wide}} {' '.join(signs.get(cell, cell) for cell in row)}"
    if columns:
        yield f"{' ' * (board['rows'] if board['shape'] == 'hex' else 0)}{'':>{wide}} {' '.join(columns)}"


def _card_lines(board: Mapping[str, Any]) -> Iterator[str]:
    for seat in board["seats"]:
        cards = " ".join("??" if card["hidden"] else card["text"] for card in seat["cards"])
        chips = "" if seat["chips"] is None else f"  {seat['chips']['paid']:g} in the pot"
        yield f"{seat['name']}: {cards}{chips}{'  ' + seat['note'] if seat['note'] else ''}"
    if board["table"]:
        yield f"on the table: {' '.join(card['text'] for card in board['table'])}"
    if board["bids"]:
        yield f"bids: {', '.join(board['bids'])}"


COMMAND = Command(
    name="play",
    summary="Play against the policies of a run, in the browser or in the terminal.",
    examples=(
        ("ludus play leduc-20261120-120000", "against the mixture: one policy sampled per game"),
        ("ludus play try1@best --seat 1 --hints", "against the best policy, as player 1, with hints"),
        (
            "ludus play tag1 --seat agent_0 --against @adversary_0/0-3 @adversary_1/1-3",
            "players by agent names",
        ),
        ("ludus play try1 --against @0/0-3 --name ADA --rated", "against one policy, for a rating"),
        ("ludus play try1 --text", "in the terminal"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
