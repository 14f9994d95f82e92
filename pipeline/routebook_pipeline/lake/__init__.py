"""The lake: Delta tables with the history, how each change gets into them exactly once, and how they are read."""
