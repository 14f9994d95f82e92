"""The verbs both ports call: what can be asked of the book, and what can be done to it."""
