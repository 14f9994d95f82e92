"""Registering a broker through the registry, as a port does."""

from routebook.model.broker import Registration, RegistrationResult, Seat
from routebook.model.names import Caller
from routebook.registry.registry import Registry, SessionConnection
from tests.support.in_process import CALLER


async def register(
    registry: Registry,
    registration: Registration,
    *,
    caller: Caller = CALLER,
    connection: SessionConnection | None = None,
    sent: bytes | None = None,
) -> RegistrationResult:
    """`sent` stands for the request's bytes; by default, equal registrations are equal requests."""

    async def read_body() -> Registration:
        return registration

    seat = Seat(registration.cluster, registration.broker, registration.broker_id)
    parts = (repr(registration).encode() if sent is None else sent,)
    return await registry.register(seat, parts, read_body, caller, connection=connection)
