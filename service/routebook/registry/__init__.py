"""The verbs both ports call: what can be asked of the route table, and what can be done to it."""
