"""MAT and MAT-Dec: a transformer over the agents of a team, trained by PPO's clipped loss."""
