"""Reads a registration's body in one go, for tests that are not about the steps."""

from typing import Any

from routebook.protocol.registration_body import RegistrationBody, Steps, read_registration_in_steps


def read_registration_body(body: bytes, **options: Any) -> RegistrationBody:
    return result_of(read_registration_in_steps(body, **options))


def result_of(steps: Steps[RegistrationBody]) -> RegistrationBody:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: RegistrationBody = end.value
        return found
