"""The rules that schedulers take, by name."""

from __future__ import annotations

RESPONSES = {
    "best": "ludus.schedulers.responses:BestResponse",
    "preference": "ludus.schedulers.responses:PreferenceResponse",
    "recommended": "ludus.schedulers.responses:RecommendedResponse",
    "rectified": "ludus.schedulers.responses:RectifiedResponse",
    "sequential_league": "ludus.schedulers.responses:SequentialLeague",
}
"""Which responses PSRO trains, by name -> `module:Class`; each class's fields are its options."""

DIVERSITIES = {
    "behavioural": "ludus.schedulers.diversity:BehaviouralDiversity",
    "response": "ludus.schedulers.diversity:ResponseDiversity",
}
"""How responses are made to differ from the members, by name -> `module:Class`; each class's fields are its options."""

PASTS = {
    "prioritised": "ludus.schedulers.self_play:PrioritisedPast",
    "quality": "ludus.schedulers.self_play:QualityPast",
    "uniform": "ludus.schedulers.self_play:UniformPast",
}
"""Which of the past self-play meets, by name -> `module:Class`; each class's fields are its options."""

LEAGUE_RULES = {"alphastar": "ludus.schedulers.league:LeagueRules"}
"""Whom the players of a league meet, by name -> `module:Class`; each class's fields are its options."""

TUNING_RULES = {"truncation": "ludus.schedulers.pbt:TuningRules"}
"""Which learners of population based training copy which, by name -> `module:Class`; each class's fields are its options."""
