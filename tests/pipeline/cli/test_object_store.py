"""A lake in an object store: every command to its end, against moto's S3 server on this machine.

Not part of any default run, because it needs two things that the project does not install: moto, and the connector of
0.7 GB. docs/lake.md, "In an object store", has the commands.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.cli.commands import ENTRIES, LIGHT, export_file, last_day, seat_entry, two_days
from tests.pipeline.cli.shell import Result, Shell
from tests.pipeline.source.streams import Stream

JARS_VARIABLE = "ROUTEBOOK_TEST_S3_JARS"
BUCKET = "history"
CONNECTOR = "hadoop-aws"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def jars() -> str:
    """The connector's jars, as a class path of Java."""
    folder = os.environ.get(JARS_VARIABLE, "")
    found = sorted(Path(folder).glob("*.jar")) if folder else []
    if not any(CONNECTOR in jar.name for jar in found):
        pytest.skip(f"{JARS_VARIABLE} names no folder with the jars of {CONNECTOR} (docs/lake.md)")
    return str(Path(folder).resolve() / "*")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    server = pytest.importorskip("moto.server", reason="needs moto's S3 server: pip install 'moto[server]'")
    boto3 = pytest.importorskip("boto3", reason="comes with moto")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    yield address
    running.stop()


def test_every_command_works_to_its_end(
    jars: str, endpoint: str, stream: Stream, environment: dict[str, str], midnight_ms: int, tmp_path: Path
) -> None:
    entries = two_days(midnight_ms)
    stream.append(entries)
    credentials = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    settings = (
        # Not `spark.jars`: every session would copy the jars, and load their classes once more.
        *("--conf", f"spark.driver.extraClassPath={jars}"),
        *("--conf", f"spark.hadoop.fs.s3a.endpoint={endpoint}"),
        *("--conf", "spark.hadoop.fs.s3a.path.style.access=true"),
    )
    with Shell({**environment, **credentials, "ROUTEBOOK_LAKE": f"s3://{BUCKET}/lake"}) as shell:

        def run(*words: str, code: int = 0) -> Result:
            result = shell.pipeline(*words, *LIGHT, *settings)
            assert result.code == code, (words, result)
            return result

        run("ingest", "--once", "--max-entries", "20")
        assert shell.pipeline("run", "compact", "--json").code == 0
        day = last_day(midnight_ms)
        for name, question in QUESTIONS.items():
            for level in question.levels:
                answer = json.loads(run("run", name, "--by", level, *day, "--json").out)
                assert answer["ok"] is True, (name, level)
        run("run", "events", *day, "--parquet", f"s3://{BUCKET}/events.parquet")
        assert '"topic": "orders"' in run("route-at", "orders", "--json").out
        run("backfill", *day)
        run("report", *day, "--out", str(tmp_path / "report.html"))
        run("nightly", "--days", "2", "--out", str(tmp_path / "night.html"))
        run("run", "snapshot")
        checked = json.loads(run("run", "check", "--json", code=1).out)
        assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, {"json": 1})]
        assert shell.pipeline("run", "vacuum").code == 0
        assert shell.pipeline("doctor", "--json").code == 0
        (tmp_path / "changes.jsonl").write_text(export_file(entries))
        run("backfill", "--import", str(tmp_path / "changes.jsonl"), "--lake", f"s3://{BUCKET}/other", *day)
        run("run", "rebase", code=1)
        stream.drop()
        stream.append(
            [(EntryId(midnight_ms + version, version), seat_entry("broker-registered")) for version in (1, 2)]
        )
        run("ingest", "--once", code=4)
        run("run", "rebase")
        run("ingest", "--once")
        eras = json.loads(run("run", "check", "--json", code=1).out)["integrity"]
        assert [(era["era"], era["entries"]) for era in eras] == [(0, ENTRIES), (1, 2)]
