"""A simulated fleet: brokers and clients that connect to real name servers, go through every kind of trouble, and
record what they did.
"""
