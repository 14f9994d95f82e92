"""Pipes for tests of what programs do when the other end is gone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pipe_without_reader() -> Iterator[int]:
    """The writing end of a pipe whose reader (`| head -1`) has closed it: writing to it fails with EPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)
