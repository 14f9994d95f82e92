"""Numbers of releases and names of codes."""

import pytest

from routebook.protocol.frame import RequestCode, release, request_name


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("4.0.0", 213),
        ("4.2.0", 253),
        ("4.9.0", 393),
        ("4.9.3", 399),
        ("4.9.4", 401),
        ("4.9.8", 409),
        ("5.0.0", 413),
        ("5.1.0", 433),
        ("5.1.4", 441),
        ("5.2.0", 453),
        ("5.3.0", 473),
        ("5.3.1", 475),
        ("5.3.3", 479),
        ("5.5.0", 513),
    ],
)
def test_a_release_has_the_number_that_rocketmq_uses(name: str, number: int) -> None:
    major, minor, patch = name.split(".")
    assert release(int(major), int(minor), int(patch)) == number


def test_every_code_has_a_name_and_unknown_ones_share_one() -> None:
    assert request_name(105) == "GET_ROUTEINFO_BY_TOPIC"
    assert {request_name(code) for code in (-1, 0, 107, 1234)} == {"UNKNOWN"}
    assert len({request_name(code) for code in range(1_000)}) == len(RequestCode) + 1
