"""One look at a broker's own address, when its last connection was lost: does anybody accept there?"""

import asyncio
import errno
import socket
from enum import StrEnum
from typing import Any, Final

OUR_TROUBLE: Final = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.EADDRNOTAVAIL,
        errno.EACCES,
        errno.EPERM,
        errno.EAFNOSUPPORT,
    }
)
"""Errors that say something of this process or host, and nothing of the broker."""


class Look(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"
    """No answer in time, or no way there."""
    UNDECIDED = "undecided"
    """It could not be asked, for a reason of our own."""


async def dial(address: str, timeout_s: float) -> Look:
    """Connects and says nothing. Of several addresses behind a name one that accepts is enough."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            return await _dial_all(host.strip("[]"), int(port))
    except TimeoutError:
        return Look.SILENT


async def _dial_all(host: str, port: int) -> Look:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return Look.SILENT if error.errno == socket.EAI_NONAME else Look.UNDECIDED
    except (OSError, UnicodeError):
        return Look.UNDECIDED
    looks = set[Look]()
    for family, kind, protocol, _, where in found:
        look = await _dial_one(family, kind, protocol, where)
        if look is Look.ACCEPTED:
            return look
        looks.add(look)
    if looks == {Look.REFUSED}:
        return Look.REFUSED
    return Look.SILENT if Look.UNDECIDED not in looks else Look.UNDECIDED


async def _dial_one(family: int, kind: int, protocol: int, where: Any) -> Look:
    try:
        with socket.socket(family, kind, protocol) as one:
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, where)
    except ConnectionRefusedError:
        return Look.REFUSED
    except OSError as error:
        return Look.UNDECIDED if error.errno in OUR_TROUBLE else Look.SILENT
    return Look.ACCEPTED
