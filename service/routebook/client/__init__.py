"""Asking other name servers, and telling brokers something: the remoting protocol from the caller's side."""
