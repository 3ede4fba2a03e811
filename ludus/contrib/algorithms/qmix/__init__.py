"""Value decomposition: VDN and QMIX."""
