"""A million corrupted inputs for all code that reads a peer's bytes. It may raise only our errors, must not take long,
and must not keep memory.

    .venv/bin/python -m tests.protocol.fuzzing --inputs 1000000 --seed 1

`frames` and `bodies` make inputs, `properties` checks them, `run` goes through them. Each input is made from the seed
and its own number alone, so that `--only` reproduces it.
"""
