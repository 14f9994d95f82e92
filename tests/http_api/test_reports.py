"""Reports lie in a folder; the worker lists them and hands them out, and nothing else of the machine."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from routebook.http_api.routers import reports
from routebook.http_api.routers.reports import ReportFile
from routebook.store.namespace import Namespace
from tests.http_api.conftest import Worker, running
from tests.http_api.ports import line_to

NOVEMBER = "report-default-2026-11-01--2026-11-15.html"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "reports"
    made.mkdir()
    return made


@pytest.fixture
async def showing(namespace: Namespace, folder: Path) -> AsyncIterator[Worker]:
    async with running(namespace, reports_dir=str(folder)) as one:
        yield one


def put(folder: Path, name: str, text: str = "<h1>fine</h1>", *, modified_s: int = 1_800_000_000) -> None:
    (folder / name).write_text(text)
    os.utime(folder / name, (modified_s, modified_s))


async def test_the_newest_comes_first_with_what_its_name_says(showing: Worker, folder: Path) -> None:
    put(folder, "old.html", modified_s=1_700_000_000)
    put(folder, NOVEMBER, "<h1>November</h1>")
    body = (await showing.http.get("/v1/reports")).json()
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


async def test_the_list_is_bounded_and_says_how_many_there_are(showing: Worker, folder: Path) -> None:
    for number in range(4):
        put(folder, f"{number}.html", modified_s=1_700_000_000 + number)
    body = (await showing.http.get("/v1/reports?limit=2")).json()
    assert [one["name"] for one in body["reports"]] == ["3.html", "2.html"]
    assert body["total"] == 4
    assert (await showing.http.get("/v1/reports?limit=0")).status_code == 422


async def test_a_report_is_shown_as_it_is_and_may_do_nothing(showing: Worker, folder: Path) -> None:
    put(folder, NOVEMBER, "<h1>Novembér</h1>")
    answer = await showing.http.get(f"/v1/reports/{NOVEMBER}")
    assert answer.text == "<h1>Novembér</h1>"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-routebook-version"]


async def test_the_list_names_addresses_that_answer(showing: Worker, folder: Path) -> None:
    put(folder, "a+b=c@d.html", "plus")
    (listed,) = (await showing.http.get("/v1/reports")).json()["reports"]
    assert (await showing.http.get(listed["url"])).text == "plus"


async def test_latest_leads_to_the_newest(showing: Worker, folder: Path) -> None:
    put(folder, "old.html", "old", modified_s=1_700_000_000)
    put(folder, "new.html", "new")
    answer = await showing.http.get("/v1/reports/latest")
    assert answer.status_code == 307
    assert answer.headers["location"] == "new.html"
    assert (await showing.http.get("/v1/reports/latest", follow_redirects=True)).text == "new"


async def test_an_empty_folder_has_no_latest(showing: Worker) -> None:
    assert (await showing.http.get("/v1/reports")).json() == {"reports": [], "total": 0}
    answer = await showing.http.get("/v1/reports/latest")
    assert (answer.status_code, answer.json()["type"]) == (404, "report-not-found")


async def test_without_the_setting_the_answer_names_it(worker: Worker) -> None:
    for path in ("/v1/reports", "/v1/reports/latest", f"/v1/reports/{NOVEMBER}"):
        answer = await worker.http.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "no-reports-folder")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "ROUTEBOOK_REPORTS_DIR" in answer.json()["advice"]


async def test_a_folder_that_is_not_there_is_a_problem_that_does_not_say_where(showing: Worker, folder: Path) -> None:
    folder.rmdir()
    for path in ("/v1/reports", "/v1/reports/latest", f"/v1/reports/{NOVEMBER}"):
        answer = await showing.http.get(path)
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
async def test_nothing_outside_the_folder_is_reached(showing: Worker, folder: Path, path: str) -> None:
    put(folder.parent, "secret.html", "secret")
    put(folder, ".hidden.html", "secret")
    put(folder, "notes.txt", "secret")
    (folder / "sub").mkdir()
    put(folder / "sub", "inside.html", "secret")
    # A client would tidy such a path up before it asked.
    async with line_to(showing.port) as line:
        await line.say(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await line.all()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2].replace(b"secret.html", b"")
    assert b"X-Evil:1\r\n" not in answer
    assert (await showing.http.get("/v1/reports")).json()["total"] == 0


async def test_what_is_no_plain_file_is_no_report(showing: Worker, folder: Path) -> None:
    put(folder.parent, "secret.html", "secret")
    put(folder, "real.html")
    (folder / "out.html").symlink_to(folder.parent / "secret.html")
    (folder / "in.html").symlink_to("real.html")
    (folder / "folder.html").mkdir()
    os.mkfifo(folder / "pipe.html")
    body = (await showing.http.get("/v1/reports")).json()
    assert [one["name"] for one in body["reports"]] == ["real.html"]
    for name in ("out", "in", "folder", "pipe", "absent"):
        answer = await showing.http.get(f"/v1/reports/{name}.html")
        assert (answer.status_code, answer.json()["type"]) == (404, "report-not-found"), name


async def test_a_file_too_large_to_be_a_report_is_none(
    showing: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "large.html", "x" * 101)
    put(folder, "small.html", "x" * 100)
    monkeypatch.setattr(reports, "MAX_BYTES", 100)
    assert [one["name"] for one in (await showing.http.get("/v1/reports")).json()["reports"]] == ["small.html"]
    assert (await showing.http.get("/v1/reports/large.html")).status_code == 404
    assert (await showing.http.get("/v1/reports/small.html")).status_code == 200


async def test_a_folder_may_be_a_link_itself(namespace: Namespace, folder: Path, tmp_path: Path) -> None:
    put(folder, "a.html", "there")
    (tmp_path / "link").symlink_to(folder)
    async with running(namespace, reports_dir=str(tmp_path / "link")) as one:
        assert (await one.http.get("/v1/reports/a.html")).text == "there"


async def test_only_reading_is_possible(showing: Worker, folder: Path) -> None:
    put(folder, "a.html")
    for method in ("PUT", "DELETE", "POST"):
        assert (await showing.http.request(method, "/v1/reports/a.html")).status_code == 405
    head = await showing.http.head("/v1/reports/a.html")
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
def test_the_window_is_read_off_the_name(name: str, window: tuple[int, int] | None) -> None:
    assert ReportFile(name, 1, 1).window_ms == window
