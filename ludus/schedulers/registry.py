"""Schedulers by the scenario that uses them."""

SCHEDULERS = {"psro": "ludus.schedulers.psro:PSROScheduler"}

RESPONSES = {
    "best": "ludus.schedulers.responses:BestResponse",
    "preference": "ludus.schedulers.responses:PreferenceResponse",
    "recommended": "ludus.schedulers.responses:RecommendedResponse",
    "rectified": "ludus.schedulers.responses:RectifiedResponse",
}
"""Which responses PSRO trains, by name -> `module:Class`; each class's fields are its options."""
