"""What holds for every history, not for one example."""
