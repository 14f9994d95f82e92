"""Connections as they come, for both ports: accepting within bounds, PROXY headers, TLS on the same port."""
