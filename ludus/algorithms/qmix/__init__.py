"""Value decomposition: VDN and QMIX."""

from ludus.algorithms.qmix.config import QMIX, VDN

__all__ = ["QMIX", "VDN"]
