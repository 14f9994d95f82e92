"""Checks the TLA+ model in `docs/model` with TLC, and that it finds missing protections."""
