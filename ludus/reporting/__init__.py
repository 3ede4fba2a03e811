"""What a run reports: progress, curves, TensorBoard."""
