"""Multi-agent deep deterministic policy gradient."""
