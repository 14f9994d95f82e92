#!/opt/routebook/bin/python -I
"""The image's HEALTHCHECK: exits with 0 if this worker is ready.

A worker is not ready before its first complete load of the route table, and while it drains. An unreachable store does
not make it unready.
"""

import http.client
import os
import sys

LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 listening addresses, mapped to addresses to connect to


def main() -> int:
    host = os.environ.get("ROUTEBOOK_ADMIN_HOST", "127.0.0.1")
    port = int(os.environ.get("ROUTEBOOK_ADMIN_PORT", "8081"))
    connection = http.client.HTTPConnection(LOOPBACK.get(host, host), port, timeout=4)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        sys.stdout.write(f"{answer.status} {answer.read(500).decode(errors='replace')}\n")
    except OSError as error:
        sys.stdout.write(f"{host}:{port} does not answer: {error}\n")
        return 1
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
