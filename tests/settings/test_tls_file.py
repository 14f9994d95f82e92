"""The file named by `tls.config.file`, and TLS settings that depend on each other."""

import sys
from pathlib import Path

import pytest

from routebook.errors import SettingsError
from routebook.settings import Origin, load

OWN = {"tls_test_mode": "false", "tls_key_path": "key.pem", "tls_cert_path": "chain.pem"}


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_the_tls_file_overrides_the_file_that_names_it(tmp_path: Path) -> None:
    tls = write(
        tmp_path / "tls.properties", "tls.server.keyPath=/from/tls.pem\ntls.client.authServer=true\nlistenPort=1\n"
    )
    file = write(
        tmp_path / "namesrv.conf",
        f"tls.config.file={tls}\ntls.server.keyPath=/from/conf.pem\ntls.server.certPath=/c.pem\n",
    )
    loaded = load(file=file)
    assert loaded.settings.tls_key_path == "/from/tls.pem"
    assert loaded.settings.tls_cert_path == "/c.pem"
    assert loaded.origins["tls_key_path"] is Origin.FILE
    assert loaded.settings.remoting_port == 9876
    assert loaded.kept_properties == {"tls.client.authServer": "true"}


def test_flags_and_variables_override_the_tls_file(tmp_path: Path) -> None:
    tls = write(tmp_path / "tls.properties", "tls.server.keyPath=/from/tls.pem\ntls.server.certPath=/from/tls.pem\n")
    loaded = load(
        {"tls_config_file": str(tls), "tls_key_path": "/from/flag.pem"},
        {"ROUTEBOOK_TLS_CERT_PATH": "/from/variable.pem"},
    )
    assert (loaded.settings.tls_key_path, loaded.settings.tls_cert_path) == ("/from/flag.pem", "/from/variable.pem")


def test_a_tls_file_named_by_the_user_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere.properties cannot be read.*tls_config_file \(tls.config.file\)"):
        load({"tls_config_file": str(tmp_path / "nowhere.properties")})
    load({"tls_config_file": ""})


def test_an_error_of_the_tls_file_names_the_file(tmp_path: Path) -> None:
    tls = write(tmp_path / "tls.properties", "tls.server.mode=strict\n")
    with pytest.raises(
        SettingsError, match=r"from tls.server.mode in .*tls.properties.*permissive, enforcing, disabled"
    ):
        load({"tls_config_file": str(tls)})


@pytest.mark.parametrize("mode", ["strict", "ENFORCING", ""])
def test_an_unknown_mode_stops_the_start_where_apaches_becomes_permissive(mode: str) -> None:
    with pytest.raises(SettingsError, match="permissive, enforcing, disabled"):
        load({"tls_mode": mode})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"tls_test_mode": "false", "tls_key_path": "k"}, "Set both"),
        ({"tls_test_mode": "false", "tls_cert_path": "c"}, "Set both"),
        ({"tls_test_mode": "false", "tls_mode": "enforcing"}, "no client could connect"),
        (OWN | {"tls_auth_client": "true"}, "Set tls_trust_path"),
    ],
)
def test_a_combination_that_cannot_work_stops_the_start(flags: dict[str, str | None], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load(flags)
    load(flags | {"tls_mode": "disabled"})


def test_files_ignored_in_test_mode_are_logged_once() -> None:
    (warning,) = load({"tls_key_path": "k", "tls_cert_path": "c"}).warnings
    assert "are ignored. Set it to false" in warning
    assert not load(OWN).warnings
    assert not load().warnings


def test_the_password_of_the_key_is_not_shown() -> None:
    loaded = load(OWN | {"tls_key_password": "hunter2"})
    assert "hunter2" not in f"{loaded!r}"


def test_test_mode_that_is_enforced_needs_the_package_that_makes_the_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load({"tls_mode": "enforcing"})
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SettingsError, match=r"pip install 'routebook\[tls\]'"):
        load({"tls_mode": "enforcing"})
    load({"tls_mode": "permissive"})
