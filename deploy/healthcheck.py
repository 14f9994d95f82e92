#!/opt/routebook/bin/python -I
"""What the image's HEALTHCHECK runs: is this worker ready? It fails before the first complete table and while draining;
a store that is away does not make a worker unhealthy.
"""

import http.client
import os
import sys

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 what is listened on, turned into what can be asked


def main() -> int:
    host = os.environ.get("ROUTEBOOK_ADMIN_HOST", "127.0.0.1")
    port = int(os.environ.get("ROUTEBOOK_ADMIN_PORT", "8081"))
    connection = http.client.HTTPConnection(ANYWHERE.get(host, host), port, timeout=4)
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
