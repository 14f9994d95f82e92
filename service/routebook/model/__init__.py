"""Plain values and pure rules about brokers, topics and names. Imports neither asyncio nor Redis."""
