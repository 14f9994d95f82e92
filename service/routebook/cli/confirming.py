"""`--dry-run` and `--yes` of the commands that delete or overwrite: show what would change, ask, then change it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from routebook.cli.forms import Form, chosen_form
from routebook.cli.output import print_table
from routebook.cli.service_client import Service
from routebook.runtime.exits import AnswerIsNoError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Confirmation:
    is_dry_run: bool
    is_given: bool
    """Whether --yes is given."""
    form: Form

    def send(
        self, service: Service, method: str, path: str, *, params: dict[str, Any] | None = None, body: object = None
    ) -> dict[str, Any] | None:
        """Returns the answer of the request, or None after a dry run, which has been printed then.

        On a terminal, people see what would change and are asked. A script is not asked: it cannot answer.
        """
        dry_params = (params or {}) | {"dry_run": "true"}
        if self.is_dry_run:
            plan = service.request(method, path, params=dry_params, body=body)
            if self.form.is_table:
                _print_plan(plan, err=False)
                click.echo("Nothing was changed.", err=True)
            else:
                self.form.print_data(plan)
            return None
        if not self.is_given and sys.stdin.isatty() and sys.stderr.isatty():
            plan = service.request(method, path, params=dry_params, body=body)
            if plan["count"]:
                _print_plan(plan, err=True)
                if not click.confirm(f"Change this at {service.url}?", err=True):
                    raise AnswerIsNoError("Nothing was changed.", advice="--yes answers the question beforehand.")
        answer: dict[str, Any] = service.request(method, path, params=params, body=body)
        return answer


def _print_plan(plan: dict[str, Any], *, err: bool) -> None:
    rows = [(one["what"], one["before"], one["after"]) for one in plan["changes"]]
    print_table(("would change", "from", "to"), rows, err=err)
    if plan["count"] > len(rows):
        click.echo(f"and {plan['count'] - len(rows)} more", err=err)


def destructive(command: Callable[..., R]) -> Callable[..., R]:
    """Adds --dry-run and --yes, and passes them as `confirmation`. Comes below the decorators for the form."""

    @click.option("--dry-run", is_flag=True, help="Only show what would change.")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask, even on a terminal.")
    @wraps(command)
    def with_confirmation(*args: Any, dry_run: bool, yes: bool, **kwargs: Any) -> R:
        return command(*args, confirmation=Confirmation(dry_run, yes, chosen_form(names=False)), **kwargs)

    return with_confirmation
