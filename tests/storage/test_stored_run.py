"""What a stored run says of its policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import synthetic_run as synthetic

from ludus.core.types import PolicyRef
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
