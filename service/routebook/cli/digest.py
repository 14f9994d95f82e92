"""`routebook digest [URL…]`"""

import click

from routebook.cli.service import Service, as_json, asks_service, print_json
from routebook.cli.tables import print_table
from routebook.runtime import exits


@click.command("digest")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@as_json
@asks_service
def command(service: Service, urls: tuple[str, ...], json_: bool) -> int:
    """Digest of the route table; with several URLs, of each, and exit code 1 when they differ."""
    rows = [_digest_of(Service(url, "")) for url in urls] if urls else [_digest_of(service)]
    if json_:
        print_json(rows if urls else rows[0])
    elif urls:
        print_table(("service", "history", "version", "digest"), [tuple(row.values()) for row in rows])
    else:
        click.echo(rows[0]["digest"])
    return exits.DONE if len({row["digest"] for row in rows}) == 1 else exits.ANSWER_IS_NO


def _digest_of(service: Service) -> dict[str, object]:
    with service:
        status = service.get("/v1/status")
    return {
        "service": service.url,
        "history": status["history"],
        "version": status["version"],
        "digest": status["digest"],
    }
