"""The description of the API, and the pages that show it."""

import re

import pytest
from fastapi.routing import APIRoute

from routebook.http_api.app import ALL_ROUTERS, build_operations
from tests.http_api.conftest import Worker

DOCUMENT = build_operations(None).openapi()
OPERATIONS = [
    (method, path, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
every_operation = pytest.mark.parametrize(
    "operation", [operation for _, _, operation in OPERATIONS], ids=[f"{m} {p}" for m, p, _ in OPERATIONS]
)

CONTRACT_PATHS = {
    ("get", "/v1/routes/{topic}"),
    ("get", "/v1/watch"),
    ("get", "/v1/topics"),
    ("get", "/v1/topics/{topic}"),
    ("get", "/v1/brokers"),
    ("get", "/v1/brokers/{name}"),
    ("get", "/v1/clusters"),
    ("get", "/v1/clusters/{name}"),
    ("put", "/v1/clusters/{cluster}/brokers/{name}/{id}"),
    ("delete", "/v1/clusters/{cluster}/brokers/{name}/{id}"),
    ("post", "/v1/clusters/{cluster}/brokers/{name}/{id}/heartbeat"),
    ("put", "/v1/brokers/{name}/write-permission"),
    ("put", "/v1/topics/{topic}"),
    ("delete", "/v1/topics/{topic}"),
    ("get", "/v1/kv/{namespace}/{key}"),
    ("put", "/v1/kv/{namespace}/{key}"),
    ("delete", "/v1/kv/{namespace}/{key}"),
    ("get", "/v1/kv/{namespace}"),
    ("get", "/v1/status"),
    ("get", "/v1/changes"),
    ("post", "/v1/changes/baseline"),
    ("get", "/v1/settings"),
    ("get", "/v1/snapshot"),
    ("put", "/v1/snapshot"),
    ("put", "/v1/settings/{key}"),
    ("delete", "/v1/settings/{key}"),
    ("get", "/v1/kv"),
    ("get", "/v1/readers"),
    ("delete", "/v1/readers/{name}"),
    ("get", "/v1/identities"),
    ("post", "/v1/identities"),
    ("delete", "/v1/identities/{name}"),
    ("get", "/v1/expiry"),
    ("post", "/v1/expiry/release"),
    ("get", "/v1/questions/{question}"),
    ("get", "/v1/reports"),
    ("get", "/v1/reports/latest"),
    ("get", "/v1/reports/{name}"),
    ("get", "/rocketmq/nsaddr"),
    ("get", "/rocketmq/{group}-{unit}"),
}


def test_the_paths_are_those_of_the_contract() -> None:
    assert {(method, path) for method, path, _ in OPERATIONS} == CONTRACT_PATHS


def test_no_path_shadows_another() -> None:
    seen: list[APIRoute] = []
    for router in ALL_ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            example = re.sub(r"{[^}]*}", "1", route.path_format)
            shadowing = [
                other.path for other in seen if _shares_method(other, route) and other.path_regex.match(example)
            ]
            assert shadowing == [], route.path
            seen.append(route)


def _shares_method(one: APIRoute, other: APIRoute) -> bool:
    return bool((one.methods or set()) & (other.methods or set()))


@every_operation
def test_every_operation_has_a_summary_description_and_tag(operation: dict[str, object]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]


@every_operation
def test_problems_are_described_as_problems(operation: dict[str, dict[str, dict[str, object]]]) -> None:
    for status, answer in operation["responses"].items():
        if int(status) >= 400:
            assert list(answer["content"]) == ["application/problem+json"], status  # type: ignore[call-overload]


def test_reads_describe_their_freshness_headers() -> None:
    for method, path, operation in OPERATIONS:
        success = next(answer for status, answer in operation["responses"].items() if int(status) < 400)
        has_headers = "X-Routebook-Version" in success.get("headers", {})
        assert has_headers == (method == "get"), path


def test_every_schema_reference_exists() -> None:
    text = str(DOCUMENT)
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in DOCUMENT["components"]["schemas"]


def test_addresses_in_examples_are_on_loopback() -> None:
    for address in re.findall(r"\d+\.\d+\.\d+\.\d+(?=:\d)", str(DOCUMENT)):
        assert address.startswith("127.")


async def test_the_api_description_is_served(worker: Worker) -> None:
    answer = await worker.http.get("/openapi.json")
    assert answer.json()["info"]["title"] == "Routebook"


async def test_no_page_loads_anything_from_another_host(worker: Worker) -> None:
    page = await worker.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"(src|href)=[\"'](https?:)?//", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]
    links = re.findall(r"(?:src|href)=\"([^\"]+)\"", page.text)
    assert len(links) == 4
    for link in links:
        answer = await worker.http.get(f"/{link}")
        assert answer.status_code == 200, link
        assert answer.content
    start = (await worker.http.get("/docs/assets/start.js")).text
    assert "validatorUrl: null" in start


async def test_the_licence_of_swagger_ui_is_served(worker: Worker) -> None:
    answer = await worker.http.get("/docs/assets/swagger-ui/LICENSE")
    assert "Apache License" in answer.text
