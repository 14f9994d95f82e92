"""Deterministic simulation: several workers, brokers and clients in one thread, in virtual time, decided by a seed.

`make simulate-faults` runs it; docs/simulation.md explains it.
"""
