"""Sends the same random requests to Apache's name server and to Routebook, and compares every answer.

No frame is built or read with the product's code, so that a fault there cannot hide itself.
"""
