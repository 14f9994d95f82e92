"""Room for connections: a process may open far more files than it starts with, if it asks. The JVM asks, too."""

import contextlib
import logging
import resource

_log = logging.getLogger(__name__)

OTHER_FILES = 256
"""The store's connections, listeners, watched files, children's pipes."""


PORTS = 2


def allow_connections(count: int) -> None:
    """Raises the soft limit of open files to what so many connections a port need, as far as the system lets it."""
    wanted = PORTS * count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # macOS refuses more than it has told elsewhere; what there was before then stays.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed < wanted:
        _log.warning(
            "A worker may open %d files (ulimit -n), and max_connections is %d on each of %d ports; "
            "beyond some %d in all newcomers are closed.",
            allowed,
            count,
            PORTS,
            max(0, allowed - OTHER_FILES),
        )
