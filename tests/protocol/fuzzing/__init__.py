"""A million spoiled inputs for whatever reads a peer's bytes: only our errors are raised, nothing stalls or grows.

    .venv/bin/python -m tests.protocol.fuzzing --inputs 1000000 --seed 1

`frames` and `bodies` make inputs, `properties` says what has to hold for each, `run` goes through them. Each input has
a number and is made from that and the seed alone: `--only` makes one again.
"""
