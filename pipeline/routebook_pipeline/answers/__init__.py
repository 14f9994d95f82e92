"""From a question to its answer: the history it needs from the lake, the rows, and what they rest on."""
