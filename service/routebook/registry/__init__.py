"""The verbs of the route table: everything that the two ports can ask for."""
