"""One seat of a group: registering a broker, its heartbeats, and its deregistration.

Nearly every PUT repeats the previous registration of its broker. FastAPI's routing and validation would cost several
times as much as the rest of such a request, so `RegistrationEndpoint` answers it in front of FastAPI: it passes the raw
request to the registry, which asks for the validated body only when it has to compare it. FastAPI describes the
operation in `/openapi.json`, from the signature of `register_broker`.
"""

import dataclasses
import re
from collections.abc import Generator, Iterator
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import msgspec
from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.errors import InvalidInputError, LimitError, NotFoundError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.callers import SeatBrokerDep, SeatOwnerDep, authorize, covers_seat
from routebook.http_api.dependencies import (
    AppContext,
    BrokerId,
    BrokerName,
    ClusterName,
    DryRunFlag,
    RegistryDep,
    refuse_unknown_parameters,
)
from routebook.http_api.middleware import PATH_PATTERN, check_values_in_steps, decode_in_steps
from routebook.http_api.openapi import ADMIN, BODY, INPUT, STORE, WRITE, not_found, problem_responses
from routebook.http_api.problems import Problem
from routebook.http_api.schemas import (
    INT32_MAX,
    INT64_MAX,
    DryRunResult,
    RequestBody,
    ResponseBody,
    Version,
    WriteResult,
)
from routebook.model.broker import (
    DataVersion,
    QueueData,
    Registration,
    RegistrationResult,
    Seat,
    TopicMapping,
    parts_of,
)
from routebook.model.identity import Role
from routebook.model.names import check_address, check_broker_id, check_name
from routebook.registry.dry_runs import plan_broker_removal
from routebook.settings.fields import Settings

_COUNT = Annotated[int, Field(ge=0, le=INT32_MAX)]
_LONG = Annotated[int, Field(ge=-(2**63), le=INT64_MAX)]

_DEFAULTS = QueueData()

REGISTRATION_EXAMPLE: dict[str, Any] = {
    "address": "127.0.0.11:10911",
    "topics": {
        "TopicA": {"read_queues": 8, "write_queues": 8, "perm": 6},
        "TopicB": {"read_queues": 4, "write_queues": 4, "perm": 6},
    },
    "timeout_ms": 30000,
}


class QueuesInput(RequestBody):
    """The queues of one topic on one broker."""

    read_queues: _COUNT = _DEFAULTS.read_queues
    write_queues: _COUNT = _DEFAULTS.write_queues
    perm: int = Field(_DEFAULTS.perm, ge=0, le=15, description="Sum of 4 (read), 2 (write), 1 (inherit), 8 (priority).")
    flags: _COUNT = Field(0, description="1 = unit topic, 2 = has unit subscription.")

    def as_queue_data(self) -> QueueData:
        return QueueData(self.read_queues, self.write_queues, self.perm, self.flags)


class DataVersionInput(RequestBody):
    """The version that a broker gives its topic table. Two are equal when all three numbers are."""

    state_version: _LONG = 0
    timestamp: _LONG = 0
    counter: _LONG = 0

    def as_data_version(self) -> DataVersion:
        return DataVersion(self.state_version, self.timestamp, self.counter)


class MappingInput(RequestBody):
    """A static topic on one broker: the physical queue of each logical queue."""

    bname: str = Field(description="Name of the broker that holds the queues.")
    total_queues: _COUNT = 0
    epoch: _LONG = 0
    dirty: bool = False
    scope: str = Field("__global__", max_length=255)
    current_ids: dict[_COUNT, _COUNT] = Field(default_factory=dict, description="Logical queue → physical queue.")

    def as_mapping(self, topic: str) -> TopicMapping:
        bname = check_name("bname", self.bname)
        ids = tuple(sorted(self.current_ids.items()))
        return TopicMapping(topic, bname, self.total_queues, self.epoch, self.dirty, self.scope, ids)


class RegistrationInput(RequestBody):
    """A full registration. Its topics are merged with those registered before."""

    model_config = ConfigDict(json_schema_extra={"examples": [REGISTRATION_EXAMPLE]})

    address: str = Field(description="`host:port` of the broker's listener; IPv6 in brackets.")
    topics: dict[str, QueuesInput] = Field(default_factory=dict, description="By topic name.")
    timeout_ms: int | None = Field(
        None,
        ge=1,
        le=INT32_MAX,
        description="Milliseconds without a heartbeat until removal; null = `broker_timeout_ms` (120 000).",
    )
    data_version: DataVersionInput | None = Field(None, description="Null = every registration counts as changed.")
    ha_address: str = Field("", max_length=255, description="Replication address, passed on to slaves.")
    zone: str | None = Field(None, max_length=255)
    acting_master: bool | None = Field(
        False, description="Whether the smallest slave may act for a lost master; null = a 4.x broker."
    )
    mappings: dict[str, MappingInput] = Field(default_factory=dict, description="Static topics, by topic name.")
    filters: list[str] | None = Field(
        None, max_length=1000, description="Filter servers; null leaves the list unchanged, [] removes it."
    )

    def as_registration(self, cluster: str, broker: str, broker_id: int, *, replace: bool) -> Registration:
        return Registration(
            cluster=check_name("cluster", cluster),
            broker=check_name("broker", broker),
            broker_id=check_broker_id(broker_id),
            address=check_address("address", self.address),
            ha_address=check_address("ha_address", self.ha_address) if self.ha_address else "",
            zone=check_name("zone", self.zone) if self.zone else None,
            timeout_ms=self.timeout_ms,
            acting_master=self.acting_master,
            data_version=self.data_version.as_data_version() if self.data_version else None,
            topics={check_name("topic", name): queues.as_queue_data() for name, queues in self.topics.items()},
            mappings={check_name("topic", name): item.as_mapping(name) for name, item in self.mappings.items()},
            filters=tuple(check_name("filter", text) for text in self.filters) if self.filters is not None else None,
            full=True,
            replace_topics=replace,
        )


class RegistrationResponse(ResponseBody):
    """The response to a registration."""

    status: Literal["unchanged", "changed", "turned-down"] = Field(
        description="turned-down: another instance holds the seat with a higher state version.",
        examples=["changed"],
    )
    version: Version
    master_address: str | None = Field(
        description="For a slave: its master's address, when the master is registered.", examples=[None]
    )
    master_ha_address: str | None = Field(description="For a slave: the address to replicate from.", examples=[None])
    incarnation: str = Field(
        description="Id of this incarnation: the uninterrupted time of this address in its seat.",
        examples=["5f0c9a1be2d34c77"],
    )

    @classmethod
    def of(cls, result: RegistrationResult) -> Self:
        assert result.status != "refused"  # noqa: S101 - raised as RefusedError before
        return cls(
            status=result.status,
            version=result.version,
            master_address=result.master_address or None,
            master_ha_address=result.master_ha_address or None,
            incarnation=result.incarnation,
        )


class TopicInput(RequestBody):
    """Queues of one topic on broker groups that are registered already."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"queues": {"broker-a": {"read_queues": 4, "write_queues": 4}}}]}
    )

    queues: dict[str, QueuesInput] = Field(min_length=1, description="By broker name.")

    def as_queues(self) -> dict[str, QueueData]:
        return {check_name("broker", name): queues.as_queue_data() for name, queues in self.queues.items()}


SEAT_PATTERN: Final = "/v1/clusters/{cluster}/brokers/{name}/{id}"
_SEAT_PATH: Final = re.compile(r"/v1/clusters/(?P<cluster>[^/]+)/brokers/(?P<name>[^/]+)/(?P<id>[^/]+)")

Replace = Annotated[bool, Query(description="Remove the broker's topics that this body does not name.")]
_BROKER_ID: Final = TypeAdapter[int](BrokerId)
_REPLACE: Final = TypeAdapter[bool](Replace)
_Value = TypeVar("_Value")

router = APIRouter(tags=["brokers"], prefix=SEAT_PATTERN)


@router.put(
    "",
    summary="Register a broker",
    responses=problem_responses(*BODY, *WRITE),
    response_model=RegistrationResponse,
)
def register_broker(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path calls it id
    body: RegistrationInput,
    replace: Replace = False,
) -> Registration:
    """Topics are merged with those registered before, unless `?replace=true`. Repeating the same body is cheap and
    counts as a heartbeat.

    Only the master, or the smallest slave of a group without a master, has topics of its own.
    """
    return body.as_registration(cluster, name, id, replace=replace)


@router.delete(
    "",
    summary="Deregister a broker",
    responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("broker")),
)
async def unregister_broker(
    *,
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path calls it id
    registry: RegistryDep,
    caller: SeatOwnerDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """Removes the broker from its seat at once. With its last broker, the group and its topics are removed."""
    if dry_run:
        return DryRunResult.of(plan_broker_removal(registry, cluster, name, id))
    return WriteResult(version=await registry.unregister(cluster, name, id, caller, cause="operator"))


@router.post(
    "/heartbeat",
    summary="Send a heartbeat",
    responses=problem_responses(*INPUT, *WRITE, problems.UNKNOWN_BROKER),
)
async def heartbeat(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path calls it id
    registry: RegistryDep,
    caller: SeatBrokerDep,
) -> WriteResult:
    """Restarts the broker's `timeout_ms`. After `unknown-broker`, register again."""
    try:
        return WriteResult(version=await registry.heartbeat(cluster, name, id, caller))
    except NotFoundError as error:
        advice = "Register it with PUT on the same path, without /heartbeat."
        raise Problem(problems.UNKNOWN_BROKER, error.message, advice=advice) from error


class RegistrationEndpoint:
    """Answers every PUT of a seat. `BodyMiddleware` before it delivers the body in one message."""

    def __init__(self, app: ASGIApp, context: AppContext) -> None:
        self._app = app
        self._context = context
        self._registry = context.registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _SEAT_PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "PUT" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope[PATH_PATTERN] = SEAT_PATTERN
        request, body = Request(scope), (await receive()).get("body", b"")
        try:
            response = await self._register(request, found["cluster"], found["name"], found["id"], body)
        except RoutebookError as error:
            response = await problems.handle_routebook_error(request, error)
        except Problem as error:
            response = await problems.handle_problem(request, error)
        except RequestValidationError as error:
            response = await problems.handle_validation_error(request, error)
        except Exception as error:
            await (await problems.handle_unexpected_error(request, error))(scope, receive, send)
            raise  # the server logs it
        await response(scope, receive, send)

    async def _register(self, request: Request, cluster: str, name: str, id_text: str, body: bytes) -> Response:
        caller = authorize(
            request,
            self._context,
            Role.BROKER,
            lambda identity: covers_seat(identity, cluster, name),
            is_open=not self._registry.identities.has_brokers,
        )
        seat = Seat(cluster, name, _validated(_BROKER_ID, id_text, "path", "id"))

        if request.scope["query_string"]:
            refuse_unknown_parameters(request, ("replace",))

        async def read_body() -> Registration:
            replace = request.query_params.get("replace")
            return await decode_in_steps(
                self._context,
                request,
                _read_registration(
                    body,
                    seat,
                    replace=replace is not None and _validated(_REPLACE, replace, "query", "replace"),
                    settings=self._context.live_settings.current,
                ),
            )

        path = request.scope["path"].encode("utf-8", "surrogatepass")
        result = await self._registry.register(seat, (path, request.scope["query_string"], body), read_body, caller)
        return Response(RegistrationResponse.of(result).model_dump_json(), media_type="application/json")


def _validated(adapter: TypeAdapter[_Value], text: str, *location: str) -> _Value:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise _request_error(error, location) from error


_SMALL_BODY_BYTES: Final = 64 * 1024
"""A body of this size is validated in one go: its 10,000 faults, if it has as many, take 20 ms."""
_STEP_TOPICS: Final = 500
_Item = TypeVar("_Item", QueuesInput, MappingInput)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TOPICS: Final = TypeAdapter(dict[str, QueuesInput])
_MAPPINGS: Final = TypeAdapter(dict[str, MappingInput])


def _read_registration(
    body: bytes, seat: Seat, *, replace: bool, settings: Settings
) -> Generator[None, None, Registration]:
    """Cuts topics and mappings out of a large body and validates them in parts, about one a millisecond, up to the
    first part with a fault. In one go, a million faults would take seconds and a gigabyte.
    """
    if len(body) > _SMALL_BODY_BYTES:
        yield
    yield from check_values_in_steps(body, settings.max_json_values)
    if len(body) <= _SMALL_BODY_BYTES:
        return register_broker(*seat, body=_validated_body(body), replace=replace)
    members = _members(body)
    yield
    topics: dict[str, QueueData] = {}
    for part in _parts(members, "topics", _TOPICS, settings.max_topics_per_broker):
        topics |= {check_name("topic", name): queues.as_queue_data() for name, queues in part.items()}
        yield
    mappings: dict[str, TopicMapping] = {}
    for items in _parts(members, "mappings", _MAPPINGS, settings.max_topics_per_broker):
        mappings |= {check_name("topic", name): item.as_mapping(name) for name, item in items.items()}
        yield
    rest = msgspec.json.encode(members)
    if len(rest) > _SMALL_BODY_BYTES:
        raise InvalidInputError("body", f"{len(rest)} bytes without topics and mappings", f"{_SMALL_BODY_BYTES} bytes")
    registration = register_broker(*seat, body=_validated_body(rest), replace=replace)
    return dataclasses.replace(registration, topics=topics, mappings=mappings)


def _members(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _MEMBERS.decode(body)
    except msgspec.ValidationError:
        fault: dict[str, Any] = {"type": "model_type", "loc": ("body",), "msg": "Input should be an object"}
    except (msgspec.DecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        fault = {"type": "json_invalid", "loc": ("body",), "msg": "JSON", "ctx": {"error": reason}}
    raise RequestValidationError([fault])


def _parts(
    members: dict[str, msgspec.Raw], field: str, adapter: TypeAdapter[dict[str, _Item]], limit: int
) -> Iterator[dict[str, _Item]]:
    """Takes a table out of the members and validates it in parts."""
    raw = members.pop(field, None)
    table = {} if raw is None else _members(raw)
    if limit and len(table) > limit:
        raise LimitError(f"The body has {len(table)} {field}", "max_topics_per_broker", limit)
    for part in parts_of(table.items(), _STEP_TOPICS):
        try:
            yield adapter.validate_json(msgspec.json.encode(dict(part)))
        except ValidationError as error:
            raise _request_error(error, ("body", field)) from error


def _validated_body(body: bytes) -> RegistrationInput:
    try:
        return RegistrationInput.model_validate_json(body)
    except ValidationError as error:
        raise _request_error(error, ("body",)) from error


def _request_error(error: ValidationError, location: tuple[str, ...]) -> RequestValidationError:
    """The error that FastAPI would raise for it."""
    faults: list[dict[str, Any]] = [
        {**fault, "loc": (*location, *fault["loc"])} for fault in error.errors(include_url=False, include_input=False)
    ]
    return RequestValidationError(faults)
