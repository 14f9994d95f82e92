"""Compares two name servers. `collecting` reads everything that one server reports, `differences` compares two such
states, and `comparison` does both, twice, because fleets change in the meantime.
"""
