"""Names that a shell offers when it completes an argument: they come from the service, within a second."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import click

from routebook.cli.contexts import chosen_connection, read_contexts
from routebook.cli.service_client import Service, path_part
from routebook.errors import RoutebookError
from routebook.settings import catalogue

_TIMEOUT_S: Final = 1.0
_MOST: Final = 1000
"""Offered at most. A shell asks whether to show even a hundred."""


def names_of(what: str, context: click.Context, incomplete: str) -> list[str]:
    """Nothing when the service does not answer: an error would destroy the line that is being typed."""
    try:
        return [name for name in _SOURCES[what](context) if name.startswith(incomplete)]
    except RoutebookError:
        return []


def _listed(kind: str) -> Callable[[click.Context], Iterator[str]]:
    def names(context: click.Context) -> Iterator[str]:
        with _service(context) as service:
            yield from islice(service.names(kind), _MOST)

    return names


def _service(context: click.Context) -> Service:
    with context.scope(cleanup=False):
        return Service.of(replace(chosen_connection(), timeout_s=_TIMEOUT_S))


def _run_time_settings(context: click.Context) -> Iterator[str]:
    del context
    yield from (name for name, one in catalogue.all_settings().items() if one.about.at_run_time)


def _all_settings(context: click.Context) -> Iterator[str]:
    del context
    yield from catalogue.all_settings()


def _contexts(context: click.Context) -> Iterator[str]:
    del context
    yield from read_contexts().contexts


def _kv_keys(context: click.Context) -> Iterator[str]:
    with _service(context) as service:
        yield from service.get(f"/v1/kv/{path_part(context.params['namespace'])}")["table"]


_SOURCES: Final[dict[str, Callable[[click.Context], Iterator[str]]]] = {
    "topics": _listed("topic"),
    "brokers": _listed("broker"),
    "clusters": _listed("cluster"),
    "settings": _run_time_settings,
    "all-settings": _all_settings,
    "contexts": _contexts,
    "kv-namespaces": _listed("key-value-namespace"),
    "kv-keys": _kv_keys,
    "identities": _listed("identity"),
    "readers": _listed("reader"),
}
