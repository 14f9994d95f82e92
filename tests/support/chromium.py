"""A real Chromium, spoken to over its debugging pipe: no driver, no port, no package of its own.

    python -m tests.support.chromium page.html picture.png --scheme dark --height 1500

takes a picture.
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
WHY_NOT = "no Chromium on the path"

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
"""Chromium wants these two numbers; a shell would do it only for descriptors of one digit."""


class Page:
    """What the browser said about one page, and ways to ask it more."""

    def __init__(self, pipe: "_Pipe", session: str) -> None:
        self._pipe = pipe
        self._session = session
        self.complaints: list[str] = []
        """Errors and warnings of its console."""
        self.requests: list[str] = []
        """Addresses that it asked for, itself and `data:` left out."""

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._pipe.send(method, parameters, self._session)
        return self._until(lambda said: said.get("id") == number)

    def open(self, address: str, scheme: Scheme, width: int) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._address = address
        number = self._pipe.send("Page.navigate", {"url": address}, self._session)
        loaded: set[object] = set()

        def is_done(said: dict[str, Any]) -> bool:
            loaded.add(said["id"] if said.get("id") == number else said.get("method"))
            return loaded >= {number, "Page.loadEventFired"}

        self._until(is_done)

    def evaluate(self, script: str) -> Any:
        """In the page, where its own policy does not reach: the debugger may, scripts of the page may not."""
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"]
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def take_picture(self, height: int | None = None, top: int = 0, scale: float = 1) -> bytes:
        """As PNG; of the whole page, or of a part."""
        size = self.ask("Page.getLayoutMetrics")["result"]["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"], "scale": scale}
        said = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(said["result"]["data"])

    def _until(self, is_it: Any) -> dict[str, Any]:
        while True:
            said = self._pipe.receive()
            self._note(said)
            if is_it(said):
                assert "error" not in said, said
                return said

    def _note(self, said: dict[str, Any]) -> None:
        about = said.get("params", {})
        match said.get("method"):
            case "Log.entryAdded" if about["entry"]["level"] in {"warning", "error"}:
                self.complaints.append(about["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(str(about))
            case "Network.requestWillBeSent":
                address = about["request"]["url"]
                if address != self._address and not address.startswith("data:"):
                    self.requests.append(address)
            case _:
                pass


class _Pipe:
    """Messages as JSON, each ended by a zero byte; the browser reads its descriptor 3 and writes 4."""

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
            assert more, "Chromium has ended"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        said: dict[str, Any] = json.loads(message)
        return said

    def answer_to(self, number: int) -> dict[str, Any]:
        while True:
            said = self.receive()
            if said.get("id") == number:
                result: dict[str, Any] = said["result"]
                return result


@contextmanager
def chromium_page(address: str, scheme: Scheme = "light", width: int = 1180) -> Iterator[Page]:
    """Loaded; the browser ends with the context."""
    assert CHROMIUM is not None, WHY_NOT
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
            # With its children: they are a process group of their own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(we_write)
            os.close(we_read)


def main() -> None:
    parser = argparse.ArgumentParser(description="A picture of a page, by Chromium.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, default=None, help="else to its end")
    parser.add_argument("--top", type=int, default=0, help="where the picture begins")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    with chromium_page(given.page.resolve().as_uri(), given.scheme, given.width) as page:
        given.picture.write_bytes(page.take_picture(given.height, given.top, given.scale))


if __name__ == "__main__":
    main()
