"""Spark for the length of a command, and what a command asks it through."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from routebook_pipeline.cli.java_messages import JavaMessages
from routebook_pipeline.cli.options import Site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.java import find_java_home, java_version
from routebook_pipeline.session import build_session, is_submitted


@contextmanager
def spark_for(site: Site, progress: Progress) -> Iterator[SparkSession]:
    if is_submitted():
        progress.doing("starting Spark")
        session = build_session(site.master, site.conf)
    else:
        session = _own_spark(site, progress)
    try:
        yield session
    finally:
        progress.doing("stopping Spark")
        session.stop()
        progress.clear()


def _own_spark(site: Site, progress: Progress) -> SparkSession:
    progress.doing("looking for Java")
    home = find_java_home()
    progress.doing(f"starting Spark (Java {java_version(home)}, {site.master})")
    messages = JavaMessages(shown=site.debug)
    try:
        return build_session(site.master, site.conf, java_says=messages.descriptor)
    except PySparkException as error:
        raise UnreachableError(
            f"Spark did not start on {site.master} with the Java of {home}. It said: {messages.last() or error}"
        ) from error
    finally:
        messages.started()
