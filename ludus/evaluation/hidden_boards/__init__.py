"""Best responses on hidden boards (`ludus.envs.hidden_boards`), exact, without the game's tree."""
