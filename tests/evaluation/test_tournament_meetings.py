"""Who meets whom, and what is still to be played."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.errors import ConfigError
from ludus.tournament.meetings import Chunk, Pairing, episode_seeds, list_pairings, missing_chunks, split_chunk

TWO = ((0,), (1,))


def everywhere(names: str, players: int = 2) -> dict[str, list[bool]]:
    return {name: [True] * players for name in names}


def test_two_players_meet_in_both_seats() -> None:
    found = list_pairings(everywhere("ba"), TWO)
    assert found == [Pairing(("a", "b"), (("a", "b"), ("b", "a")))]
    assert found[0].id == '["a", "b"]'
    assert len(list_pairings(everywhere("abcd"), TWO)) == 6


def test_entrants_of_one_camp_do_not_meet() -> None:
    found = list_pairings(everywhere("abcd"), TWO, {"a": 0, "b": 1, "c": 0, "d": 1})
    assert ["".join(meeting.entrants) for meeting in found] == ["ab", "ad", "bc", "cd"]
    assert len(list_pairings(everywhere("ab"), TWO, {"a": 0, "b": 0})) == 1, "one camp alone keeps nobody apart"


def test_interchangeable_players_meet_once() -> None:
    assert list_pairings(everywhere("ba"), ((0, 1),))[0].seatings == (("a", "b"),)
    (three,) = list_pairings(everywhere("abc", 3), ((0, 2), (1,)))
    assert three.seatings == (("a", "b", "c"), ("a", "c", "b"), ("b", "a", "c"))


def test_three_players_sit_in_every_order() -> None:
    found = list_pairings(everywhere("abcd", 3), ((0,), (1,), (2,)))
    assert [meeting.entrants for meeting in found] == [tuple("abc"), tuple("abd"), tuple("acd"), tuple("bcd")]
    assert set(found[0].seatings) == set(permutations("abc"))


def test_fewer_entrants_than_players_share_the_seats() -> None:
    (found,) = list_pairings(everywhere("ab", 3), ((0,), (1,), (2,)))
    assert sorted("".join(order) for order in found.seatings) == ["aab", "aba", "abb", "baa", "bab", "bba"]


def test_who_does_not_play_interchangeable_seats_alike_has_both() -> None:
    """Whose policies differ, or who plays one of them alone."""
    sends = {"a": ["paper", "rock"], "b": ["scissors"] * 2, "c": ["scissors"] * 2}
    found = list_pairings(everywhere("abc"), ((0, 1),), sends=sends)
    assert [meeting.seatings for meeting in found] == [
        (("a", "b"), ("b", "a")),
        (("a", "c"), ("c", "a")),
        (("b", "c"),),
    ]
    able = {"z": [True, False], "a": [False, True], "b": [True, True]}
    found = {"".join(meeting.entrants): meeting.seatings for meeting in list_pairings(able, ((0, 1),))}
    assert found == {"az": (("z", "a"),), "ab": (("b", "a"),), "bz": (("z", "b"),)}


def test_many_players_have_each_seat_and_each_neighbour_equally_often() -> None:
    (found,) = list_pairings(everywhere("abcde", 5), tuple((p,) for p in range(5)))
    assert ["".join(order) for order in found.seatings][:3] == ["abecd", "bcade", "cdbea"]
    for players, seats in ((5, 2), (6, 1), (7, 2)):
        (found,) = list_pairings(everywhere("abcdefg"[:players], players), ())
        assert set(Counter((p, name) for order in found.seatings for p, name in enumerate(order)).values()) == {seats}
        behind = Counter(pair for order in found.seatings for pair in pairwise(order))
        assert len(behind) == players * (players - 1)
        assert set(behind.values()) == {seats}
    (few,) = list_pairings(everywhere("ab", 5), tuple((p,) for p in range(5)))
    assert ["".join(order) for order in few.seatings] == ["ababa", "babab"]


def test_one_player_plays_alone() -> None:
    assert [m.seatings for m in list_pairings(everywhere("ab", 1), ((0,),))] == [(("a",),), (("b",),)]


def test_who_cannot_play_a_seat_does_not() -> None:
    able = {"a": [True, True], "first": [True, False], "second": [False, True]}
    found = {meeting.entrants: meeting.seatings for meeting in list_pairings(able, TWO)}
    assert found == {
        ("a", "first"): (("first", "a"),),
        ("a", "second"): (("a", "second"),),
        ("first", "second"): (("first", "second"),),
    }
    with pytest.raises(ConfigError, match="'x' can meet none of the others: it plays as player 0 only"):
        list_pairings({"x": [True, False], "y": [True, False]}, TWO)
    with pytest.raises(ConfigError, match="only 'a' was given; a tournament needs two"):
        list_pairings(everywhere("a"), TWO)


def test_who_plays_one_seat_of_many_meets_the_others() -> None:
    """No rotation has everybody in its seat: what matters is not the order of the names."""
    seats = {"a": 1, "b": 0, "c": 4, "d": 2, "e": 3}
    alone = {name: [p == seat for p in range(5)] for name, seat in seats.items()}
    assert [meeting.seatings for meeting in list_pairings(alone, ())] == [(("b", "a", "d", "e", "c"),)]
    (few,) = list_pairings({"a": [True, *[False] * 4], "b": [False, *[True] * 4]}, ())
    assert few.seatings == (("a", "b", "b", "b", "b"),)
    able = {"a": [True, *[False] * 4], "b": [False, False, True, False, False], **everywhere("cdefg", 5)}
    found = list_pairings(able, ())
    assert len(found) == 21
    (both, *_) = [meeting for meeting in found if {"a", "b"} <= {*meeting.entrants}]
    assert all(order[0] == "a" and order[2] == "b" for order in both.seatings)
    assert [{order[p] for order in both.seatings} for p in (1, 3, 4)] == [set("cde")] * 3
    with pytest.raises(ConfigError, match="can meet none of the others"):
        list_pairings({name: [p != 4 for p in range(5)] for name in "abcde"}, ())


MEETING = Pairing(("a", "b"), (("a", "b"), ("b", "a")))


def test_missing_deals_by_hand() -> None:
    assert missing_chunks(MEETING, [], 100) == [Chunk(MEETING, 0, 100)]
    assert missing_chunks(MEETING, [(0, 100)], 100) == []
    assert missing_chunks(MEETING, [(0, 40)], 100) == [Chunk(MEETING, 40, 60)]
    assert missing_chunks(MEETING, [(60, 10), (10, 20)], 100) == [
        Chunk(MEETING, 0, 10),
        Chunk(MEETING, 30, 30),
        Chunk(MEETING, 70, 30),
    ]
    assert missing_chunks(MEETING, [(0, 200)], 100) == []
    assert missing_chunks(MEETING, [(90, 20)], 50) == [Chunk(MEETING, 0, 50)]


@given(st.lists(st.integers(1, 9), max_size=8), st.lists(st.booleans(), min_size=8, max_size=8), st.integers(1, 80))
def test_stored_and_missing_deals_are_all_deals_once(sizes: list[int], kept: list[bool], deals: int) -> None:
    ends = np.cumsum([0, *sizes])
    stored = [(int(ends[k]), n) for k, n in enumerate(sizes) if kept[k]]
    covered = np.zeros(200, int)
    for first, n in stored:
        covered[first : first + n] += 1
    for piece in missing_chunks(MEETING, stored, deals):
        for part in split_chunk(piece, 6):
            assert part.episodes <= 6
            covered[part.first : part.first + part.n] += 1
    assert (covered[:deals] == 1).all()
    assert covered.max(initial=0) <= 1


def test_a_deal_has_its_luck_whatever_it_is_played_with() -> None:
    whole = episode_seeds(Chunk(MEETING, 0, 50), 3)
    np.testing.assert_array_equal(episode_seeds(Chunk(MEETING, 20, 10), 3), whole[20:30])
    assert len(set(whole.tolist())) == 50
    other = Pairing(("a", "c"), (("a", "c"), ("c", "a")))
    assert not set(whole.tolist()) & set(episode_seeds(Chunk(other, 0, 50), 3).tolist())
    assert not set(whole.tolist()) & set(episode_seeds(Chunk(MEETING, 0, 50), 4).tolist())
