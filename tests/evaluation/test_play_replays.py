"""Replays: kept, read, filmed; of what is played now and of what the debugger wrote."""

from __future__ import annotations

import base64
import io
import json
import math
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from play_games import AnyGame, openspiel

from ludus.apps.episodes.debugger import RecordedEpisode
from ludus.apps.episodes.drawing import BoardDrawer
from ludus.apps.play.replays import film, is_saved, list_replays, play, read, safe_name, save_replay
from ludus.apps.play.views import View, png
from ludus.core.errors import ConfigError, RunError
from ludus.core.jsonable import to_builtins, to_json
from ludus.envs.config import Environment


def test_a_replay_shows_everything_and_what_each_seat_saw() -> None:
    replay = play(openspiel("kuhn_poker"), ["random", "random"], seed=3)
    assert len(replay.frames) == replay.steps + 1
    first, last = replay.frames[0], replay.frames[-1]
    assert not any(card.hidden for seat in first.board.seats for card in seat.cards)  # type: ignore[union-attr]
    assert first.board_of is not None
    assert [seat.cards[0].hidden for seat in first.board_of[1].seats] == [True, False]  # type: ignore[union-attr]
    assert first.decisions[0].probs == [0.5, 0.5]
    assert last.over == "terminated"
    assert sum(replay.returns) == 0
    assert [frame.last[0].label for frame in replay.frames[1:]] == [
        frame.decisions[0].label for frame in replay.frames[:-1]
    ]
    assert to_json(play(openspiel("kuhn_poker"), ["random"], seed=3).frames) == to_json(replay.frames)


def test_replays_are_kept_beside_their_run(tmp_path: Path) -> None:
    replay = play(openspiel("matrix_rps"), ["random"], seed=1)
    id = save_replay(tmp_path, to_json(replay))
    (tmp_path / "replays" / "notes.json").write_text("{}")
    (tmp_path / "replays" / f"{'0' * 16}.json").write_text("[]")
    assert read(tmp_path, id) == to_builtins(replay)
    [line] = list_replays(tmp_path)
    assert (line.id, line.seats, line.steps, line.returns) == (id, ["player_0", "player_1"], 1, list(replay.returns))
    assert line.people == [False, False]
    assert line.name == "player_0 against player_1"
    with pytest.raises(RunError, match="no replay of format"):
        read(tmp_path, "0" * 16)
    for wrong in ("../../secret", "1" * 16, "notes"):
        assert not is_saved(tmp_path, wrong)
        with pytest.raises(RunError, match="has no replay"):
            read(tmp_path, wrong)


def _spread(frame: dict[str, Any]) -> None:
    frame["board"] = {"kind": "grid", "rows": 10**6, "columns": 10**6, "cells": [], "shape": "square", "last": []}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda replay: replay["frames"].append(None),
        lambda replay: replay["frames"][0].pop("board"),
        lambda replay: replay["frames"][0].update(board={"kind": "no such"}),
        lambda replay: _spread(replay["frames"][0]),  # 16 TB, drawn
        lambda replay: replay["frames"][0]["board"].update(cells=[["0"]]),
        lambda replay: replay["frames"][0].update(board={"kind": "frame", "image": "http://elsewhere/x.png"}),
        lambda replay: replay["frames"][0].update(last=[{"player": 2, "agent": 0, "label": "x"}]),
        lambda replay: replay["frames"][-1].update(returns=None),
        lambda replay: replay["frames"][-1].update(returns=[math.nan, 1]),
        lambda replay: replay["frames"][0].update(text="\ud800"),
        lambda replay: replay["seats"].append(None),
        lambda replay: replay.update(board_seats=[None]),
        lambda replay: replay.update(seats=[]),
        lambda replay: replay.update(created="now"),
        lambda replay: replay.update(created=1.7e18),  # nanoseconds
        lambda replay: replay.update(created=-1.0),
    ],
)
def test_a_file_that_was_spoilt_is_no_replay(tmp_path: Path, spoil: Callable[[dict[str, Any]], None]) -> None:
    replay = to_builtins(play(openspiel("tic_tac_toe"), ["random"], seed=1))
    spoil(replay)
    path = tmp_path / "replays" / f"{'1' * 16}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(replay))
    with pytest.raises(RunError, match="cannot be read"):
        read(tmp_path, "1" * 16)
    assert list_replays(tmp_path) == []
    path.write_text("[" * 100_000)
    with pytest.raises(RunError, match="cannot be read"):
        read(tmp_path, "1" * 16)


def test_debugger_files_are_replays(tmp_path: Path) -> None:
    game = openspiel("leduc_poker")
    with game.episode(["random"], seed=4) as episode:
        episode.save(tmp_path / "e.jsonl")
        played = View(episode, episode.episode.policy).replay(seed=4)
    recorded = RecordedEpisode(tmp_path / "e.jsonl")
    assert to_json(View(recorded, recorded.episode.policy).replay(seed=4).frames) == to_json(played.frames)
    lines = (tmp_path / "e.jsonl").read_text().splitlines()
    changed = {**json.loads(lines[0]), "seed": 5}  # other cards: the boards are not what is written there
    (tmp_path / "f.jsonl").write_text("\n".join([json.dumps(changed), *lines[1:]]))
    assert RecordedEpisode(tmp_path / "f.jsonl").state(0) is None


def test_films_of_replays_with_pictures() -> None:
    image = pytest.importorskip("PIL.Image", reason="films need Pillow")
    replay = to_builtins(
        play(AnyGame(Environment(id="gymnasium/Pendulum-v1", num_envs=1)), ["random"], seed=1, steps=3)
    )
    opened = image.open(io.BytesIO(film(replay, ".gif")))
    assert opened.n_frames == 4
    assert opened.size == (replay["frames"][0]["board"]["width"], replay["frames"][0]["board"]["height"])
    with pytest.raises(ConfigError, match=r"'.*replay\.bmp' was given"):
        film(replay, ".bmp")


def test_boards_are_drawn_for_films() -> None:
    image = pytest.importorskip("PIL.Image", reason="films need Pillow")
    replay = to_builtins(play(openspiel("tic_tac_toe"), ["random"], seed=1))
    opened = image.open(io.BytesIO(film(replay, ".gif")))
    assert (opened.n_frames, opened.info["duration"]) == (len(replay["frames"]), 1000)
    opened.seek(1)  # the first stone lies in the middle of its cell of 160 × 160
    [[row, column]] = replay["frames"][1]["board"]["last"]
    pixel = opened.convert("RGB").getpixel((column * 160 + 80, row * 160 + 80))
    assert pixel == pytest.approx((36, 87, 165), abs=8)


@pytest.mark.parametrize(
    "name",
    [
        "hex(board_size=3)",
        "go(board_size=9)",
        "chess",
        "leduc_poker",
        "liars_dice",
        "goofspiel(num_cards=3)",
        "matrix_rps",
        "pig",
    ],
)
def test_every_kind_of_board_can_be_drawn(name: str) -> None:
    pytest.importorskip("PIL.Image", reason="films need Pillow")
    replay = to_builtins(play(openspiel(name), ["random"], seed=1, steps=3))
    first = BoardDrawer().draw(replay["frames"][0]["board"], "a caption")
    last = BoardDrawer().draw(replay["frames"][-1]["board"], "a caption")
    assert first.dtype == np.uint8
    assert first.shape[1:] == last.shape[1:]
    assert first.shape != last.shape or (first != last).any()


def test_png_is_what_others_read() -> None:
    image = pytest.importorskip("PIL.Image", reason="another reader")
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png(pixels)))), pixels)


def test_a_picture_is_unpacked_no_further_than_it_says() -> None:
    def replay(data: bytes) -> dict[str, Any]:
        board = {"kind": "frame", "image": f"data:image/png;base64,{base64.b64encode(data).decode()}"}
        return {"seats": [{"name": "x"}], "frames": [{"board": board, "returns": [0.0]}]}

    good = png(np.zeros((2, 2, 3), np.uint8))
    packed = zlib.compress(bytes(10**6))
    bomb = good[:33] + len(packed).to_bytes(4) + b"IDAT" + packed  # a million bytes of 14
    wide = good[:16] + (10**5).to_bytes(4) * 2 + good[24:]
    for data, said in ((bomb, ""), (wide, "too large for a film"), (good[:45], "damaged")):
        with pytest.raises(ConfigError, match=said) if said else nullcontext():
            film(replay(data), ".gif")
    with pytest.raises(ConfigError, match="damaged"):
        film({**replay(b""), "frames": [{"board": {"kind": "frame", "image": "data:image/png;base64,?"}}]}, ".gif")


def test_names_of_files_are_plain() -> None:
    seats = [{"name": "../x\n"}, {"name": "@0/0-3"}]
    assert safe_name({"game": "openspiel/kuhn_poker", "seats": seats}) == "openspiel-kuhn_poker-x-0-0-3"
