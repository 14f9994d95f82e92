"""Plain values and pure rules: what a broker, a topic and a route are. Knows neither asyncio nor Redis."""
