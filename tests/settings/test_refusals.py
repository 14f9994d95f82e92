"""A wrong setting stops the start; the error names the key, the value and what is allowed."""

import re
from pathlib import Path

import pytest

from routebook.errors import SettingsError
from routebook.settings import load
from tests.architecture.sources import ROOT


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("http_port", "65536", "a whole number from 0 to 65535"),
        ("http_port", "-1", "a whole number from 0 to 65535"),
        ("http_port", "80.5", "a whole number from 0 to 65535"),
        ("http_port", "", "a whole number from 0 to 65535"),
        ("workers", "0", "a whole number from 1 to 256"),
        ("serialize_type", "json", "JSON, ROCKETMQ"),
        ("tls_need_client_auth", "maybe", "none, optional, require"),
        ("max_frame_bytes", "100", "a whole number from 4096 to 1073741824"),
        ("cluster_test_upstream", "host", "host:port"),
        ("log_level", "loud", "debug, info, warning, error"),
        ("support_acting_master", "maybe", "true or false"),
        ("namespace", "a:b", "1 to 64 of A-Z a-z 0-9 . _ -"),
        ("proxy_from", "10.0.0.0/33", "networks such as 10.0.0.0/8"),
        ("advertised_addresses", "host", "host:port"),
        ("redis_url", "http://localhost", "a URL that begins with redis://"),
        ("bind_address", "no host", "an IP address or a host name"),
        ("admin_token", "two words", "printable ASCII"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(name: str, text: str, allowed: str) -> None:
    variable = f"ROUTEBOOK_{name.upper()}"
    with pytest.raises(SettingsError) as raised:
        load({}, {variable: text})
    message = str(raised.value)
    assert name in message
    assert variable in message
    assert allowed in message


def test_the_value_is_shown_unless_it_is_a_secret() -> None:
    with pytest.raises(SettingsError, match="'65536'"):
        load({"http_port": "65536"})
    for name, text in (
        ("admin_token", "hunter 2"),
        ("redis_url", "hunter2"),
        ("redis_url", "http://u:hunter2@h"),
    ):
        with pytest.raises(SettingsError) as raised:
            load({name: text})
        assert "hunter" not in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "environ", "hint"),
    [
        ({"htp_port": "1"}, {}, "Did you mean --http-port?"),
        ({}, {"ROUTEBOOK_HTTP_PROT": "1"}, "Did you mean ROUTEBOOK_HTTP_PORT?"),
        ({}, {"ROUTEBOOK_LISTEN_PORT": "1"}, "Did you mean ROUTEBOOK_REMOTING_PORT?"),
        ({}, {"ROUTEBOOK_XYZZY": "1"}, "Allowed are: remoting_port, "),
    ],
)
def test_an_unknown_flag_or_variable_suggests_the_nearest(
    flags: dict[str, str | None], environ: dict[str, str], hint: str
) -> None:
    with pytest.raises(SettingsError, match="is not a setting") as raised:
        load(flags, environ)
    assert hint in str(raised.value)
    assert "'1'" in str(raised.value)


def test_an_unknown_toml_key_suggests_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "routebook.toml"
    file.write_text("listenPort = 9876\n")
    with pytest.raises(SettingsError, match=r"listenPort in .*routebook.toml .*'9876'.* Did you mean remoting_port\?"):
        load(file=file)


def test_a_secret_under_a_mistyped_name_is_not_shown() -> None:
    for variable, value in (
        ("ROUTEBOOK_REDIS_UR", "redis://:hunter2@h"),
        ("ROUTEBOOK_ADMIN_TOKN_TOKEN", "hunter2"),
    ):
        with pytest.raises(SettingsError) as raised:
            load({}, {variable: value})
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "variable",
    [
        "ROUTEBOOK_TEST_REDIS_URL",
        "ROUTEBOOK_REDIS_SERVER",
        "ROUTEBOOK_URL",
        "ROUTEBOOK_CACERT",
        "ROUTEBOOK_CERT",
        "ROUTEBOOK_KEY",
        "ROUTEBOOK_CONTEXT",
        "ROUTEBOOK_CONTEXTS",
        "ROUTEBOOK_SERVICE_HOST",
        "ROUTEBOOK_SERVICE_PORT_HTTP",
        "ROUTEBOOK_PORT_8080_TCP_ADDR",
        "ROUTEBOOK_ADMIN_SERVICE_PORT",
        "HOME",
    ],
)
def test_variables_of_other_programs_are_ignored(variable: str) -> None:
    load({}, {variable: "anything"})


def test_the_variables_of_the_pipeline_do_not_stop_the_service() -> None:
    """Both run in one shell: after `export ROUTEBOOK_LAKE=…`, as documented, `routebook up` has to start."""
    sources = (ROOT / "pipeline").rglob("*.py")
    named = {name for file in sources for name in re.findall(r'"(ROUTEBOOK_[A-Z_]+)"', file.read_text())}
    assert {"ROUTEBOOK_LAKE", "ROUTEBOOK_NAMESPACE", "ROUTEBOOK_REDIS_URL"} <= named
    load({}, {**dict.fromkeys(named, "lake"), "ROUTEBOOK_REDIS_URL": "redis://127.0.0.1"})


def test_a_kubernetes_service_link_is_not_taken_for_a_port() -> None:
    environ = {"ROUTEBOOK_PORT": "tcp://10.96.0.7:8080", "ROUTEBOOK_HTTP_PORT": "tcp://10.96.0.7:8080"}
    assert load({}, environ).settings.http_port == 8080


@pytest.mark.parametrize(
    "flags",
    [
        {"scan_not_active_broker_interval_ms": "5000", "broker_timeout_ms": "5000"},
        {"store_timeout_ms": "1000", "lease_ms": "900", "scan_not_active_broker_interval_ms": "100"},
        {"min_version_wait_ms": "10000", "request_timeout_ms": "10000"},
        {"http_port": "8080", "admin_port": "8080"},
        {"store_timeout_ms": "2000", "store_cut_off_ms": "2000"},
        {"max_header_bytes": "8192", "max_frame_bytes": "8192"},
        {"max_frame_bytes": "2097152", "max_queued_bytes": "1048576"},
        {"write_buffer_low_water_mark": "2", "write_buffer_high_water_mark": "1"},
    ],
)
def test_an_error_names_both_conflicting_settings(flags: dict[str, str | None]) -> None:
    with pytest.raises(SettingsError) as raised:
        load(flags)
    first, second, *_ = flags
    assert first in str(raised.value)
    assert second in str(raised.value)


def test_two_ports_may_both_be_0() -> None:
    load({"http_port": "0", "admin_port": "0"})


@pytest.mark.parametrize(
    ("flags", "environ", "now"),
    [
        ({"history_max_entries": "5000"}, {}, "--history-min-entries"),
        ({}, {"ROUTEBOOK_HISTORY_MAX_ENTRIES": "5000"}, "ROUTEBOOK_HISTORY_MIN_ENTRIES"),
        ({"network_ill_percent": "5"}, {}, "--mass-disconnect-percent"),
        ({}, {"ROUTEBOOK_NETWORK_ILL_MINIMUM": "5"}, "ROUTEBOOK_MASS_DISCONNECT_MINIMUM"),
    ],
)
def test_a_former_name_is_refused_with_the_new_one(flags: dict[str, str], environ: dict[str, str], now: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(flags, environ)
    assert f"It was renamed to {now}" in str(raised.value)
