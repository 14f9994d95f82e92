"""What runs beside requests: presence, leader, restoring, history upkeep, the change log."""
