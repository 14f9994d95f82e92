"""Secrets are never printed: not by `repr`, in a description or in a message."""

import pytest

from routebook.settings import LiveSettings, load
from routebook.settings.kinds import mask_unknown, mask_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:hunter2@h:6379", "redis://:********@h:6379"),
        ("rediss://user:hunter2@h:6379/1?x=y", "rediss://user:********@h:6379/1?x=y"),
        ("redis://user:hun@ter/2@h:6379", "redis://user:********@h:6379"),
        ("redis://hunter2@h", "redis://********@h"),
        ("unix:///run/redis.sock?password=hunter2&db=1", "unix:///run/redis.sock?password=********&db=1"),
        (
            "sentinel://u:hunter2@a:1,b:2/m?sentinel_user=x&sentinel_password=hunter2",
            "sentinel://u:********@a:1,b:2/m?sentinel_user=x&sentinel_password=********",
        ),
        ("hunter2", "********"),
        ("", ""),
    ],
)
def test_a_masked_url_lacks_only_its_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize("key", ["tls.server.keyPassword", "accessKey", "SECRET", "some.token"])
def test_an_unknown_key_is_masked_by_its_name(key: str) -> None:
    assert mask_unknown(key, "hunter2") == "********"
    assert mask_unknown("rocketmqHome", "/opt") == "/opt"


def test_neither_repr_nor_description_contains_a_secret() -> None:
    loaded = load({"admin_token": "hunter2", "redis_url": "redis://:hunter2@h"})
    shown = f"{loaded!r} {loaded.settings} {LiveSettings(loaded).describe(masked=True)}"
    assert "hunter2" not in shown


def test_the_description_can_be_unmasked_explicitly() -> None:
    rows = LiveSettings(load({"admin_token": "hunter2"})).describe(masked=False)
    assert ("admin_token", "hunter2", "flag") in rows
