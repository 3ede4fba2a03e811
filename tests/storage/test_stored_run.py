"""What a stored run says of its policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import synthetic_run as synthetic

from ludus.core.types import PolicyRef, PolicySpec
from ludus.metagame.population.base import Lineage, PolicyRecord
from ludus.storage.store import Store
from ludus.storage.stored_run import StoredRun


def test_the_best_policy_by_hand(tmp_path: Path) -> None:
    """Against (1/2, 1/2, 0) the rows earn 1/2, 1 and 1: of equals the one that is played more. Against (0.2, 0.7, 0.1) the columns earn
    -1.5, -0.3 and 0.1."""
    payoff = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    solved = replace(synthetic.generation(0, (3, 3), nash_conv=None), marginals=((0.2, 0.7, 0.1), (0.5, 0.5, 0.0)))
    with Store.create(tmp_path, synthetic.info(tmp_path)) as store:
        for player in (0, 1):
            for place in range(3):
                store.policy_added(synthetic.policy(player, place))
        store.generation_done(solved)
        store.commit("g0")
        assert StoredRun(tmp_path).best == {0: PolicyRef(0, "p2"), 1: PolicyRef(1, "p2")}, "no payoffs: the newest"
        cells = np.argwhere(payoff > -2)
        store.payoffs_recorded(cells, np.stack([payoff[tuple(cells.T)], -payoff[tuple(cells.T)]], axis=1))
        store.commit("g1")
    assert StoredRun(tmp_path).best == {0: PolicyRef(0, "p1"), 1: PolicyRef(1, "p2")}


def test_the_best_was_trained_and_the_strongest_may_be_a_bot(tmp_path: Path) -> None:
    """One population of random play, a bot that wins 3 of everybody, a policy from elsewhere that wins 2 of the trained ones, and two
    trained ones, of which the second wins 1 of the first. The meta-strategy plays the first trained one."""
    strength = np.array([0.0, 9.0, 6.0, 1.0, 2.0])
    mean = strength[:, None] - strength[None, :]
    kinds = (
        ("0-0", "random", ""),
        ("bot.b", "bot", ""),
        ("other.3-1", "actor_critic", ""),
        ("0-1", "actor_critic", "t1"),
    )
    members = [
        PolicyRecord(PolicyRef(0, name), k, PolicySpec(kind, {}), Lineage(task))
        for k, (name, kind, task) in enumerate([*kinds, ("0-2", "actor_critic", "t2")])
    ]
    solved = replace(synthetic.generation(0, (5, 5), nash_conv=None), marginals=((0.0, 0.0, 0.0, 1.0, 0.0),) * 2)
    with Store.create(tmp_path, synthetic.info(tmp_path, population=(0, 0))) as store:
        for record in members[:3]:
            store.policy_added(record)
        early = replace(solved, marginals=((0.0, 1.0, 0.0),) * 2)
        store.generation_done(early)
        store.commit("g0")
        assert StoredRun(tmp_path).best == {0: PolicyRef(0, "other.3-1")}, (
            "nobody was trained: all count, the newest of them"
        )
        for record in members[3:]:
            store.policy_added(record)
        store.generation_done(replace(solved, number=1))
        cells = np.argwhere(np.ones((5, 5)))
        store.payoffs_recorded(cells, np.stack([mean[tuple(cells.T)], -mean[tuple(cells.T)]], axis=1))
        store.commit("g1")
        assert StoredRun(tmp_path).best == {0: PolicyRef(0, "0-2")}
        assert StoredRun(tmp_path).strongest == {0: PolicyRef(0, "bot.b")}, "without ratings, who earns most"
        store.ratings_recorded(0, {"0-0": -80.0, "bot.b": 40.0, "other.3-1": 41.0, "0-1": float("nan")})
        store.commit("g2")
    assert StoredRun(tmp_path).strongest == {0: PolicyRef(0, "other.3-1")}
    assert StoredRun(tmp_path).best == {0: PolicyRef(0, "0-2")}
