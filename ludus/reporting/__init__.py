"""What a run reports: curves, TensorBoard."""
