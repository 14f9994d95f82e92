"""Compares two name servers. `collecting` reads everything that one server reports; `differences` compares two such
states, twice, because fleets change in the meantime.
"""
