"""Callbacks of your own: every training episode into a CSV file, and win rates per generation.

PYTHONPATH=examples ludus train kuhn algorithm=ppo 'callbacks=[own_callbacks:EpisodesToCsv, own_callbacks:WinRates]'
"""

from dataclasses import dataclass

import numpy as np

import ludus


@dataclass
class EpisodesToCsv(ludus.Callback):
    file: str = "episodes.csv"  # in the run's directory

    def on_run_start(self, info, *, generation):
        self.path = info.run_dir / self.file

    def on_episodes(self, task, episodes):
        mine = episodes.returns[np.arange(len(episodes.seat)), episodes.seat]
        with self.path.open("a") as file:
            np.savetxt(file, np.column_stack([episodes.index, episodes.length, mine]), fmt=f"{task.id},%d,%d,%g")


@dataclass
class WinRates(ludus.Callback):
    def on_run_start(self, info, *, generation):
        self.won = {}

    def on_episodes(self, task, episodes):
        mine = episodes.returns[np.arange(len(episodes.seat)), episodes.seat]
        self.won.setdefault(task.policy, []).append((np.sum(mine > 0), len(mine)))

    def on_generation(self, record):
        for policy, counts in self.won.items():
            won, played = np.sum(counts, axis=0)
            print(f"generation {record.number}: {policy} has won {won / played:.0%} of {played} training episodes")
        self.won = {}
