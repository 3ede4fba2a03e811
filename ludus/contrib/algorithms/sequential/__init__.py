"""Teams that learn agent by agent, or by what becomes of each other's policies: HAPPO, HATRPO, A2PO, CoPPO."""
