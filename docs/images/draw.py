"""Draws the pictures of docs/concepts as SVG beside this file: `python docs/images/draw.py`.

They have no scripts and no fonts of their own, and are readable from 400 pixels on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
INK, LINE, PAPER = "#1f2933", "#5b6b7b", "#ffffff"
CONTROL, DATA, STORE, GAME = "#dbe7f6", "#fdebd3", "#e3e6ea", "#dcefdc"
"""Fill of what decides, of what plays and learns, of what keeps, and of what is computed of the game."""
Point = tuple[float, float]


class Picture:
    """An SVG under construction; coordinates in pixels, y downwards."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(label)}" font-family="Roboto, Helvetica, Arial, sans-serif" font-size="15">',
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, fill: str, title: str, *lines: str) -> None:
        """Draw a box with a bold title and lines below it."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE}"/>'
        )
        top = y + height / 2 - 9.5 * len(lines) + 5
        self.text((x + width / 2, top), title, bold=True)
        for k, line in enumerate(lines, 1):
            self.text((x + width / 2, top + 19 * k), line, size=14)

    def frame(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """Draw a dashed frame with a title in its upper left corner."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="none" stroke="{LINE}" stroke-dasharray="6 4"/>'
        )
        self.text((x + 12, y + 20), title, size=14, bold=True, anchor="start")

    def arrow(
        self, *points: Point, text: str = "", at: Point | None = None, anchor: str = "middle", dashed: bool = False
    ) -> None:
        """Draw a line through points with a head at its end, and a text at `at`."""
        path = "L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(
            f'<path d="M{path}" fill="none" stroke="{LINE}" stroke-width="1.8"{dash} marker-end="url(#head)"/>'
        )
        for k, line in enumerate(text.split("\n") if at else ()):
            self.text((at[0], at[1] + 17 * k), line, size=14, anchor=anchor) if at else None

    def line(self, start: Point, end: Point, *, width: float = 1.0, dashed: bool = False, colour: str = LINE) -> None:
        """Draw a plain line."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="M{start[0]} {start[1]}L{end[0]} {end[1]}" stroke="{colour}" stroke-width="{width}"{dash}/>'
        )

    def rect(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Draw a plain rectangle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{PAPER}"/>')

    def text(
        self, at: Point, text: str, *, size: int = 15, bold: bool = False, anchor: str = "middle", fill: str = INK
    ) -> None:
        """Draw a line of text with its base line at `at`."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{at[0]}" y="{at[1]}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}>{escape(text)}</text>'
        )

    def svg(self) -> str:
        """Return the finished picture."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def run_flow() -> Picture:
    """Return the flow of a run, from scenario to meta-solver."""
    picture = Picture(
        620,
        560,
        "The flow of a run: scenario, scheduler, tasks, rollout, replay, learner, population, payoffs, meta-solver",
    )
    picture.box(200, 16, 200, 60, CONTROL, "Scenario", "game, algorithm, limits")
    picture.box(215, 130, 170, 64, CONTROL, "Scheduler", "which task is next")
    picture.box(16, 130, 160, 64, CONTROL, "Meta-solver", "solves the meta-game")
    picture.box(16, 250, 160, 64, STORE, "Payoffs", "match log, table")
    picture.box(16, 370, 160, 64, GAME, "Evaluation", "matches, or exact")
    picture.box(424, 130, 150, 64, DATA, "Rollout", "learner plays")
    picture.box(424, 250, 150, 64, DATA, "Replay", "tables of rows")
    picture.box(424, 370, 150, 64, DATA, "Learner", "loss, update")
    picture.box(200, 480, 200, 64, STORE, "Populations", "frozen policies")
    picture.arrow((300, 76), (300, 130))
    picture.arrow((176, 162), (215, 162))
    picture.text((196, 116), "meta-strategy", size=14)
    picture.arrow((385, 162), (424, 162))
    picture.text((405, 116), "training task", size=14)
    picture.arrow((499, 194), (499, 250), text="trajectories", at=(489, 227), anchor="end")
    picture.arrow((499, 314), (499, 370), text="batches", at=(489, 347), anchor="end")
    picture.arrow((574, 402), (590, 402), (590, 162), (574, 162))
    picture.parts.append(
        f'<text transform="translate(606 282) rotate(-90)" font-size="14" text-anchor="middle" fill="{INK}">versions of weights</text>'
    )
    picture.arrow((499, 434), (499, 512), (400, 512), text="best response", at=(505, 532), anchor="middle")
    picture.arrow((200, 512), (96, 512), (96, 434), text="profiles", at=(104, 532), anchor="middle")
    picture.arrow((96, 370), (96, 314), text="returns", at=(106, 347), anchor="start")
    picture.arrow((96, 250), (96, 194))
    picture.arrow((240, 194), (240, 402), (176, 402), text="evaluation\ntask", at=(250, 372), anchor="start")
    picture.arrow((350, 480), (350, 194), text="opponents", at=(342, 270), anchor="end")
    return picture


def psro_loop() -> Picture:
    """Return a generation of PSRO."""
    picture = Picture(600, 470, "A generation of PSRO: payoffs, meta-strategy, best response, a new row and column")
    values = [[0.0, 0.6, -0.4, -0.5], [-0.6, 0.0, 0.7, 0.6], [0.4, -0.7, 0.0, -0.1], [0.5, -0.6, 0.1, 0.0]]
    picture.text((125, 32), "1. Payoffs", bold=True)
    for row, payoffs in enumerate(values):
        for column, value in enumerate(payoffs):
            shade = (
                "#f3f4f6"
                if value == 0
                else f"rgba({'33,102,172' if value > 0 else '178,24,43'},{0.15 + abs(value):.2f})"
            )
            picture.rect(45 + 40 * column, 46 + 40 * row, 40, 40, shade)
    for x, y, width, height in ((45, 166, 160, 40), (165, 46, 40, 160)):
        picture.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" stroke="{INK}" stroke-width="2"/>'
        )
    picture.text((125, 230), "new row and column:", size=14)
    picture.text((125, 248), "played, or computed", size=14)
    picture.text((470, 32), "2. Meta-strategy", bold=True)
    for k, share in enumerate((0.353, 0.294, 0.0, 0.353)):
        picture.rect(385 + 45 * k, 206 - 300 * share, 36, max(300 * share, 2), "#4b82c3")
        picture.text((403 + 45 * k, 224), f"π{k}", size=14)
    picture.text((470, 248), "equilibrium of the meta-game", size=14)
    picture.arrow((225, 126), (365, 126), text="meta-solver", at=(295, 116))
    picture.arrow((470, 260), (470, 330))
    picture.box(370, 330, 200, 64, DATA, "3. Best response", "one for each population")
    picture.box(30, 330, 200, 64, STORE, "4. New member π4", "frozen, in the population")
    picture.arrow((370, 362), (230, 362), text="training", at=(300, 352))
    picture.arrow((125, 330), (125, 260))
    picture.text((300, 428), "Exploitability of the meta-strategy in the whole game: how much the best", size=14)
    picture.text((300, 447), "responses gain. It falls to 0 at an equilibrium.", size=14)
    return picture


def rows() -> Picture:
    """Return the way of a decision from an environment to the weights."""
    picture = Picture(600, 600, "The way of rows: timestep, trajectories, items, table, batch, weights")
    steps = (
        (DATA, "Timestep", "decisions that are due now, of all environments", "VectorEnv.step"),
        (DATA, "Trajectories", "segments: one agent's decisions, one bootstrap", "RolloutWorker"),
        (DATA, "Items", "rows with advantages or n-step targets", "Learner.items"),
        (STORE, "Table", "sampler, remover, rate limiter", "EpisodeServer"),
        (DATA, "Batch", "tensors on the learner's device", "Learner.batches"),
        (DATA, "Weights", "one more version, for workers and opponents", "Learner.update"),
    )
    for k, (fill, title, text, where) in enumerate(steps):
        y = 16 + 96 * k
        picture.box(24, y, 390, 60, fill, title, text)
        picture.text((428, y + 35), where, size=14, anchor="start", fill=LINE)
        if k:
            picture.arrow((219, y - 36), (219, y))
    picture.arrow((414, 540), (584, 540), (584, 142), (560, 142), dashed=True)
    picture.text((578, 585), "next rollout plays this version", size=14, anchor="end", fill=LINE)
    return picture


def run_on_disk() -> Picture:
    """Return the life of a run on disk: barriers, a kill, a resume."""
    picture = Picture(
        600,
        330,
        "The life of a run on disk: rows wait, barriers make them durable, a kill loses what came after the last barrier",
    )
    lanes = (("rows", 70), ("policy files", 120), ("checkpoint", 170), ("database", 220))
    for title, y in lanes:
        picture.text((104, y + 5), title, size=14, anchor="end")
        picture.line((114, y), (586, y), colour="#c7ced6")
    picture.text((500, 35), "time", size=14, fill=LINE)
    picture.arrow((522, 30), (582, 30))
    for k, x in enumerate((230, 346), 1):
        picture.line((x, 44), (x, 240), width=2)
        picture.text((x, 40), f"barrier {k}", size=14, bold=True)
        picture.rect(x - 8, 112, 16, 16, "#4b82c3")
        picture.rect(x - 8, 162, 16, 16, "#d08b2f")
        picture.rect(x - 8, 212, 16, 16, "#4f9d5d")
    for start, end in ((118, 228), (234, 344), (350, 430)):
        picture.line((start, 70), (end, 70), width=7, colour="#9fb3c8")
    picture.line((430, 54), (446, 86), width=3, colour="#b2182b")
    picture.line((446, 54), (430, 86), width=3, colour="#b2182b")
    picture.text((454, 75), "kill", size=14, anchor="start", fill="#b2182b", bold=True)
    picture.arrow(
        (438, 100),
        (438, 262),
        (350, 262),
        (350, 244),
        dashed=True,
        text="ludus resume: back to barrier 2",
        at=(394, 284),
    )
    picture.text((300, 314), "Flushed files, then the renamed checkpoint, then one commit that names both.", size=14)
    return picture


def architecture() -> Picture:
    """Return the components of a run, with their packages."""
    picture = Picture(
        640,
        622,
        "Components: driver, scheduler, task runner, agent manager, training, evaluation, rollouts, replay, learner",
    )
    picture.frame(16, 12, 608, 186, "Driver (runs/)")
    picture.box(36, 56, 150, 48, CONTROL, "Scheduler", "schedulers/")
    picture.box(246, 56, 140, 48, CONTROL, "TaskRunner", "runs/")
    picture.box(450, 56, 154, 48, STORE, "AgentManager", "metagame/")
    picture.box(36, 140, 150, 46, CONTROL, "Meta-solver", "metagame/")
    picture.box(450, 140, 154, 46, STORE, "Store", "storage/")
    picture.arrow((186, 80), (246, 80), text="tasks", at=(216, 73))
    picture.arrow((386, 80), (450, 80), text="results", at=(418, 73))
    picture.arrow((500, 56), (500, 40), (111, 40), (111, 56), text="view: populations, payoffs", at=(322, 34))
    picture.arrow((111, 104), (111, 140))
    picture.arrow((527, 104), (527, 140), text="rows", at=(535, 127), anchor="start")
    picture.box(36, 240, 180, 48, DATA, "Training", "training/")
    picture.box(246, 240, 160, 48, GAME, "ExactEvaluator", "evaluation/")
    picture.box(450, 240, 154, 48, GAME, "MatchRunner", "evaluation/")
    picture.arrow((300, 104), (300, 222), (126, 222), (126, 240))
    picture.arrow((316, 104), (316, 240))
    picture.arrow((332, 104), (332, 222), (527, 222), (527, 240))
    picture.text((220, 216), "training task", size=14)
    picture.text((430, 216), "evaluation task", size=14)
    picture.box(36, 334, 568, 46, DATA, "Rollouts", "rollout/: LocalRollouts here, or RolloutManager through a runtime")
    picture.arrow((126, 288), (126, 334), text="what to play", at=(136, 316), anchor="start")
    picture.arrow((527, 288), (527, 334), text="matches", at=(517, 316), anchor="end")
    picture.frame(256, 420, 348, 140, "RolloutHost: this process, or others")
    picture.box(276, 452, 308, 40, DATA, "RolloutWorker")
    picture.box(276, 510, 146, 44, GAME, "VectorEnv", "envs/")
    picture.box(438, 510, 146, 44, DATA, "PolicyBank", "rollout/inference/")
    picture.arrow((430, 380), (430, 420))
    picture.box(36, 420, 170, 44, DATA, "Trainer", "training/")
    picture.box(36, 490, 170, 44, STORE, "Table", "replay/")
    picture.box(36, 560, 170, 44, DATA, "Learner", "algorithms/")
    picture.arrow((256, 442), (206, 442))
    picture.text((232, 410), "trajectories", size=14)
    picture.arrow((121, 464), (121, 490), text="items", at=(131, 482), anchor="start")
    picture.arrow((121, 534), (121, 560), text="batches", at=(131, 552), anchor="start")
    picture.arrow((206, 588), (511, 588), (511, 554), text="versioned weights", at=(400, 608))
    return picture


PICTURES = {
    "architecture": architecture,
    "run-flow": run_flow,
    "psro-loop": psro_loop,
    "rows": rows,
    "run-on-disk": run_on_disk,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write every picture."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(picture().svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
