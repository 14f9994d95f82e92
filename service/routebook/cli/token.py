"""`routebook token create|list|revoke`: identities of programs and people, and their tokens."""

from datetime import UTC, datetime
from typing import Any

import click

from routebook.cli.administration import Confirmation, destructive
from routebook.cli.command import DURATION, command_group, complete
from routebook.cli.forms import Form, with_names, with_output
from routebook.cli.service_client import Service, as_json, path_part, print_json, with_service
from routebook.model.identity import Role

_ROLES = [role.label for role in Role]


@command_group("token")
def token_command() -> None:
    """Identities with a role, and the tokens that prove them.

    \b
    routebook token create ci --role operator
    routebook token list
    """


@token_command.command("create")
@click.argument("name")
@click.option(
    "--role", type=click.Choice(_ROLES), required=True, help="Each role includes the permissions of those before it."
)
@click.option("--cluster", "clusters", multiple=True, metavar="PREFIX", help="Only clusters with this prefix.")
@click.option("--topic", "topics", multiple=True, metavar="PREFIX", help="Only topics with this prefix.")
@click.option("--broker", "brokers", multiple=True, metavar="PREFIX", help="Only broker names with this prefix.")
@click.option(
    "--expires",
    type=DURATION,
    default=None,
    help="Valid for this long, such as 12h or 30d; without it, it never expires.",
)
@click.option("--access-key", default="", metavar="KEY", help="Also let it sign requests of the remoting port.")
@click.option(
    "--secret-file",
    type=click.File(),
    default=None,
    help="File with the secret of the access key, - for stdin; else one is made.",
)
@click.option("--certificate", default="", metavar="NAME", help="Also accept a client certificate with this name.")
@click.option("--replace", is_flag=True, help="Replace an identity of that name, with all its credentials.")
@as_json
@with_service
def create_token(service: Service, /, secret_file: Any, expires: float | None, json_: bool, **fields: Any) -> None:
    """Create an identity. Its token is printed once; the service keeps no more than a hash of it.

    \b
    routebook token create ci --role operator --topic ci- --expires 90d
    routebook token create fleet --role broker --access-key fleet-key
    """
    body = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
    if secret_file is not None:
        body["secret"] = secret_file.read().strip()
    if expires is not None:
        body["valid_for_ms"] = int(expires * 1000)
    created = service.request("POST", "/v1/identities", body=body)
    if json_:
        print_json(created)
        return
    click.echo(created["token"])
    if created["access_key"]:
        click.echo(f"accessKey={created['access_key']}\nsecretKey={created['secret']}")
    click.echo(f"Identity {created['name']} is valid on all workers within a second. Keep the token now:", err=True)
    click.echo("it is not shown again. Send it with --token, or in the variable ROUTEBOOK_TOKEN.", err=True)


@token_command.command("list")
@with_names
@with_service
def list_tokens(service: Service, form: Form) -> None:
    """List all identities, without their credentials.

    \b
    routebook token list
    routebook token list -o name
    """
    identities = service.get("/v1/identities")["identities"]
    if not form.is_table:
        form.print_data(identities, [one["name"] for one in identities])
        return
    header = ("name", "role", "covers", "access key", "certificate", "created", "expires")
    form.print_table(header, [_row(identity) for identity in identities])


@token_command.command("revoke")
@click.argument("name", shell_complete=complete("identities"))
@destructive
@with_output
@with_service
def revoke_token(service: Service, name: str, *, form: Form, confirmation: Confirmation) -> None:
    """Delete an identity. All workers refuse its credentials within a second.

    \b
    routebook token revoke ci --dry-run
    routebook token revoke ci --yes
    """
    result = confirmation.send(service, "DELETE", f"/v1/identities/{path_part(name)}")
    if result is None:
        return
    if form.is_table:
        click.echo(f"Revoked {name} (version {result['version']}).")
    else:
        form.print_data(result)


def _row(identity: dict[str, Any]) -> tuple[object, ...]:
    policy = [
        f"{what} {', '.join(f'{prefix}*' for prefix in identity[what])}"
        for what in ("clusters", "topics", "brokers")
        if identity[what]
    ]
    created, expires = _date(identity["created_ms"]), _date(identity["expires_ms"]) or "never"
    covers = "; ".join(policy) or "everything"
    return identity["name"], identity["role"], covers, identity["access_key"], identity["certificate"], created, expires


def _date(ms: int | None) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds") if ms else ""
