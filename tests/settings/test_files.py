"""`-c`: TOML, or the file that a fleet already has for Apache's name server."""

from pathlib import Path

import pytest

from routebook.errors import SettingsError
from routebook.settings import LiveSettings, Origin, load

NAMESRV_CONF = """\
# what a fleet has today
rocketmqHome=/opt/rocketmq
listenPort = 9877
scanNotActiveBrokerInterval: 4000
supportActingMaster true
orderMessageEnable=TRUE
kvConfigPath=/data/kv\\
  Config.json
bindAddress=127.0.0.2
shutdownWaitTimeSeconds=20
tls.server.keyPassword=hunter2
some.password=hunter2
com.rocketmq.remoting.clientAsyncSemaphoreValue=10
"""


@pytest.mark.parametrize("name", ["namesrv.conf", "namesrv.properties", "settings", "settings.txt"])
def test_a_file_of_rocketmq_is_read_whatever_its_suffix(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(NAMESRV_CONF)
    loaded = load(file=file)
    settings = loaded.settings
    assert settings.remoting_port == 9877
    assert settings.scan_not_active_broker_interval_ms == 4000
    assert settings.support_acting_master is True
    assert settings.order_message_enable is True
    assert settings.kv_config_path == "/data/kvConfig.json"
    assert settings.bind_address == "127.0.0.2"
    assert settings.drain_ms == 20_000
    assert settings.tls_key_password == "hunter2"
    assert loaded.origins["remoting_port"] is Origin.FILE


def test_unknown_properties_are_kept_masked_and_warned_about_once(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(NAMESRV_CONF)
    loaded = load(file=file)
    assert loaded.kept_properties == {
        "rocketmqHome": "/opt/rocketmq",
        "some.password": "********",
        "com.rocketmq.remoting.clientAsyncSemaphoreValue": "10",
    }
    without_effect, unknown = loaded.warnings
    assert "com.rocketmq.remoting.clientAsyncSemaphoreValue, rocketmqHome" in without_effect
    assert unknown.endswith("without effect: some.password.")


def test_a_warning_about_a_mistyped_property_suggests_a_name(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("supportActingMasters=true\n")
    loaded = load(file=file)
    assert loaded.settings.support_acting_master is False
    assert "supportActingMasters (did you mean supportActingMaster?)" in loaded.warnings[0]


def test_our_own_names_are_accepted_in_a_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9877\nhttp_port=9080\nroutebook.admin_port=9081\n")
    loaded = load(file=file)
    assert (loaded.settings.http_port, loaded.settings.admin_port, loaded.kept_properties) == (9080, 9081, {})


def test_toml_values_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "routebook.toml"
    file.write_text(
        'http_port = 9080\nsupport_acting_master = true\nnamespace = "fleet"\n'
        'proxy_from = ["10.0.0.0/8", "fd00::/8"]\nadvertised_addresses = ["a:9876", "[::1]:9876"]\n'
    )
    settings = load(file=file).settings
    assert settings.http_port == 9080
    assert settings.support_acting_master is True
    assert settings.namespace == "fleet"
    assert [str(network) for network in settings.proxy_networks] == ["10.0.0.0/8", "fd00::/8"]
    assert settings.advertised == ("a:9876", "[::1]:9876")


@pytest.mark.parametrize("line", ["http_port = true", "http_port = 80.5", "workers = []", "[http_port]\nx = 1"])
def test_a_toml_value_of_another_type_is_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "routebook.toml"
    file.write_text(line)
    with pytest.raises(SettingsError, match=r"http_port|workers"):
        load(file=file)


def test_a_file_without_ending_may_be_toml(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text('http_port = 9080\nnamespace = "fleet"\n')
    assert load(file=file).settings.namespace == "fleet"


def test_an_error_in_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "routebook.toml"
    file.write_text("http_port 9080\n")
    with pytest.raises(SettingsError, match="line 1"):
        load(file=file)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere.toml cannot be read"):
        load(file=tmp_path / "nowhere.toml")


def test_a_value_of_the_file_out_of_range_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=99999\n")
    with pytest.raises(SettingsError, match=r"remoting_port is '99999' \(from .*namesrv.conf\)"):
        load(file=file)


def test_run_time_settings_override_a_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("supportActingMaster=true\n")
    live = LiveSettings(load(file=file))
    live.apply({"support_acting_master": "false"})
    assert live.current.support_acting_master is False
