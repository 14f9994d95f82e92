"""What runs beside requests: leader, history upkeep, presence, restoring, the logs of changes and key-values."""
