"""The thirteen questions: data frames in, data frames out. Nothing here knows the store or the lake.

Each rule is implemented once, in one of these modules, and the questions use it: `instants` (the last row of each key
at an instant), `losses` (holes, forks and baselines, which affect every seat and queue), `seat_states` (the state of
each seat over time), `route_table` (queues and groups), `frames` (how long something held). The terms, and the choices
made where the specification leaves something open, are in docs/decisions/0029-pipeline-definitions.md.
"""
