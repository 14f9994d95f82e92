"""The line that Apache's scripts wait for."""

import pytest

from routebook.runtime.start import start_line
from routebook.settings import load


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "The Name Server boot success. serializeType=JSON, address 0.0.0.0:9876"),
        (
            {"bind_address": "127.0.0.1", "remoting_port": "19876", "serialize_type": "ROCKETMQ"},
            "The Name Server boot success. serializeType=ROCKETMQ, address 127.0.0.1:19876",
        ),
        ({"bind_address": "::"}, "The Name Server boot success. serializeType=JSON, address [::]:9876"),
    ],
)
def test_the_start_line_is_the_one_of_apaches_name_server(flags: dict[str, str | None], line: str) -> None:
    assert start_line(load(flags, profile="serve").settings) == line
