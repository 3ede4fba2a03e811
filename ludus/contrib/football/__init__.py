"""Google Research Football: scenarios, the engine, what sides see, earn and did, pictures."""
