"""What a run's progress record is made of."""

from __future__ import annotations

import math

from ludus.driver.driver import History


def test_a_gain_is_what_the_best_of_the_responses_earns_above_the_value_before() -> None:
    history = History.of(2)
    history.generation(0, values=[0.5, -0.5], nash_conv=None)
    assert history.gains == []
    for seat, earned in ((0, 0.25), (0, 1.5), (0, math.nan), (0, -1.0), (1, -0.25)):  # several of the first player
        history.response(seat, earned)
    assert history.responses == [1.5, -0.25]
    history.generation(1, values=[0.75, -0.75], nash_conv=0.1)
    assert history.gains == [1.0]
    history.response(1, -0.5)
    history.generation(2, values=[0.0, 0.0], nash_conv=0.05)
    assert history.gains == [1.0, 0.25]  # of the one that responded
    history.generation(3, values=[0.0, 0.0], nash_conv=0.05)
    assert math.isnan(history.gains[-1])
    assert history.nash_conv == [0.1, 0.05, 0.05]
