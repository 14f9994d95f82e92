"""The worker lists and serves the reports in a folder, and no other file."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from routebook.http_api import reports
from routebook.http_api.reports import ReportFile
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running
from tests.http_api.ports import raw_connection

NOVEMBER = "report-default-2026-11-01--2026-11-15.html"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


@pytest.fixture
async def worker_with_reports(namespace: Namespace, folder: Path) -> AsyncIterator[Worker]:
    async with running(namespace, reports_dir=str(folder)) as one:
        yield one


def put(folder: Path, name: str, text: str = "<h1>fine</h1>", *, modified_s: int = 1_800_000_000) -> None:
    (folder / name).write_text(text)
    os.utime(folder / name, (modified_s, modified_s))


async def test_reports_are_listed_newest_first_with_their_window(worker_with_reports: Worker, folder: Path) -> None:
    put(folder, "old.html", modified_s=1_700_000_000)
    put(folder, NOVEMBER, "<h1>November</h1>")
    body = (await worker_with_reports.http.get("/v1/reports")).json()
    assert body == {
        "reports": [
            {
                "name": NOVEMBER,
                "bytes": 17,
                "modified_ms": 1_800_000_000_000,
                "window": {"from_ms": 1_793_491_200_000, "to_ms": 1_794_700_800_000},
                "url": f"/v1/reports/{NOVEMBER}",
            },
            {
                "name": "old.html",
                "bytes": 13,
                "modified_ms": 1_700_000_000_000,
                "window": None,
                "url": "/v1/reports/old.html",
            },
        ],
        "total": 2,
    }


async def test_the_list_of_reports_is_limited_and_has_the_total(worker_with_reports: Worker, folder: Path) -> None:
    for number in range(4):
        put(folder, f"{number}.html", modified_s=1_700_000_000 + number)
    body = (await worker_with_reports.http.get("/v1/reports?limit=2")).json()
    assert [one["name"] for one in body["reports"]] == ["3.html", "2.html"]
    assert body["total"] == 4
    assert (await worker_with_reports.http.get("/v1/reports?limit=0")).status_code == 422


async def test_a_report_is_served_unchanged_with_a_policy_against_scripts(
    worker_with_reports: Worker, folder: Path
) -> None:
    put(folder, NOVEMBER, "<h1>Novembér</h1>")
    answer = await worker_with_reports.http.get(f"/v1/reports/{NOVEMBER}")
    assert answer.text == "<h1>Novembér</h1>"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-routebook-version"]


async def test_the_listed_url_of_a_report_works(worker_with_reports: Worker, folder: Path) -> None:
    put(folder, "a+b=c@d.html", "plus")
    (listed,) = (await worker_with_reports.http.get("/v1/reports")).json()["reports"]
    assert (await worker_with_reports.http.get(listed["url"])).text == "plus"


async def test_latest_redirects_to_the_newest_report(worker_with_reports: Worker, folder: Path) -> None:
    put(folder, "old.html", "old", modified_s=1_700_000_000)
    put(folder, "new.html", "new")
    answer = await worker_with_reports.http.get("/v1/reports/latest")
    assert answer.status_code == 307
    assert answer.headers["location"] == "new.html"
    assert (await worker_with_reports.http.get("/v1/reports/latest", follow_redirects=True)).text == "new"


async def test_an_empty_folder_has_no_latest_report(worker_with_reports: Worker) -> None:
    assert (await worker_with_reports.http.get("/v1/reports")).json() == {"reports": [], "total": 0}
    answer = await worker_with_reports.http.get("/v1/reports/latest")
    assert (answer.status_code, answer.json()["type"]) == (404, "report-not-found")


async def test_without_a_report_folder_the_problem_names_the_setting(worker: Worker) -> None:
    for path in ("/v1/reports", "/v1/reports/latest", f"/v1/reports/{NOVEMBER}"):
        answer = await worker.http.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "no-reports-folder")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "ROUTEBOOK_REPORTS_DIR" in answer.json()["advice"]


async def test_a_missing_report_folder_is_a_problem_without_its_path(worker_with_reports: Worker, folder: Path) -> None:
    folder.rmdir()
    for path in ("/v1/reports", "/v1/reports/latest", f"/v1/reports/{NOVEMBER}"):
        answer = await worker_with_reports.http.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "no-reports-folder")
        assert str(folder) not in answer.text
        assert "reports_dir" in answer.json()["advice"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/reports/../secret.html",
        "/v1/reports/%2e%2e/secret.html",
        "/v1/reports/%2e%2e%2fsecret.html",
        "/v1/reports/..%2fsecret.html",
        "/v1/reports/..%5csecret.html",
        "/v1/reports/%252e%252e%252fsecret.html",
        "/v1/reports//etc/passwd",
        "/v1/reports/%2fetc%2fpasswd",
        "/v1/reports/sub%2finside.html",
        "/v1/reports/.hidden.html",
        "/v1/reports/notes.txt",
        "/v1/reports/a%00.html",
        "/v1/reports/a%0d%0aX-Evil:1.html",
        "/v1/reports/" + "a" * 300 + ".html",
    ],
)
async def test_no_path_reaches_files_outside_the_report_folder(
    worker_with_reports: Worker, folder: Path, path: str
) -> None:
    put(folder.parent, "secret.html", "secret")
    put(folder, ".hidden.html", "secret")
    put(folder, "notes.txt", "secret")
    (folder / "sub").mkdir()
    put(folder / "sub", "inside.html", "secret")
    # An HTTP client would normalize such a path.
    async with raw_connection(worker_with_reports.port) as connection:
        await connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await connection.read_all()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2].replace(b"secret.html", b"")
    assert b"X-Evil:1\r\n" not in answer
    assert (await worker_with_reports.http.get("/v1/reports")).json()["total"] == 0


async def test_only_regular_files_are_reports(worker_with_reports: Worker, folder: Path) -> None:
    put(folder.parent, "secret.html", "secret")
    put(folder, "real.html")
    (folder / "out.html").symlink_to(folder.parent / "secret.html")
    (folder / "in.html").symlink_to("real.html")
    (folder / "folder.html").mkdir()
    os.mkfifo(folder / "pipe.html")
    body = (await worker_with_reports.http.get("/v1/reports")).json()
    assert [one["name"] for one in body["reports"]] == ["real.html"]
    for name in ("out", "in", "folder", "pipe", "absent"):
        answer = await worker_with_reports.http.get(f"/v1/reports/{name}.html")
        assert (answer.status_code, answer.json()["type"]) == (404, "report-not-found"), name


async def test_a_file_above_the_size_limit_is_no_report(
    worker_with_reports: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "large.html", "x" * 101)
    put(folder, "small.html", "x" * 100)
    monkeypatch.setattr(reports, "MAX_BYTES", 100)
    assert [one["name"] for one in (await worker_with_reports.http.get("/v1/reports")).json()["reports"]] == [
        "small.html"
    ]
    assert (await worker_with_reports.http.get("/v1/reports/large.html")).status_code == 404
    assert (await worker_with_reports.http.get("/v1/reports/small.html")).status_code == 200


async def test_the_report_folder_may_be_a_symbolic_link(namespace: Namespace, folder: Path, tmp_path: Path) -> None:
    put(folder, "a.html", "there")
    (tmp_path / "link").symlink_to(folder)
    async with running(namespace, reports_dir=str(tmp_path / "link")) as one:
        assert (await one.http.get("/v1/reports/a.html")).text == "there"


async def test_reports_are_read_only(worker_with_reports: Worker, folder: Path) -> None:
    put(folder, "a.html")
    for method in ("PUT", "DELETE", "POST"):
        assert (await worker_with_reports.http.request(method, "/v1/reports/a.html")).status_code == 405
    head = await worker_with_reports.http.head("/v1/reports/a.html")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "13", b"")


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("2026-11-01--2026-11-15.html", (1_793_491_200_000, 1_794_700_800_000)),
        ("r-2020-01-01-2026-11-01T0430Z--2026-11-01T043015Z.html", (1_793_507_400_000, 1_793_507_415_000)),
        ("2026-13-01--2026-11-15.html", None),
        ("2026-11-01_2026-11-15.html", None),
        ("report.html", None),
    ],
)
def test_the_window_comes_from_the_file_name(name: str, window: tuple[int, int] | None) -> None:
    assert ReportFile(name, 1, 1).window_ms == window
