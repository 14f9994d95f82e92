"""Names, parsers and allowed values follow from `fields.py`."""

from routebook.settings.catalogue import all_settings, names_of_properties


def test_every_setting_has_a_reason_and_its_allowed_values() -> None:
    for name, one in all_settings().items():
        assert len(one.about.why) > 20, name
        assert one.allowed, name


def test_flag_and_variable_follow_from_the_name() -> None:
    one = all_settings()["redis_url"]
    assert (one.flag, one.variable) == ("--redis-url", "ROUTEBOOK_REDIS_URL")


def test_the_canonical_text_parses_to_the_same_value() -> None:
    for name, one in all_settings().items():
        assert one.parse(one.text(one.default)) == one.default, name


def test_each_name_of_rocketmq_means_one_setting() -> None:
    names = names_of_properties()
    assert names["listenPort"] == "remoting_port"
    assert len(set(names.values())) == len(names)
