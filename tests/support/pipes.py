"""Pipes whose other end is closed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pipe_without_reader() -> Iterator[int]:
    """The writing end of a pipe that its reader (`| head -1`) has closed. Writing to it fails with EPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)
