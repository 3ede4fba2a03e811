"""Many runs of one experiment, and sweeps over settings."""
