"""Apache's properties, one row each: the key, a value, our setting, and the default."""

from pathlib import Path
from typing import Any

import pytest

from routebook.errors import SettingsError
from routebook.settings import LiveSettings, Origin, load
from routebook.settings.catalogue import all_settings, names_of_properties, weaker_names_of_properties
from routebook.settings.files import inert_properties

# RocketMQ's key, a text, our setting, its value, and the default (Apache's unless a comment says why not).
ROWS: list[tuple[str, str, str, Any, Any]] = [
    ("kvConfigPath", "/data/kv.json", "kv_config_path", "/data/kv.json", ""),  # imported once, so only on request
    ("orderMessageEnable", "true", "order_message_enable", True, False),
    ("returnOrderTopicConfigToBroker", "false", "return_order_topic_config_to_broker", False, True),
    ("clientRequestThreadPoolNums", "4", "client_request_thread_pool_nums", 4, 8),
    ("clientRequestThreadPoolQueueCapacity", "9", "client_request_thread_pool_queue_capacity", 9, 50_000),
    ("defaultThreadPoolNums", "4", "default_thread_pool_nums", 4, 16),
    ("defaultThreadPoolQueueCapacity", "9", "default_thread_pool_queue_capacity", 9, 10_000),
    ("scanNotActiveBrokerInterval", "6000", "scan_not_active_broker_interval_ms", 6000, 5000),
    ("unRegisterBrokerQueueCapacity", "9", "unregister_broker_queue_capacity", 9, 3000),
    ("supportActingMaster", "True", "support_acting_master", True, False),
    ("enableAllTopicList", "false", "enable_all_topic_list", False, True),
    ("enableTopicList", "false", "enable_topic_list", False, True),
    ("notifyMinBrokerIdChanged", "true", "notify_min_broker_id_changed", True, False),
    ("needWaitForService", "true", "need_wait_for_service", True, False),
    ("waitSecondsForService", "7", "wait_seconds_for_service", 7, 45),
    ("deleteTopicWithBrokerRegistration", "true", "delete_topic_with_broker_registration", True, False),
    (
        "configBlackList",
        "configBlackList;listenPort",
        "config_black_list",
        "configBlackList;listenPort",
        "configBlackList;configStorePath;kvConfigPath",
    ),
    ("bindAddress", "127.0.0.3", "bind_address", "127.0.0.3", "0.0.0.0"),
    ("listenPort", "19876", "remoting_port", 19_876, 9876),
    ("serverChannelMaxIdleTimeSeconds", "60", "server_channel_max_idle_time_seconds", 60, 120),
    ("serverSocketSndBufSize", "65536", "server_socket_snd_buf_size", 65_536, 0),
    ("serverSocketRcvBufSize", "65536", "server_socket_rcv_buf_size", 65_536, 0),
    ("writeBufferHighWaterMark", "65536", "write_buffer_high_water_mark", 65_536, 0),
    ("writeBufferLowWaterMark", "32768", "write_buffer_low_water_mark", 32_768, 0),
    ("enableShutdownGracefully", "false", "enable_shutdown_gracefully", False, True),  # a restart costs no request
    ("shutdownWaitTimeSeconds", "30", "drain_ms", 30_000, 10_000),  # well within Kubernetes' 30 s
    ("connectTimeoutMillis", "500", "connect_timeout_ms", 500, 3000),
    ("rocketmq.serialize.type", "ROCKETMQ", "serialize_type", "ROCKETMQ", "JSON"),
    ("com.rocketmq.remoting.frameMaxLength", "1048576", "max_frame_bytes", 1_048_576, 16_777_216),
    ("com.rocketmq.remoting.socket.sndbuf.size", "65536", "server_socket_snd_buf_size", 65_536, 0),
    ("com.rocketmq.remoting.socket.rcvbuf.size", "65536", "server_socket_rcv_buf_size", 65_536, 0),
    ("com.rocketmq.remoting.write.buffer.high.water.mark", "9999", "write_buffer_high_water_mark", 9999, 0),
    ("com.rocketmq.remoting.write.buffer.low.water.mark", "9999", "write_buffer_low_water_mark", 9999, 0),
    ("com.rocketmq.remoting.client.connect.timeout", "500", "connect_timeout_ms", 500, 3000),
    ("tls.server.mode", "disabled", "tls_mode", "disabled", "permissive"),
    ("tls.test.mode.enable", "false", "tls_test_mode", False, True),
    ("tls.server.keyPath", "/tls/key.pem", "tls_key_path", "/tls/key.pem", ""),
    ("tls.server.keyPassword", "hunter2", "tls_key_password", "hunter2", ""),
    ("tls.server.certPath", "/tls/chain.pem", "tls_cert_path", "/tls/chain.pem", ""),
    ("tls.server.trustCertPath", "/tls/trust.pem", "tls_trust_path", "/tls/trust.pem", ""),
    ("tls.server.authClient", "true", "tls_auth_client", True, False),
    ("tls.server.need.client.auth", "require", "tls_need_client_auth", "require", "none"),
    ("tls.enable", "true", "tls_client_enable", True, False),
    ("useTLS", "true", "tls_client_enable", True, False),
]
ELSEWHERE = {"clusterTest", "tls.config.file"}
"""They depend on other settings; tested below and in test_tls_file.py."""

APACHE_SETS_AT_RUN_TIME = {
    "enableAllTopicList",
    "enableTopicList",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
    "notifyMinBrokerIdChanged",
    "needWaitForService",
    "waitSecondsForService",
    "deleteTopicWithBrokerRegistration",
}


def properties(folder: Path, text: str) -> Path:
    file = folder / "namesrv.conf"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("key", "text", "name", "value", "default"), ROWS, ids=[row[0] for row in ROWS])
def test_a_property_of_rocketmq_sets_our_setting(
    key: str, text: str, name: str, value: Any, default: Any, tmp_path: Path
) -> None:
    assert getattr(load(profile="serve").settings, name) == default
    loaded = load(file=properties(tmp_path, f"{key}={text}\n"), profile="serve")
    assert getattr(loaded.settings, name) == value
    assert loaded.origins[name] is Origin.FILE
    assert not loaded.kept_properties


def test_every_supported_property_is_in_the_table() -> None:
    rows = {row[0] for row in ROWS} | ELSEWHERE
    assert names_of_properties().keys() | weaker_names_of_properties().keys() == rows


def test_apaches_run_time_properties_change_at_run_time() -> None:
    names = names_of_properties()
    assert {key for key, name in names.items() if all_settings()[name].about.at_run_time} == APACHE_SETS_AT_RUN_TIME


@pytest.mark.parametrize(
    "name",
    ["connection_grace_ms", "mass_disconnect_percent", "mass_disconnect_minimum", "store_cut_off_ms"],
)
def test_settings_needed_during_an_incident_change_at_run_time(name: str) -> None:
    live = LiveSettings(load())
    live.apply({name: "1234" if name.endswith("_ms") else "40"})
    assert live.origin(name) is Origin.RUN_TIME


def test_a_property_overrides_the_system_property_that_is_its_default(tmp_path: Path) -> None:
    weak, strong = "com.rocketmq.remoting.socket.sndbuf.size=70000", "serverSocketSndBufSize=80000"
    for text in (f"{weak}\n{strong}\n", f"{strong}\n{weak}\n"):
        assert load(file=properties(tmp_path, text)).settings.server_socket_snd_buf_size == 80_000


def test_seconds_are_converted_to_milliseconds(tmp_path: Path) -> None:
    assert load(file=properties(tmp_path, "shutdownWaitTimeSeconds=5\n")).settings.drain_ms == 5000
    assert load(file=properties(tmp_path, "drain_ms=5\n")).settings.drain_ms == 5


@pytest.mark.parametrize("text", ["yes", "on", "1", "", "flase"])
def test_a_boolean_that_apache_reads_differently_stops_the_start(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        load(file=properties(tmp_path, f"supportActingMaster={text}\n"))
    message = str(raised.value)
    assert f"support_acting_master is {text!r}" in message
    assert "supportActingMaster in " in message
    assert "true or false" in message


@pytest.mark.parametrize(
    "line",
    [
        "listenPort=http",
        "waitSecondsForService=-1",
        "shutdownWaitTimeSeconds=soon",
        "shutdownWaitTimeSeconds=" + 9999 * "9",
    ],
    ids=["no number", "too small", "no seconds", "too many digits"],
)
def test_a_value_of_the_wrong_type_that_apache_ignores_stops_the_start(line: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"\(from {line.partition('=')[0]} in .*namesrv.conf\)"):
        load(file=properties(tmp_path, line))


@pytest.mark.parametrize("key", inert_properties())
def test_an_inert_property_is_kept_and_explained(key: str, tmp_path: Path) -> None:
    one = inert_properties()[key]
    text = {"true or false": "false", "a whole number": "12", "a text": "x"}[one.kind]
    loaded = load(file=properties(tmp_path, f"{key}={text}\n"))
    assert loaded.kept_properties.keys() == {key}
    assert [one for one in loaded.warnings if key in one and "no effect here" in one]
    assert loaded.settings == load().settings
    assert len(one.why) > 15


@pytest.mark.parametrize("line", ["serverWorkerThreads=many", "useEpollNativeSelector=yes"])
def test_an_inert_property_has_a_type(line: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=line.partition("=")[0]):
        load(file=properties(tmp_path, line))


def test_an_embedded_controller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"enableControllerInNamesrv is true .*Run Apache's controller beside"):
        load(file=properties(tmp_path, "enableControllerInNamesrv=TRUE\n"))


def test_cluster_test_requires_its_upstream(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"clusterTest.*Set cluster_test_upstream"):
        load(file=properties(tmp_path, "clusterTest=true\n"))
    settings = load(file=properties(tmp_path, "clusterTest=true\ncluster_test_upstream=ns.example:9876\n")).settings
    assert (settings.cluster_test, settings.cluster_test_upstream) == (True, "ns.example:9876")


@pytest.mark.parametrize("line", ["serverWorkerThreads=8", "com.rocketmq.remoting.socket.backlog=1", "tls.enable=true"])
def test_a_rocketmq_key_makes_a_valid_toml_file_a_properties_file(line: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(line + "\n")
    load(file=file)


# RocketMQ's variable.


def test_the_variable_of_rocketmq_overrides_the_default_but_not_a_file(tmp_path: Path) -> None:
    environ = {"ROCKETMQ_SERIALIZE_TYPE": "ROCKETMQ"}
    loaded = load({}, environ)
    assert (loaded.settings.serialize_type, loaded.origins["serialize_type"]) == ("ROCKETMQ", "RocketMQ's variable")
    file = properties(tmp_path, "rocketmq.serialize.type=JSON\n")
    assert load({}, environ, file).settings.serialize_type == "JSON"
    assert load({}, environ | {"ROUTEBOOK_SERIALIZE_TYPE": "JSON"}).settings.serialize_type == "JSON"
    assert load({}, {"ROCKETMQ_SERIALIZE_TYPE": " "}).origins["serialize_type"] is Origin.DEFAULT


@pytest.mark.parametrize("text", ["XML", "json"])
def test_a_wrong_variable_of_rocketmq_stops_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match=r"\(from ROCKETMQ_SERIALIZE_TYPE\). Allowed: JSON, ROCKETMQ"):
        load({}, {"ROCKETMQ_SERIALIZE_TYPE": text})
