"""The settings that a supervisor sends to its workers arrive unchanged."""

import socket
from pathlib import Path

from routebook.runtime.handover import Handover
from routebook.runtime.ports import PublicPorts
from routebook.settings import LiveSettings, load
from routebook.settings.live import properties_text


def test_settings_and_origins_arrive_unchanged() -> None:
    ports = PublicPorts(socket.socket(), socket.socket())
    loaded = load({"admin_token": "hunter2", "data_dir": "/some/where"}, {"ROUTEBOOK_HOLD_PERCENT": "7"})
    handover = Handover.of(loaded, number=3, public=ports, admin_socket=Path("/run/x/worker-3.sock"))
    arrived = Handover.from_line(handover.to_line())
    assert arrived == handover
    assert arrived.loaded().settings == loaded.settings
    assert arrived.loaded().origins == loaded.origins
    with ports.remoting, ports.http:
        assert (arrived.remoting_socket, arrived.http_socket) == (ports.remoting.fileno(), ports.http.fileno())


def test_kept_properties_shown_by_319_arrive_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9877\nrocketmqHome=/opt/rocketmq\nsome.password=hunter2\n")
    loaded = load({}, {}, file)
    ports = PublicPorts(socket.socket(), socket.socket())
    with ports.remoting, ports.http:
        handover = Handover.of(loaded, number=1, public=ports, admin_socket=Path("x"))
    arrived = Handover.from_line(handover.to_line()).loaded()
    assert arrived.kept_properties == loaded.kept_properties
    assert properties_text(LiveSettings(arrived)) == properties_text(LiveSettings(loaded))
    assert b"hunter2" not in handover.to_line()


def test_a_handover_is_one_line() -> None:
    ports = PublicPorts(socket.socket(), socket.socket())
    handover = Handover.of(load({"redis_url": "redis://h"}), number=1, public=ports, admin_socket=Path("x"))
    with ports.remoting, ports.http:
        assert handover.to_line().count(b"\n") == 1
