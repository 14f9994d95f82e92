"""Spark for the length of a command, and what a command asks it through."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from routebook_pipeline.cli.java_messages import JavaMessages
from routebook_pipeline.cli.options import Site, refuse
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.java import find_java_home, java_version
from routebook_pipeline.session import build_session, is_submitted


@contextmanager
def spark_for(site: Site, progress: Progress) -> Iterator[SparkSession]:
    if not site.debug:
        # Python's half of Spark logs whole stack traces beside the error that it raises.
        logging.disable(logging.CRITICAL)
    try:
        session = _started(site, progress)
        try:
            yield session
        except BaseException:
            # Java may be the one that is gone; why is told by what is on its way up.
            with suppress(Exception):
                session.stop()
            raise
        progress.doing("stopping Spark")
        session.stop()
        progress.clear()
    finally:
        logging.disable(logging.NOTSET)


def _started(site: Site, progress: Progress) -> SparkSession:
    if not is_submitted():
        return _own_spark(site, progress)
    refuse({"master": "--master"}, "under spark-submit it stands among its own options, before the program.")
    progress.doing("starting Spark")
    return build_session(site.master, site.conf)


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
