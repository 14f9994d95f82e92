"""The route table in a worker's memory: reads are answered from it, and it follows the store's history."""
