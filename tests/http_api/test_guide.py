"""The examples in docs/http-api.md work."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.http_api.conftest import Worker

GUIDE = Path(__file__).parents[2] / "docs" / "http-api.md"
TIMED_OUT = 28


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_every_example_of_the_page_succeeds(worker: Worker, tmp_path: Path) -> None:
    examples = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    program = str(Path(sys.executable).parent)
    env = {
        **os.environ,
        "PATH": f"{program}{os.pathsep}{os.environ['PATH']}",
        "ROUTEBOOK_URL": f"http://127.0.0.1:{worker.port}",
    }
    for example in examples:
        is_stream = "curl -N" in example
        script = example.replace("127.0.0.1:8080", f"127.0.0.1:{worker.port}")
        # A stream never ends; any other request may take long on a busy machine.
        limit_s = 2 if is_stream else 30
        script = script.replace("curl ", f"curl --silent --show-error --fail-with-body --max-time {limit_s} ")
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-e",
            "-c",
            script,
            cwd=tmp_path,
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if "/v1/questions/" in example:
            # They need a warm session of the pipeline; tests/http_api/test_questions.py has one.
            assert b"pipeline_socket" in output, output
            continue
        assert process.returncode == (TIMED_OUT if is_stream else 0), (example, output)
        if is_stream:
            assert (b"event: route" if "/v1/watch" in example else b"the stream begins") in output
