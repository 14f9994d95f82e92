"""Logs and metrics: what people and programs see of a running worker."""
