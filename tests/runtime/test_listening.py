"""Binding ports, and the errors when that fails."""

import socket
import stat

import pytest

from routebook.errors import SettingsError
from routebook.runtime.ports import http_address, listen, listen_privately, port_of
from routebook.store.embedded import make_run_folder


def test_port_0_takes_a_free_one() -> None:
    with listen("127.0.0.1", 0, "http_port", "bind_address") as listener:
        assert port_of(listener) > 0
        assert http_address(listener) == f"http://127.0.0.1:{port_of(listener)}"
        socket.create_connection(("127.0.0.1", port_of(listener)), timeout=5).close()


def test_the_error_of_a_port_in_use_names_the_setting_and_a_fix() -> None:
    with listen("127.0.0.1", 0, "http_port", "bind_address") as listener:
        port = port_of(listener)
        with pytest.raises(SettingsError) as raised:
            listen("127.0.0.1", port, "admin_port", "admin_host")
    assert str(raised.value).startswith(f"Port {port} (admin_port) is taken by another process.")
    assert "--admin-port or ROUTEBOOK_ADMIN_PORT" in raised.value.advice


@pytest.mark.parametrize("host", ["203.0.113.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_names_the_setting(host: str) -> None:
    with pytest.raises(SettingsError, match=rf"bind_address is '{host}', which is not an address of this machine"):
        listen(host, 0, "http_port", "bind_address")


def test_the_socket_of_a_dead_worker_is_replaced() -> None:
    folder = make_run_folder("worker-1.sock")
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        listen_privately(folder / "worker-1.sock").close()
        listen_privately(folder / "worker-1.sock").close()
    finally:
        (folder / "worker-1.sock").unlink()
        folder.rmdir()
