"""What `create_app` was given, handed to the routers as dependencies; nothing is fetched from a module."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from routebook.http_api.watchers import Watchers
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.settings.live import LiveSettings


@dataclass(frozen=True, slots=True)
class Parts:
    registry: Registry
    live_settings: LiveSettings
    metrics: Metrics
    watchers: Watchers


def parts_of(request: Request) -> Parts:
    return cast("Parts", request.app.state.parts)


def _registry_of(request: Request) -> Registry:
    return parts_of(request).registry


def _live_settings_of(request: Request) -> LiveSettings:
    return parts_of(request).live_settings


RegistryOf = Annotated[Registry, Depends(_registry_of)]
LiveSettingsOf = Annotated[LiveSettings, Depends(_live_settings_of)]
PartsOf = Annotated[Parts, Depends(parts_of)]
