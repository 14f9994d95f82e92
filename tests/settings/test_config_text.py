"""319 and 318 without the port. Apache's behaviour was observed on a running 5.5.0."""

from pathlib import Path

import pytest

from routebook.errors import BrokenPropertiesError, ProtectedPropertyError
from routebook.settings import LiveSettings, load
from routebook.settings.live import plan_config_update, properties_text

APACHE_5_5_0 = """\
bindAddress=0.0.0.0
clientRequestThreadPoolNums=8
clientRequestThreadPoolQueueCapacity=50000
clusterTest=false
configBlackList=configBlackList;configStorePath;kvConfigPath
configStorePath=/opt/rocketmq/namesrv.conf
defaultThreadPoolNums=16
defaultThreadPoolQueueCapacity=10000
deleteTopicWithBrokerRegistration=false
enableAllTopicList=true
enableControllerInNamesrv=false
enableShutdownGracefully=false
enableTopicList=true
kvConfigPath=/opt/rocketmq/namesrv/kvConfig.json
listenPort=9876
needWaitForService=false
notifyMinBrokerIdChanged=false
orderMessageEnable=false
productEnvName=center
returnOrderTopicConfigToBroker=true
rocketmqHome=/opt/rocketmq
scanNotActiveBrokerInterval=5000
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverChannelMaxIdleTimeSeconds=120
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverSocketBacklog=1024
serverSocketRcvBufSize=0
serverSocketSndBufSize=0
serverWorkerThreads=8
shutdownWaitTimeSeconds=30
supportActingMaster=false
unRegisterBrokerQueueCapacity=3000
useEpollNativeSelector=false
waitSecondsForService=45
writeBufferHighWaterMark=0
writeBufferLowWaterMark=0
"""
"""Its answer, without the folder and the port."""

OTHERWISE = {
    "configStorePath": None,
    "kvConfigPath": "",
    "rocketmqHome": None,
    "enableShutdownGracefully": "true",
    "shutdownWaitTimeSeconds": "10",
}
"""Intended differences. None: depends on the machine, or is omitted when not set."""


def live(**flags: str) -> LiveSettings:
    return LiveSettings(load(flags, profile="serve"))


def lines_of(text: str) -> dict[str, str]:
    assert text.endswith("\n")
    return dict(line.split("=", 1) for line in text[:-1].split("\n"))


def test_every_property_of_apaches_answer_is_there_with_its_default() -> None:
    shown = lines_of(properties_text(live()))
    for key, value in lines_of(APACHE_5_5_0).items():
        expected = OTHERWISE.get(key, value)
        assert expected is None or shown[key] == expected, key
    assert shown["configStorePath"].endswith("namesrv.properties")
    assert "rocketmqHome" not in shown


def test_the_lines_are_in_the_order_of_their_keys_and_nothing_is_escaped(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("unknownKey=a\\=b\nfoo.bar=baz\\u00e4\n")
    text = properties_text(LiveSettings(load(file=file)))
    keys = [line.split("=")[0] for line in text.splitlines()]
    assert keys == sorted(keys)
    assert "\nunknownKey=a=b\n" in text
    assert "\nfoo.bar=bazä\n" in text


def test_a_key_without_effect_is_returned_as_written_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("serverWorkerThreads=12\nrocketmqHome=/opt/rocketmq\n")
    shown = lines_of(properties_text(LiveSettings(load(file=file))))
    assert (shown["serverWorkerThreads"], shown["rocketmqHome"]) == ("12", "/opt/rocketmq")
    assert shown["configStorePath"] == str(file)


def test_our_settings_have_a_prefix_and_include_run_time_changes() -> None:
    settings = live(workers="3", drain_ms="1")
    settings.apply({"support_acting_master": "true", "hold_percent": "44"})
    shown = lines_of(properties_text(settings))
    assert (shown["routebook.workers"], shown["routebook.hold_percent"]) == ("3", "44")
    assert shown["supportActingMaster"] == "true"
    assert shown["shutdownWaitTimeSeconds"] == "1"
    assert "routebook.support_acting_master" not in shown


def test_no_secret_is_returned(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("tls.client.keyPassword=hunter2\nmy.secret=hunter2\n")
    secrets: dict[str, str | None] = {
        "admin_token": "hunter2",
        "redis_url": "redis://:hunter2@h",
        "tls_key_password": "hunter2",
    }
    text = properties_text(LiveSettings(load(secrets, file=file)))
    assert "hunter2" not in text
    assert "\nroutebook.admin_token=********\n" in text


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (
            "enableTopicList=false\norderMessageEnable=true\n",
            {"enable_topic_list": "false", "order_message_enable": "true"},
        ),
        ("# c\n! c\n needWaitForService : TRUE\n", {"need_wait_for_service": "true"}),
        ("supportActingMaster True", {"support_acting_master": "true"}),
        ("enableTopicList=yes", {"enable_topic_list": "false"}),
        ("enableTopicList=true \n", {"enable_topic_list": "false"}),
        ("enableTopicList=\nenableAllTopicList", {"enable_topic_list": "false", "enable_all_topic_list": "false"}),
        ("notifyMinBrokerIdChanged=tr\\\n  ue", {"notify_min_broker_id_changed": "true"}),
        ("returnOrderTopicConfigToBroker=\\u0074rue", {"return_order_topic_config_to_broker": "true"}),
        ("deleteTopicWithBrokerRegistration=true", {"delete_topic_with_broker_registration": "true"}),
        ("waitSecondsForService=+7", {"wait_seconds_for_service": "7"}),
        ("waitSecondsForService=007", {"wait_seconds_for_service": "7"}),
        ("waitSecondsForService=7 ", {}),
        ("waitSecondsForService=", {}),
        ("waitSecondsForService=abc", {}),
        ("waitSecondsForService=٣", {}),
        ("waitSecondsForService=99999999999", {}),
        ("waitSecondsForService=-5", {}),  # Apache's accepts it and does not wait; here 0 means that
        ("listenPort=1\nscanNotActiveBrokerInterval=9\nneedWaitForService=true", {"need_wait_for_service": "true"}),
        ("unknownKey=1\nhold_percent=1\nroutebook.hold_percent=1\nenable_topic_list=false", {}),
        ("", {}),
        ("#", {}),
    ],
)
def test_318_changes_the_properties_that_apaches_changes_at_once(text: str, plan: dict[str, str]) -> None:
    assert plan_config_update(text, live()) == plan


def test_a_planned_update_can_be_applied() -> None:
    settings = live()
    for name, text in plan_config_update("waitSecondsForService=7\nenableTopicList=false", settings).items():
        assert settings.check(name, text) == text
        settings.apply({name: text})


@pytest.mark.parametrize("text", ["a=\\u12", "needWaitForService=true\nb=\\uxyzw"])
def test_properties_that_java_cannot_parse_change_nothing(text: str) -> None:
    with pytest.raises(BrokenPropertiesError, match="hexadecimal"):
        plan_config_update(text, live())


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
@pytest.mark.parametrize("black_list", ["configBlackList;configStorePath;kvConfigPath", "", "other"])
def test_a_protected_key_refuses_the_whole_request(key: str, black_list: str) -> None:
    with pytest.raises(ProtectedPropertyError) as raised:
        plan_config_update(f"needWaitForService=true\n{key}=x", live(config_black_list=black_list))
    assert raised.value.keys == (key,)


def test_the_configured_black_list_is_added(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("configBlackList=configBlackList;enableTopicList ;foo.bar\n")
    settings = LiveSettings(load(file=file))
    for key in ("enableTopicList", "foo.bar", "kvConfigPath"):
        with pytest.raises(ProtectedPropertyError):
            plan_config_update(f"{key}=true", settings)
    assert plan_config_update("enableAllTopicList=true", settings)
