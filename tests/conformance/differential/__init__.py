"""The same random requests to Apache's name server and to Routebook, every answer compared.

Nothing here builds or reads a frame with the product's code: an error must not agree with itself.
"""
