"""Properties that hold for every history, tested with random ones."""
