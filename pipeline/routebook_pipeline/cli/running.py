"""Spark for the length of a command, and what a command asks it through."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from routebook_pipeline.cli.java_messages import JavaMessages
from routebook_pipeline.cli.options import Place
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.java import find_java_home, java_version
from routebook_pipeline.session import build_session, is_submitted


@contextmanager
def spark_for(place: Place, progress: Progress) -> Iterator[SparkSession]:
    if is_submitted():
        progress.doing("starting Spark")
        session = build_session(place.master, place.conf)
    else:
        session = _own_spark(place, progress)
    try:
        yield session
    finally:
        progress.doing("stopping Spark")
        session.stop()
        progress.clear()


def _own_spark(place: Place, progress: Progress) -> SparkSession:
    progress.doing("looking for Java")
    home = find_java_home()
    progress.doing(f"starting Spark (Java {java_version(home)}, {place.master})")
    messages = JavaMessages(shown=place.debug)
    try:
        return build_session(place.master, place.conf, java_says=messages.descriptor)
    except PySparkException as error:
        raise UnreachableError(
            f"Spark did not start on {place.master} with the Java of {home}. It said: {messages.last() or error}"
        ) from error
    finally:
        messages.started()
