"""Drives a real Chromium over its debugging pipe. This requires no driver, no port and no package.

    python -m tests.support.chromium page.html screenshot.png --scheme dark --height 1500

takes a screenshot.
"""

import argparse
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
NO_CHROMIUM = "Chromium is not on the PATH"

Scheme = Literal["light", "dark"]

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
)
_START = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])"""
"""Chromium requires these two descriptors. A shell can redirect only descriptors of one digit."""


class Page:
    """One page: what the browser reported about it, and commands for it."""

    def __init__(self, pipe: "_Pipe", session: str) -> None:
        self._pipe = pipe
        self._session = session
        self.complaints: list[str] = []
        """Errors and warnings on its console."""
        self.requests: list[str] = []
        """Addresses that it requested, without its own and `data:`."""

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._pipe.send(method, parameters, self._session)
        return self._receive_until(lambda message: message.get("id") == number)

    def open(self, address: str, scheme: Scheme, width: int) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._address = address
        number = self._pipe.send("Page.navigate", {"url": address}, self._session)
        loaded: set[object] = set()

        def is_done(message: dict[str, Any]) -> bool:
            loaded.add(message["id"] if message.get("id") == number else message.get("method"))
            return loaded >= {number, "Page.loadEventFired"}

        self._receive_until(is_done)

    def evaluate(self, script: str) -> Any:
        """Runs a script as the debugger, to which the page's content security policy does not apply."""
        result = self.command("Runtime.evaluate", expression=script, returnByValue=True)["result"]
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def take_screenshot(self, height: int | None = None, top: int = 0, scale: float = 1) -> bytes:
        """A PNG of the whole page or a part of it."""
        size = self.command("Page.getLayoutMetrics")["result"]["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"], "scale": scale}
        captured = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(captured["result"]["data"])

    def _receive_until(self, is_wanted: Any) -> dict[str, Any]:
        while True:
            message = self._pipe.receive()
            self._record(message)
            if is_wanted(message):
                assert "error" not in message, message
                return message

    def _record(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded" if parameters["entry"]["level"] in {"warning", "error"}:
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(str(parameters))
            case "Network.requestWillBeSent":
                address = parameters["request"]["url"]
                if address != self._address and not address.startswith("data:"):
                    self.requests.append(address)
            case _:
                pass


class _Pipe:
    """JSON messages, each with a zero byte at its end. The browser reads descriptor 3 and writes descriptor 4."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._numbers = itertools.count(1)
        self._read = b""

    def send(self, method: str, parameters: dict[str, Any], session: str | None = None) -> int:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return number

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._from, 1 << 20)
            assert more, "Chromium exited"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received

    def answer_to(self, number: int) -> dict[str, Any]:
        while True:
            message = self.receive()
            if message.get("id") == number:
                result: dict[str, Any] = message["result"]
                return result


@contextmanager
def chromium_page(address: str, scheme: Scheme = "light", width: int = 1180) -> Iterator[Page]:
    """The loaded page. The browser exits when the context ends."""
    assert CHROMIUM is not None, NO_CHROMIUM
    browser_reads, we_write = os.pipe()
    we_read, browser_writes = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        flags = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(browser_reads), str(browser_writes), CHROMIUM, *flags],
            pass_fds=(browser_reads, browser_writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(browser_reads)
        os.close(browser_writes)
        try:
            pipe = _Pipe(we_write, we_read)
            target = pipe.answer_to(pipe.send("Target.createTarget", {"url": "about:blank"}))["targetId"]
            attached = pipe.send("Target.attachToTarget", {"targetId": target, "flatten": True})
            page = Page(pipe, pipe.answer_to(attached)["sessionId"])
            page.open(address, scheme, width)
            yield page
        finally:
            # Its child processes are in the same process group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(we_write)
            os.close(we_read)


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes a screenshot of a page with Chromium.")
    parser.add_argument("page", type=Path)
    parser.add_argument("screenshot", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, default=None, help="default: to the end of the page")
    parser.add_argument("--top", type=int, default=0, help="where the screenshot begins")
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    with chromium_page(arguments.page.resolve().as_uri(), arguments.scheme, arguments.width) as page:
        arguments.screenshot.write_bytes(page.take_screenshot(arguments.height, arguments.top, arguments.scale))


if __name__ == "__main__":
    main()
