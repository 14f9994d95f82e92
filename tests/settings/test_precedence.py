"""Flag before variable before run time before file before default, for every subset of sources."""

from itertools import product
from pathlib import Path

import pytest

from routebook.settings import LiveSettings, Origin, load

VALUES = {
    Origin.FLAG: "debug",
    Origin.VARIABLE: "warning",
    Origin.RUN_TIME: "error",
    Origin.FILE: "debug",
    Origin.DEFAULT: "info",
}
SUBSETS = list(product([False, True], repeat=4))


@pytest.mark.parametrize("given", SUBSETS, ids=lambda given: "".join("x" if one else "-" for one in given))
def test_the_strongest_source_wins_and_is_the_origin(given: tuple[bool, ...], tmp_path: Path) -> None:
    sources = [Origin.FLAG, Origin.VARIABLE, Origin.RUN_TIME, Origin.FILE]
    present = [source for source, is_given in zip(sources, given, strict=True) if is_given]
    file = tmp_path / "routebook.toml"
    file.write_text(f'log_level = "{VALUES[Origin.FILE]}"\n' if Origin.FILE in present else "")

    live = LiveSettings(
        load(
            {"log_level": VALUES[Origin.FLAG] if Origin.FLAG in present else None},
            {"ROUTEBOOK_LOG_LEVEL": VALUES[Origin.VARIABLE]} if Origin.VARIABLE in present else {},
            file,
        )
    )
    live.apply({"log_level": VALUES[Origin.RUN_TIME]} if Origin.RUN_TIME in present else {})

    winner = present[0] if present else Origin.DEFAULT
    assert live.origin("log_level") == winner
    assert live.current.log_level == VALUES[winner]
    assert ("log_level", VALUES[winner], str(winner)) in live.describe()


def test_up_binds_loopback_and_serve_all_addresses() -> None:
    assert load(profile="up").settings.bind_address == "127.0.0.1"
    assert load(profile="serve").settings.bind_address == "0.0.0.0"
    assert load(profile="serve").settings.admin_host == "127.0.0.1"


def test_a_given_address_overrides_the_default_of_the_command() -> None:
    loaded = load({}, {"ROUTEBOOK_BIND_ADDRESS": "::1"}, profile="serve")
    assert loaded.settings.bind_address == "::1"
    assert loaded.origins["bind_address"] is Origin.VARIABLE


def test_defaults_are_within_their_own_rules() -> None:
    loaded = load()
    assert load({name: str(value) for name, value in loaded.settings}).settings == loaded.settings
