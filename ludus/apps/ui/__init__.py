"""What people look at: progress, report, TensorBoard."""
