"""Recordings: what is shown, how it is written, what is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.apps.episodes.recording import Pictures, Recording, _rendering, record, save
from ludus.core.errors import ConfigError, EnvError, ScenarioError
from ludus.core.types import AgentSpec, EnvSpec, PolicyRef, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy

RANDOM = build_policy(PolicySpec("random", {"actions": 2}), {})


class Clock:
    """Three steps; the picture is as bright as 80 × the step, its height grows by one in each."""

    def __init__(self, shows: str) -> None:
        self.shows = shows

    def reset(self, seed: int) -> EnvStepResult:
        self.t = 0
        return EnvStepResult(due=[(0, self.seen(), None)])

    def seen(self) -> Any:
        return np.full(1, self.t, np.float32)

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.t += 1
        if self.t == 3:
            return EnvStepResult(reward=[(0, 2.0)], gone=[(0, self.seen(), TERMINATED)], over=TERMINATED)
        return EnvStepResult(due=[(0, self.seen(), None)], reward=[(0, 2.0)])

    def render(self) -> Any:
        if self.shows == "text":
            return f"at {self.t}\n"
        if self.shows == "error":
            raise NotImplementedError("no screen")
        if self.shows == "grey":
            return np.zeros((4, 4), np.uint8)
        return np.full((31 + self.t, 48, 3), 80 * self.t, np.uint8)

    def close(self) -> None:
        return None


def clock(shows: str = "images", num_envs: int = 1) -> VectorEnv:
    agent = AgentSpec("hand", 0, Box(0, 3, (1,), np.float32), Discrete(2))
    spec = EnvSpec("tests/clock", (agent,), ((0, 6),), ((0,),))
    return PythonVectorEnv(lambda: Clock(shows), num_envs, spec=spec, masked=(False,))


def test_every_state_is_shown_the_last_of_each_episode_too() -> None:
    told: list[tuple[int, int]] = []
    film = record(clock(), [RANDOM], episodes=2, tell=lambda episode, step: told.append((episode, step)))
    assert [int(frame[0, 0, 0]) for frame in film.frames] == [0, 80, 160, 240] * 2
    assert film.returns.tolist() == [[6], [6]]
    assert film.length.tolist() == [3, 3]
    assert not film.cut
    assert film.text == ""
    assert told == [(episode, step) for episode in (0, 1) for step in range(4)]


def test_long_episodes_are_cut() -> None:
    film = record(clock(), [RANDOM], episodes=2, steps=2)
    assert [int(frame[0, 0, 0]) for frame in film.frames] == [0, 80, 160]
    assert film.cut == "cut after 2 steps"
    assert len(film.returns) == len(film.length) == 0


def test_films_that_would_not_fit_in_memory_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ludus.apps.episodes.recording.MOST_PIXELS", 48 * (31 + 32 + 33 + 34 + 31)
    )  # a whole episode and a reset
    film = record(clock(), [RANDOM], episodes=3)
    assert len(film.frames) == 5
    assert film.length.tolist() == [3]
    assert film.cut == "cut after 5 images, which are as many as one file is to have"


def test_pictures_are_kept_as_they_are() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 7, 3), np.uint8)
    kept = Pictures()
    for image in images[:, ::-1]:  # no contiguous array
        kept.append(image)
    assert len(kept) == 3
    assert kept.pixels == 3 * 35
    np.testing.assert_array_equal(np.stack(list(kept)), images[:, ::-1])
    np.testing.assert_array_equal(kept[-1], images[2, ::-1])
    kept[0][:] = 0
    np.testing.assert_array_equal(kept[:2], images[:2, ::-1])


def test_display_kind_is_checked_before_the_first_step() -> None:
    steps: list[int] = []

    def refuse(text: bool) -> None:
        raise ConfigError(f"text: {text}")

    for shows in ("images", "text"):
        with pytest.raises(ConfigError, match=f"text: {shows == 'text'}"):
            record(clock(shows), [RANDOM], tell=lambda episode, step: steps.append(step), shown=refuse)
    assert not steps


def test_text_is_kept_with_its_steps(tmp_path: Path) -> None:
    film = record(clock("text"), [RANDOM])
    assert not film.frames
    save(film, tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "\n".join(f"episode 0, step {t}\nat {t}\n" for t in range(4))
    with pytest.raises(ConfigError, match=r"given for text, .*; name a \.txt file"):
        save(film, tmp_path / "a.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_wrappers_change_what_policies_see_and_not_what_is_shown() -> None:
    stacked = [{"kind": "frame_stack", "k": 4}, {"kind": "flatten_observation"}]
    film = record(clock(), [RANDOM], wrappers=stacked)
    assert len(film.frames) == 4


@pytest.mark.parametrize(
    ("shows", "words"),
    [
        ("error", "tests/clock could not be rendered: NotImplementedError: no screen"),
        ("grey", r"tests/clock rendered uint8\[4, 4\]; an image uint8\[height, width, 3\] or text is needed"),
    ],
)
def test_unrenderable_games_are_rejected(shows: str, words: str) -> None:
    with pytest.raises(EnvError, match=words):
        record(clock(shows), [RANDOM])


def test_unrecordable_requests_are_rejected() -> None:
    with pytest.raises(EnvError, match="2 environments were given to be recorded"):
        record(clock(num_envs=2), [RANDOM])
    with pytest.raises(ScenarioError, match="episodes=0"):
        record(clock(), [RANDOM], episodes=0)
    env = make_env("openspiel/kuhn_poker", num_envs=1)
    assert not hasattr(env, "render")  # compiled
    env.spec = replace(env.spec, id="tests/no_openspiel")
    with pytest.raises(EnvError, match="tests/no_openspiel cannot be rendered; its vector has no `render`"):
        record(env, [RANDOM, RANDOM])


# ------------------------------------------------------------------------------------------ films


def test_a_film_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    film = record(clock(), [RANDOM], episodes=2)
    save(film, tmp_path / "a.mp4", fps=10)
    video = cv2.VideoCapture(str(tmp_path / "a.mp4"))
    frames = []
    while (read := video.read())[0]:
        frames.append(read[1])
    assert len(frames) == 8
    assert frames[0].shape == (34, 48, 3)  # the highest, 31 + 3
    assert video.get(cv2.CAP_PROP_FPS) == 10
    for k, frame in enumerate(frames):
        assert abs(int(frame[10, 10, 0]) - 80 * (k % 4)) < 10  # MP4 loses a little
        assert frame[33, 10, 0] < 10 or k % 4 == 3  # black below the smaller ones
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


def test_a_gif_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    save(record(clock(), [RANDOM]), tmp_path / "a.gif", fps=10)
    frames = imageio.imread(tmp_path / "a.gif")
    assert frames.shape == (4, 34, 48, 3)
    assert frames[:, 5, 5, 0].tolist() == [0, 80, 160, 240]
    assert imageio.immeta(tmp_path / "a.gif")["duration"] == 100


def test_colours_are_in_their_order(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    red = np.zeros((32, 32, 3), np.uint8)
    red[:, :, 0] = 250
    film = Recording((red, red), "", np.zeros((1, 1)), np.ones(1, np.int32))
    save(film, tmp_path / "red.mp4")
    blue, green, again = cv2.VideoCapture(str(tmp_path / "red.mp4")).read()[1][16, 16].tolist()
    assert again > 200
    assert max(blue, green) < 60


def test_nothing_half_written_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = record(clock(), [RANDOM])
    (tmp_path / "a.gif").write_text("old")

    def fails(frames: Any, path: Path, fps: int) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("ludus.apps.episodes.recording._WRITERS", {".gif": fails})
    with pytest.raises(OSError, match="disk full"):
        save(film, tmp_path / "a.gif")
    assert (tmp_path / "a.gif").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_names_and_packages_that_do_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = record(clock(), [RANDOM])
    (tmp_path / "d.gif").mkdir()
    with pytest.raises(ConfigError, match=r"d\.gif' was given, which is a folder"):
        save(film, tmp_path / "d.gif")
    with pytest.raises(ConfigError, match="there is no folder"):
        save(film, tmp_path / "e" / "a.gif")
    with monkeypatch.context() as changed:
        changed.setattr("os.access", lambda *_: False)
        with pytest.raises(ConfigError, match=r"a\.gif' cannot be written: nothing can be written into"):
            save(film, tmp_path / "a.gif")
    for fps in (0, 101):
        with pytest.raises(ConfigError, match=f"{fps} images a second were given; 1 to 100"):
            save(film, tmp_path / "a.gif", fps=fps)
    with pytest.raises(ConfigError, match=r"a name that ends in \.gif, \.mp4 or \.txt is needed"):
        save(film, tmp_path / "a.avi")
    with pytest.raises(ConfigError, match=r"given for images; name a \.gif or \.mp4 file"):
        save(film, tmp_path / "a.txt")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"a film needs PIL, .*`pip install 'ludus-rl\[video\]'`"):
        save(film, tmp_path / "a.GIF")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ConfigError, match=r"a film needs cv2, .*`pip install 'ludus-rl\[video\]'`"):
        save(film, tmp_path / "a.mp4")


# ------------------------------------------------------------------------------------------ OpenSpiel


@pytest.mark.parametrize("tree", ["on", "off"])
def test_games_of_openspiel_are_told_in_words(tree: str) -> None:
    film = record(make_env("openspiel/kuhn_poker", num_envs=1, tree=tree), [RANDOM, RANDOM], seed=3)  # type: ignore[arg-type]
    lines = film.text.splitlines()
    assert lines[0].startswith("kuhn_poker, seed ")
    assert sum(line.startswith("chance: Deal:") for line in lines) == 2
    assert sum(line.startswith("player ") for line in lines) == film.length[0]
    first, second = (f"{value:g}" for value in film.returns[0])
    assert lines[-1] == f"returns: player 0 {first}, player 1 {second}"


@pytest.mark.parametrize("tree", ["on", "off"])
def test_games_with_moves_at_once_are_told_too(tree: str) -> None:
    three = build_policy(PolicySpec("random", {"actions": 3}), {})
    env = make_env("openspiel/goofspiel(num_cards=3)", num_envs=1, tree=tree)  # type: ignore[arg-type]
    film = record(env, [three, three], episodes=2)
    assert film.text.count("returns: player 0") == 2
    for p in (0, 1):
        assert film.text.count(f"player {p}: ") >= 4


def test_a_mixture_needs_its_policies() -> None:
    from ludus.core.types import Mixture

    mixture = Mixture.product({0: ([PolicyRef(0, "a")], [1.0])})
    with pytest.raises(ScenarioError, match="without `policy`"):
        record(clock(), mixture)
    assert len(record(clock(), mixture, lambda ref: RANDOM).frames) == 4


# ------------------------------------------------------------------------------------------ how to make it show itself


class Painted:
    """What Gymnasium's own are made with."""

    metadata: ClassVar = {"render_modes": ["human", "rgb_array", "ansi"]}

    def __init__(self, size: int = 3, render_mode: str | None = None) -> None: ...

    def reset(self) -> None: ...

    def step(self) -> None: ...


class Written(Painted):
    metadata: ClassVar = {"render_modes": ["ansi"]}


class Blind:
    def __init__(self, size: int = 3) -> None: ...

    def reset(self) -> None: ...

    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("id", "options", "given"),
    [
        ("gymnasium/CartPole-v1", {}, {"render": True}),
        ("gymnasium/CartPole-v1", {"render": False}, {}),
        ("openspiel/kuhn_poker", {}, {}),
        ("test_recording:Painted", {}, {"render_mode": "rgb_array"}),
        ("test_recording:Painted", {"render_mode": "ansi"}, {}),
        ("test_recording:Written", {"size": 4}, {"render_mode": "ansi"}),
        ("test_recording:Blind", {}, {}),
    ],
)
def test_recording_uses_the_environment_of_the_run(id: str, options: dict[str, Any], given: dict[str, Any]) -> None:
    assert _rendering(Environment(id=id, num_envs=1, options=options)) == given
