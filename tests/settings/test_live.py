"""Changes at run time."""

import logging

import pytest

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings import LiveSettings, Origin, Settings, load


def live(**flags: str) -> LiveSettings:
    return LiveSettings(load(flags))


def test_removing_a_change_restores_the_default() -> None:
    settings = live()
    settings.apply({"hold_percent": "50"})
    assert (settings.current.hold_percent, settings.origin("hold_percent")) == (50, Origin.RUN_TIME)
    settings.apply({})
    assert (settings.current.hold_percent, settings.origin("hold_percent")) == (30, Origin.DEFAULT)


def test_subscribers_are_called_on_changes_until_they_unsubscribe() -> None:
    settings = live()
    heard: list[Settings] = []
    leave = settings.subscribe(heard.append)
    settings.apply({})
    settings.apply({"log_level": "debug"})
    settings.apply({"log_level": "debug"})
    leave()
    settings.apply({})
    assert [one.log_level for one in heard] == ["debug"]


@pytest.mark.parametrize(
    ("key", "text", "canonical"), [("hold_percent", " 040 ", "40"), ("support_acting_master", "ON", "true")]
)
def test_check_gives_the_canonical_text(key: str, text: str, canonical: str) -> None:
    assert live().check(key, text) == canonical


def test_check_refuses_what_must_not_change() -> None:
    with pytest.raises(SettingsError, match=r"http_port cannot be changed at run time.*ROUTEBOOK_HTTP_PORT"):
        live().check("http_port", "1")
    with pytest.raises(SettingsError, match=r"Did you mean hold_percent\?"):
        live().check("hold_procent", "1")
    with pytest.raises(InvalidInputError) as raised:
        live().check("hold_percent", "101")
    assert (raised.value.field, raised.value.value) == ("hold_percent", "101")


def test_check_verifies_settings_that_depend_on_each_other() -> None:
    with pytest.raises(SettingsError, match="scan_not_active_broker_interval_ms"):
        live().check("broker_timeout_ms", "3000")


@pytest.mark.parametrize("overrides", [{"hold_percent": "many"}, {"of_tomorrow": "1"}, {"http_port": "1"}])
def test_settings_of_another_release_are_ignored_and_logged_once(
    overrides: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = live()
    with caplog.at_level(logging.WARNING):
        settings.apply(overrides)
        settings.apply(overrides)
    assert settings.current == live().current
    assert len(caplog.records) == 1
