"""What Ludus knows of the environments `blotto/…` before it makes one. It loads no more than this."""

from ludus.envs.families import Family

FAMILY = Family("ludus_blotto.game", "Colonel Blotto: soldiers on three fields", "blotto/six", quick=True, python=True)
