"""The console's sign-in and its guarded actions.

An action has three pages. The first shows what would change and asks for the name of the object. The second request, a
form, needs the same permission as the request of the API, through the same function, and comes from a page of this
origin only. Its answer shows the entries that the history has afterwards.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from routebook.errors import InvalidInputError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.audit import note_of
from routebook.http_api.callers import (
    CONSOLE_PATH,
    SIGN_IN_COOKIE,
    authorize,
    covers_group,
    covers_key,
    covers_seat,
    covers_topic,
    forget_sign_in,
    identify_by_token,
    require_same_origin,
)
from routebook.http_api.console import ConsoleRoute, Visit
from routebook.http_api.dependencies import AppContext, ContextDep
from routebook.http_api.problems import Problem
from routebook.model.identity import Identity, Role
from routebook.model.names import Caller
from routebook.store.change_search import ChangeFilter, FoundEntry, Position

SIGN_IN_SECONDS: Final = 12 * 3600
"""A working day; then the browser forgets the token."""
MAX_FORM_BYTES: Final = 256 * 1024
MAX_FIELDS: Final = 20

router = APIRouter(prefix="/console", include_in_schema=False, route_class=ConsoleRoute)

Form = Mapping[str, str]


async def read_form(request: Request) -> Form:
    body = await request.body()
    if len(body) > MAX_FORM_BYTES:
        raise Problem(problems.TOO_LARGE, f"The form is larger than {MAX_FORM_BYTES} bytes.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except (UnicodeError, ValueError) as error:
        raise InvalidInputError("form", "a body that is no form", "the fields of the page") from error


# -- sign-in


@router.get("/sign-in")
async def show_sign_in(request: Request) -> Response:
    wanted = _local(request.query_params.get("next", ""))
    visit = Visit.of(request)
    # A link of another site comes without the cookie, so a signed-in viewer may have been led here.
    may_be_signed_in = visit.context.live_settings.current.http_reads == "token" and not visit.has_wrong_cookie
    return visit.page("sign_in.html", next=wanted, fault="", try_next=wanted if may_be_signed_in else "")


@router.post("/sign-in")
async def sign_in(request: Request, context: ContextDep) -> Response:
    """The cookie has the token itself: a worker keeps no sessions, and a revoked token is refused at once."""
    require_same_origin(request)
    form = await read_form(request)
    wanted = _local(form.get("next", ""))
    try:
        identity = identify_by_token(form.get("token", "").strip(), context, context.peer_of(request))
    except Problem as problem:
        note_of(request.scope).reason = f"{problem.kind.type}: {problem.detail}"
        visit = Visit.of(request)
        return visit.page("sign_in.html", status=problem.kind.status, next=wanted, fault=problem.detail, try_next="")
    del identity
    response = RedirectResponse(wanted or CONSOLE_PATH, 303)
    response.set_cookie(
        SIGN_IN_COOKIE,
        form["token"].strip(),
        max_age=SIGN_IN_SECONDS,
        path=CONSOLE_PATH,
        # Behind a proxy that ends TLS, only the page's origin shows that the browser uses it.
        secure=request.headers.get("origin", "").startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    require_same_origin(request)
    response = RedirectResponse(CONSOLE_PATH, 303)
    forget_sign_in(response)
    return response


def _local(path: str) -> str:
    """Only an address of the console: anything else could lead to another site."""
    is_local = path.startswith(CONSOLE_PATH) and not any(letter in path for letter in "\\\r\n")
    return path if is_local and not path.startswith("/console/sign-in") else ""


# -- actions


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would do."""

    title: str
    object: str
    """The name that the operator types to confirm."""
    button: str
    changes: list[str]
    """One line for each thing that changes."""
    notes: list[str]
    is_dangerous: bool = True
    fields: tuple[tuple[str, str, str], ...] = ()
    """Name, label and present value of what the form asks for."""


@dataclass(frozen=True, slots=True)
class Action:
    """One guarded action. `verb` is the operation's name in the API, which the history and the audit show."""

    path: str
    verb: str
    role: Role
    names: tuple[str, ...]
    """Parameters that name the object."""
    covers: Callable[[Identity, AppContext, Form], bool]
    preview: Callable[[AppContext, Form], Awaitable[Preview]]
    perform: Callable[[AppContext, Form, Caller], Awaitable[int]]
    """Returns the version of the table afterwards."""


async def _preview_permission(context: AppContext, form: Form) -> Preview:
    registry, name, is_writable = context.registry, form["name"], form["writable"] == "true"
    registry.broker(name)
    queues = registry.replica.view.queues_of(name)
    changed = [
        topic for topic, queue in sorted(queues.items()) if (queue.perm != 6 if is_writable else queue.is_writable)
    ]
    target = "read + write (6)" if is_writable else "no write bit"
    return Preview(
        f"{'Allow' if is_writable else 'Forbid'} writing to group {name}",
        name,
        f"{'Allow' if is_writable else 'Forbid'} writing to {name}",
        [f"{topic}: permission {queues[topic].perm} → {target}" for topic in changed],
        [
            f"{len(changed)} of {len(queues)} topics of this group change.",
            "The next registration of the broker with a new data version overwrites it.",
        ],
        is_dangerous=not is_writable,
    )


async def _set_permission(context: AppContext, form: Form, caller: Caller) -> int:
    result = await context.registry.set_write_permission(form["name"], form["writable"] == "true", caller)
    return result.version


async def _preview_topic(context: AppContext, form: Form) -> Preview:
    topic, cluster = form["topic"], form.get("cluster", "")
    registry = context.registry
    route = registry.find_topic(topic)
    view = registry.replica.view
    listed = view.clusters.get(cluster, set()) if cluster else None
    queues = {broker: queue for broker, queue in route.queues.items() if listed is None or broker in listed}
    remaining = len(route.queues) - len(queues)
    where = f" in cluster {cluster}" if cluster else ""
    notes = ["The topic returns with the next registration that contains it: delete it on the brokers first."]
    if not remaining:
        notes.insert(0, "Producers and consumers of the topic find no route afterwards.")
    return Preview(
        f"Delete topic {topic}{where}",
        topic,
        f"Delete {topic} from {len(queues)} group{'s' if len(queues) != 1 else ''}",
        [
            f"{broker}: {queue.read_queues} read and {queue.write_queues} write queues are removed"
            for broker, queue in sorted(queues.items())
        ],
        notes,
    )


async def _delete_topic(context: AppContext, form: Form, caller: Caller) -> int:
    result = await context.registry.delete_topic(form["topic"], form.get("cluster") or None, caller)
    return result.version


async def _preview_removal(context: AppContext, form: Form) -> Preview:
    cluster, name, broker_id = form["cluster"], form["name"], _broker_id(form)
    registry = context.registry
    group = registry.broker(name).group
    address = group.addresses.get(broker_id) if group.cluster == cluster else None
    if address is None:
        raise InvalidInputError("id", broker_id, f"the id of a registered broker of {name} in its cluster")
    changes = [f"{cluster}/{name}/{broker_id} at {address} is removed from its seat"]
    notes = ["A broker that is alive registers again within its period (30 s)."]
    if len(group.addresses) == 1:
        lost = registry.replica.view.queues_of(name)
        changes += [f"topic {topic} loses this group" for topic in sorted(lost)]
        notes.insert(0, f"It is the last broker of its group: the group and its {len(lost)} topics are removed too.")
    seat = f"{name}/{broker_id}"
    return Preview(f"Remove broker {cluster}/{seat}", seat, f"Remove {seat}", changes, notes)


async def _remove_broker(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.unregister(form["cluster"], form["name"], _broker_id(form), caller, cause="operator")


def _broker_id(form: Form) -> int:
    text = form["id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise InvalidInputError("id", text, "the id of a registered broker")
    return int(text)


async def _preview_release(context: AppContext, form: Form) -> Preview:
    del form
    state = await context.registry.expiry_state()
    if not state.held:
        return Preview("Release the hold", "release", "Release", [], ["Nothing is on hold: nothing changes."])
    return Preview(
        "Release the hold on removals",
        "release",
        f"Release {len(state.brokers)} removals",
        [f"group {broker}: its silent brokers are removed by the next scan" for broker in state.brokers],
        [
            f"{state.due} of {state.instances} brokers were due when the hold began.",
            "Release it only if these brokers really are gone. One that has sent a heartbeat since stays.",
        ],
    )


async def _release(context: AppContext, form: Form, caller: Caller) -> int:
    del form
    await context.registry.release_expiry(caller)
    return context.registry.replica.version


async def _preview_setting(context: AppContext, form: Form) -> Preview:
    key = form["key"]
    present = {name: (value, origin) for name, value, origin in context.live_settings.describe()}
    value, origin = present.get(key, ("", ""))
    if "value" not in form:
        context.live_settings.check(key, str(getattr(context.live_settings.current, key, "")))
        changes = []
    else:
        canonical = context.live_settings.check(key, form["value"])
        changes = [f"{key}: {value} ({origin}) → {context.live_settings.masked(key, canonical)} (run time)"]
    return Preview(
        f"Change setting {key}",
        key,
        f"Change {key}",
        changes,
        ["The value is kept in the store and reaches all workers within a second. A flag or variable is stronger."],
        fields=(("value", f"New value of {key} (now {value}, from {origin})", form.get("value", value)),),
    )


async def _change_setting(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.change_setting(form["key"], form["value"], caller)


async def _preview_put(context: AppContext, form: Form) -> Preview:
    namespace, key = form["namespace"], form["key"]
    present = context.registry.replica.view.kv.get(namespace, {}).get(key)
    changes = []
    if "value" in form:
        before = "none" if present is None else repr(present)
        changes = [f"{namespace}/{key}: {before} → {form['value']!r}"]
    return Preview(
        f"Write key {namespace}/{key}",
        key,
        f"Write {key}",
        changes,
        ["The history has only the hashes of values, since they may be secrets."],
        is_dangerous=False,
        fields=(("value", f"Value of {namespace}/{key}", form.get("value", present or "")),),
    )


async def _put_key(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.put_kv(form["namespace"], form["key"], form["value"], caller)


async def _preview_delete_key(context: AppContext, form: Form) -> Preview:
    namespace, key = form["namespace"], form["key"]
    value = context.registry.kv_value(namespace, key)
    return Preview(
        f"Delete key {namespace}/{key}",
        key,
        f"Delete {key}",
        [f"{namespace}/{key}: {value!r} → none"],
        ["The namespace remains, even when this was its last key."],
    )


async def _delete_key(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.delete_kv(form["namespace"], form["key"], caller)


async def _preview_baseline(context: AppContext, form: Form) -> Preview:
    del context, form
    return Preview(
        "Write a baseline",
        "baseline",
        "Write a baseline",
        ["the leader writes the whole table into the history, within seconds"],
        ["Routes do not change. From then on, past tables can be shown quickly."],
        is_dangerous=False,
    )


async def _request_baseline(context: AppContext, form: Form, caller: Caller) -> int:
    del form, caller
    await context.registry.request_baseline()
    return context.registry.replica.version


def _is_for_all(identity: Identity, context: AppContext, form: Form) -> bool:
    del identity, context, form
    return False


ACTIONS: Final = (
    Action(
        "write-permission",
        "set_write_permission",
        Role.OPERATOR,
        ("name", "writable"),
        lambda identity, context, form: covers_group(identity, context.registry, form["name"]),
        _preview_permission,
        _set_permission,
    ),
    Action(
        "delete-topic",
        "delete_topic",
        Role.OPERATOR,
        ("topic", "cluster"),
        lambda identity, context, form: covers_topic(
            identity, context.registry, form["topic"], form.get("cluster") or None
        ),
        _preview_topic,
        _delete_topic,
    ),
    Action(
        "remove-broker",
        "unregister_broker",
        Role.BROKER,
        ("cluster", "name", "id"),
        lambda identity, _, form: covers_seat(identity, form["cluster"], form["name"]),
        _preview_removal,
        _remove_broker,
    ),
    Action("release-hold", "release_expiry", Role.OPERATOR, (), _is_for_all, _preview_release, _release),
    Action("change-setting", "change_setting", Role.ADMIN, ("key",), _is_for_all, _preview_setting, _change_setting),
    Action(
        "write-key",
        "put_kv",
        Role.OPERATOR,
        ("namespace", "key"),
        lambda identity, _, form: covers_key(identity, form["namespace"], form["key"]),
        _preview_put,
        _put_key,
    ),
    Action(
        "delete-key",
        "delete_kv",
        Role.OPERATOR,
        ("namespace", "key"),
        lambda identity, _, form: covers_key(identity, form["namespace"], form["key"]),
        _preview_delete_key,
        _delete_key,
    ),
    Action("write-baseline", "request_baseline", Role.OPERATOR, (), _is_for_all, _preview_baseline, _request_baseline),
)
_OPTIONAL: Final = frozenset({"cluster"})
MAX_LISTED: Final = 200


def _object_of(action: Action, form: Form) -> str:
    """In the form that the filters of the history understand."""
    return " ".join(f"{name}={form[name]}" for name in action.names if form.get(name)) or action.path


def _check_fields(action: Action, form: Form) -> None:
    for name in action.names:
        if not form.get(name) and not (name in _OPTIONAL and action.path == "delete-topic"):
            raise InvalidInputError(name, form.get(name, ""), "the name of the object of the action")


def _authorize(action: Action, request: Request, context: AppContext, form: Form) -> Caller:
    note_of(request.scope).what = _object_of(action, form)
    return authorize(request, context, action.role, lambda identity: action.covers(identity, context, form))


def _is_allowed(action: Action, request: Request, context: AppContext, form: Form) -> str:
    """Empty, or why the caller may not do this. Only for the page: performing checks again."""
    try:
        _authorize(action, request, context, form)
    except (Problem, RoutebookError) as error:
        return str(error)
    finally:
        # Only the attempt is recorded, not the look at the page.
        note_of(request.scope).caller = None
    return ""


def _page_of(action: Action) -> Callable[[Request, AppContext], Awaitable[Response]]:
    async def show(request: Request, context: ContextDep) -> Response:
        form = dict(request.query_params)
        _check_fields(action, form)
        preview = await action.preview(context, form)
        refusal = _is_allowed(action, request, context, form)
        return _show_preview(Visit.of(request), action, form, preview, refusal=refusal)

    return show


def _show_preview(
    visit: Visit, action: Action, form: Form, preview: Preview, *, refusal: str = "", fault: str = ""
) -> Response:
    return visit.page(
        "action.html",
        status=422 if fault else 200,
        action=action,
        preview=preview,
        listed=preview.changes[:MAX_LISTED],
        hidden={name: form[name] for name in action.names if name in form},
        needs_value=bool(preview.fields) and "value" not in form,
        value=form.get("value"),
        refusal=refusal,
        fault=fault,
    )


def _form_of(action: Action) -> Callable[[Request, AppContext], Awaitable[Response]]:
    async def perform(request: Request, context: ContextDep) -> Response:
        require_same_origin(request)
        form = await read_form(request)
        _check_fields(action, form)
        caller = _authorize(action, request, context, form)
        preview = await action.preview(context, form)
        if form.get("confirm", "") != preview.object:
            note_of(request.scope).reason = "not confirmed"
            fault = f"Nothing was changed: the confirmation has to be {preview.object!r}."
            return _show_preview(Visit.of(request), action, form, preview, fault=fault)
        before = context.registry.replica.version
        version = await action.perform(context, form, caller)
        entries, fault = await _entries_between(context, before, version)
        return Visit.of(request).page(
            "action_done.html",
            action=action,
            preview=preview,
            result_version=version,
            entries=entries,
            caller=caller,
            object=_object_of(action, form),
            fault=fault,
        )

    return perform


async def _entries_between(context: AppContext, before: int, version: int) -> tuple[list[FoundEntry], str]:
    """The entries of this change, and of others that came at the same time."""
    try:
        page = await context.registry.search_changes(
            ChangeFilter(), since=Position(version=before), until=Position(version=version), limit=50
        )
    except RoutebookError as error:
        return [], f"The change was made, but the history cannot be read: {error}"
    return list(page.entries), ""


for _action in ACTIONS:
    router.add_api_route(f"/actions/{_action.path}", _page_of(_action), methods=["GET"], name=f"show_{_action.verb}")
    # The name is the verb that the history shows, as for the operation of the API.
    router.add_api_route(f"/actions/{_action.path}", _form_of(_action), methods=["POST"], name=_action.verb)
