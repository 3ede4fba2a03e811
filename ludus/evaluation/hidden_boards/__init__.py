"""Best responses on hidden boards (`ludus.envs.sweep_rules`), exact, without the game's tree."""
