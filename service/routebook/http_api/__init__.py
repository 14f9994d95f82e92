"""The HTTP port: reads its input, calls one verb of the registry, shapes the response. It never accesses the store."""
