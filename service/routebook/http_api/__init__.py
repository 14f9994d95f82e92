"""The HTTP port: reads its input, calls one verb of the registry, shapes the answer. Knows no Redis."""
