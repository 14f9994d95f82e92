"""Keeps the change stream of Routebook in a lake, and answers questions about the fleet's history with Spark."""
