"""The parts of the compiled game tree; `ludus.envs.game_tree` puts them together."""
