"""Builds everything, and knows the order of start and stop."""
