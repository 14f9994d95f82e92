"""The twelve questions, a module each: data frames in, data frames out. Neither the store nor the lake is known
here.

Each rule has one home, and the questions are built from these: `points` (what is the last row of each key at an
instant), `marks` (holes and baselines, which concern everybody), `states` and `intervals` (seats), `queues` and
`groups` (the route table), `sweep` (how long did something hold). What the words mean, and what was chosen where the
specification leaves it open: docs/decisions/0029-pipeline-definitions.md.
"""
