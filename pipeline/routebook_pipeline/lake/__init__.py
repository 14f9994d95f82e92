"""Delta tables: what is kept, how it gets there exactly once, and how it is read."""
