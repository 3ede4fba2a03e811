"""`bot:even`: as many soldiers to each field."""

from ludus_blotto.game import allocations


class Even:
    def __init__(self, soldiers: int = 6) -> None:
        self._action = allocations(soldiers).index((soldiers // 3,) * 3)

    def restart(self, player, seed):
        """An episode begins."""

    def act(self, observation, mask):
        return self._action
