"""A question, from the lake to its rows and what they rest on."""
