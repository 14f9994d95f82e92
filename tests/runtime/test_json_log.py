"""`log_format=json`: each line of every process and library is one JSON object."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.traffic import make_traffic, start_service
from tests.runtime.running import Running
from tests.support.waiting import until


def _lines(service: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in service.log.splitlines()]


def _send(address: str, data: bytes) -> None:
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(data)
        peer.settimeout(10)
        peer.recv(1000)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_every_line_is_an_object(store_url: str, tmp_path: Path, workers: int) -> None:
    with start_service(store_url, tmp_path, workers=workers) as service:
        await make_traffic(service)
        await asyncio.to_thread(_send, service.remoting, b"\xff\xff\xff\xff no frame")
        await asyncio.to_thread(_send, service.http, b"no request\r\n\r\n")
        for pid in service.children("worker-process"):
            os.kill(pid, signal.SIGKILL)
        if workers > 1:
            await until(lambda: service.get_admin("/readyz").json().get("ready_workers") == workers, timeout_s=60)
        await asyncio.to_thread(service.stop, within=30)
        lines = _lines(service)
    for line in lines:
        assert {"time", "level", "logger", "message"} <= line.keys()
    loggers = {line["logger"] for line in lines}
    assert {"routebook.changes", "routebook.runtime.service"} <= loggers
    if workers > 1:
        assert {line["worker"] for line in lines if "worker" in line} == {1, 2}
        assert any("signal SIGKILL" in line["message"] for line in lines)
