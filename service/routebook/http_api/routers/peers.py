"""What RocketMQ peers poll to learn the addresses of their name servers (`rocketmq.namesrv.domain`)."""

import re
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from routebook.http_api.dependencies import LiveSettingsOf
from routebook.http_api.openapi import INPUT, answers_with

router = APIRouter(tags=["peers"], prefix="/rocketmq")

_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?")
_EXAMPLE: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {"example": "127.0.0.1:9876"}}}}


@router.get("/nsaddr", summary="Name-server addresses", response_class=PlainTextResponse, responses=_EXAMPLE)
async def list_name_servers(request: Request, live_settings: LiveSettingsOf) -> str:
    """`host:port;host:port`: the advertised addresses, else the host you asked and the remoting port."""
    settings = live_settings.current
    return settings.advertised_addresses or f"{_asked_host(request)}:{settings.remoting_port}"


@router.get(
    "/{group}-{unit}",
    summary="Name-server addresses for a unit",
    response_class=PlainTextResponse,
    responses=_EXAMPLE | answers_with(*INPUT),
)
async def list_name_servers_of_unit(group: str, unit: str, request: Request, live_settings: LiveSettingsOf) -> str:
    """The same list: all units share one name service."""
    del group, unit
    return await list_name_servers(request, live_settings)


def _asked_host(request: Request) -> str:
    """What a peer could reach once, it can reach again; a Host that is none is not repeated."""
    found = _HOST.fullmatch(request.headers.get("host", ""))
    if found:
        return found["host"]
    host = str((request.scope.get("server") or ("127.0.0.1", 0))[0])
    return f"[{host}]" if ":" in host else host
