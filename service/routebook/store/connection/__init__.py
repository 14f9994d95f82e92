"""Connections to the store: addresses, sockets, deadlines, failover."""
