"""The console's sign-in and its guarded actions.

An action has three pages. The first shows what would change, which is the dry run of the API (`registry/dry_runs.py`),
and asks for the name of the object. The second request, a form, needs the same permission as the request of the API,
through the same function, and comes from a page of this origin only. Its answer shows the entries that the history has
afterwards.
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
from routebook.registry.dry_runs import (
    DryRun,
    PlannedChange,
    plan_broker_removal,
    plan_expiry_release,
    plan_key_value,
    plan_setting,
    plan_topic_deletion,
    plan_write_permission,
)
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
    return await visit.page("sign_in.html", next=wanted, fault="", try_next=wanted if may_be_signed_in else "")


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
        return await visit.page(
            "sign_in.html", status=problem.kind.status, next=wanted, fault=problem.detail, try_next=""
        )
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
    """What an action would do: the dry run of the API, in the words of a page."""

    title: str
    object: str
    """The name that the operator types to confirm."""
    button: str
    plan: DryRun
    notes: tuple[str, ...] = ()
    is_dangerous: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """What the operator is asked for before there can be a preview."""

    label: str
    present: str


@dataclass(frozen=True, slots=True)
class Action:
    """One guarded action. `verb` is the operation's name in the API, which the history and the audit show."""

    path: str
    verb: str
    title: str
    role: Role
    names: tuple[str, ...]
    """Parameters that name the object."""
    covers: Callable[[Identity, AppContext, Form], bool]
    preview: Callable[[AppContext, Form], Awaitable[Preview]]
    perform: Callable[[AppContext, Form, Caller], Awaitable[int]]
    """Returns the version of the table afterwards."""
    ask: Callable[[AppContext, Form], Question] | None = None
    """Asks for the value of the form, if the action needs one."""


async def _preview_permission(context: AppContext, form: Form) -> Preview:
    name, is_writable = form["name"], form["writable"] == "true"
    verb = "Allow" if is_writable else "Forbid"
    return Preview(
        f"{verb} writing to group {name}",
        name,
        f"{verb} writing to {name}",
        plan_write_permission(context.registry, name, is_writable),
        ("The next registration of the broker with a new data version overwrites it.",),
        is_dangerous=not is_writable,
    )


async def _set_permission(context: AppContext, form: Form, caller: Caller) -> int:
    result = await context.registry.set_write_permission(form["name"], form["writable"] == "true", caller)
    return result.version


async def _preview_topic(context: AppContext, form: Form) -> Preview:
    topic, cluster = form["topic"], form.get("cluster", "")
    plan = plan_topic_deletion(context.registry, topic, cluster or None)
    notes = ["The topic returns with the next registration that contains it: delete it on the brokers first."]
    if plan.count == len(context.registry.view.brokers_of(topic)):
        notes.insert(0, "Producers and consumers of the topic find no route afterwards.")
    return Preview(
        f"Delete topic {topic}" + (f" in cluster {cluster}" if cluster else ""),
        topic,
        f"Delete {topic} from {plan.count} group{'s' if plan.count != 1 else ''}",
        plan,
        tuple(notes),
    )


async def _delete_topic(context: AppContext, form: Form, caller: Caller) -> int:
    result = await context.registry.delete_topic(form["topic"], form.get("cluster") or None, caller)
    return result.version


async def _preview_removal(context: AppContext, form: Form) -> Preview:
    cluster, name, broker_id = form["cluster"], form["name"], _broker_id(form)
    plan = plan_broker_removal(context.registry, cluster, name, broker_id)
    notes = ["A broker that is alive registers again within its period (30 s)."]
    if plan.count > 1:
        notes.insert(0, "It is the last broker of its group: the group and its topics are removed too.")
    seat = f"{name}/{broker_id}"
    return Preview(f"Remove broker {cluster}/{seat}", seat, f"Remove {seat}", plan, tuple(notes))


async def _remove_broker(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.unregister(form["cluster"], form["name"], _broker_id(form), caller, cause="operator")


def _broker_id(form: Form) -> int:
    text = form["id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise InvalidInputError("id", text, "the id of a registered broker")
    return int(text)


async def _preview_release(context: AppContext, form: Form) -> Preview:
    del form
    plan = await plan_expiry_release(context.registry)
    return Preview(
        "Release the hold on removals",
        "release",
        f"Release {plan.count} removal{'s' if plan.count != 1 else ''}",
        plan,
        ("Release it only if these brokers really are gone. One that has sent a heartbeat since stays.",)
        if plan.count
        else ("Nothing is on hold.",),
    )


async def _release(context: AppContext, form: Form, caller: Caller) -> int:
    del form
    await context.registry.release_expiry(caller)
    return context.registry.replica.version


def _ask_for_setting(context: AppContext, form: Form) -> Question:
    key = form["key"]
    value, origin = next((row[1:] for row in context.live_settings.describe() if row[0] == key), ("", ""))
    # Refuses a setting that is unknown or cannot be changed at run time.
    context.live_settings.check(key, str(getattr(context.live_settings.current, key, "")))
    return Question(f"New value of {key} (now {value}, from {origin})", value)


async def _preview_setting(context: AppContext, form: Form) -> Preview:
    key = form["key"]
    return Preview(
        f"Change setting {key}",
        key,
        f"Change {key}",
        plan_setting(context.registry, key, form["value"]),
        ("The value is kept in the store and reaches all workers within a second. A flag or variable is stronger.",),
    )


async def _change_setting(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.change_setting(form["key"], form["value"], caller)


async def _preview_reset(context: AppContext, form: Form) -> Preview:
    key = form["key"]
    return Preview(
        f"Reset setting {key}",
        key,
        f"Reset {key}",
        plan_setting(context.registry, key, None),
        ("Within a second, the value of the file or the default is in force again on all workers.",),
    )


async def _reset_setting(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.reset_setting(form["key"], caller)


def _ask_for_value(context: AppContext, form: Form) -> Question:
    namespace, key = form["namespace"], form["key"]
    present = context.registry.view.kv.get(namespace, {}).get(key, "")
    return Question(f"Value of {namespace}/{key}", present)


async def _preview_put(context: AppContext, form: Form) -> Preview:
    namespace, key = form["namespace"], form["key"]
    return Preview(
        f"Write key {namespace}/{key}",
        key,
        f"Write {key}",
        plan_key_value(context.registry, namespace, key, form["value"]),
        ("The history has only the hashes of values, since they may be secrets.",),
        is_dangerous=False,
    )


async def _put_key(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.put_kv(form["namespace"], form["key"], form["value"], caller)


async def _preview_delete_key(context: AppContext, form: Form) -> Preview:
    namespace, key = form["namespace"], form["key"]
    return Preview(
        f"Delete key {namespace}/{key}",
        key,
        f"Delete {key}",
        plan_key_value(context.registry, namespace, key, None),
        ("The namespace remains, even when this was its last key.",),
    )


async def _delete_key(context: AppContext, form: Form, caller: Caller) -> int:
    return await context.registry.delete_kv(form["namespace"], form["key"], caller)


async def _preview_baseline(context: AppContext, form: Form) -> Preview:
    del form
    change = PlannedChange("the history", "its last baseline", "the whole table, written by the leader within seconds")
    return Preview(
        "Write a baseline",
        "baseline",
        "Write a baseline",
        DryRun(1, (change,), context.registry.replica.version),
        ("Routes do not change. From then on, past tables can be shown quickly.",),
        is_dangerous=False,
    )


async def _request_baseline(context: AppContext, form: Form, caller: Caller) -> int:
    del form, caller
    await context.registry.request_baseline()
    return context.registry.replica.version


def _covers_fleet(identity: Identity, context: AppContext, form: Form) -> bool:
    """Only a policy without limits covers what concerns the whole fleet."""
    del identity, context, form
    return False


def _covers_key(identity: Identity, context: AppContext, form: Form) -> bool:
    del context
    return covers_key(identity, form["namespace"], form["key"])


ACTIONS: Final = (
    Action(
        "write-permission",
        "set_write_permission",
        "Change the write permission of a group",
        Role.OPERATOR,
        ("name", "writable"),
        lambda identity, context, form: covers_group(identity, context.registry, form["name"]),
        _preview_permission,
        _set_permission,
    ),
    Action(
        "delete-topic",
        "delete_topic",
        "Delete a topic",
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
        "Remove a broker",
        Role.BROKER,
        ("cluster", "name", "id"),
        lambda identity, _, form: covers_seat(identity, form["cluster"], form["name"]),
        _preview_removal,
        _remove_broker,
    ),
    Action(
        "release-hold",
        "release_expiry",
        "Release the hold on removals",
        Role.OPERATOR,
        (),
        _covers_fleet,
        _preview_release,
        _release,
    ),
    Action(
        "change-setting",
        "change_setting",
        "Change a setting",
        Role.ADMIN,
        ("key",),
        _covers_fleet,
        _preview_setting,
        _change_setting,
        _ask_for_setting,
    ),
    Action(
        "reset-setting",
        "reset_setting",
        "Reset a setting",
        Role.ADMIN,
        ("key",),
        _covers_fleet,
        _preview_reset,
        _reset_setting,
    ),
    Action(
        "write-key",
        "put_kv",
        "Write a key",
        Role.OPERATOR,
        ("namespace", "key"),
        _covers_key,
        _preview_put,
        _put_key,
        _ask_for_value,
    ),
    Action(
        "delete-key",
        "delete_kv",
        "Delete a key",
        Role.OPERATOR,
        ("namespace", "key"),
        _covers_key,
        _preview_delete_key,
        _delete_key,
    ),
    Action(
        "write-baseline",
        "request_baseline",
        "Write a baseline",
        Role.OPERATOR,
        (),
        _covers_fleet,
        _preview_baseline,
        _request_baseline,
    ),
)
_OPTIONAL: Final = frozenset({"cluster"})


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


def _refusal_of(action: Action, request: Request, context: AppContext, form: Form) -> str:
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
        # As for a dry run of the API, a preview needs the same permission: it may show values that are not for all.
        if refusal := _refusal_of(action, request, context, form):
            return await _show(Visit.of(request), action, form, refusal=refusal)
        if action.ask and "value" not in form:
            return await _show(Visit.of(request), action, form, question=action.ask(context, form))
        return await _show(Visit.of(request), action, form, preview=await action.preview(context, form))

    return show


async def _show(
    visit: Visit,
    action: Action,
    form: Form,
    *,
    preview: Preview | None = None,
    question: Question | None = None,
    refusal: str = "",
    fault: str = "",
) -> Response:
    return await visit.page(
        "action.html",
        status=422 if fault else 200,
        action=action,
        object=_object_of(action, form),
        preview=preview,
        question=question,
        hidden={name: form[name] for name in action.names if name in form},
        value=form.get("value"),
        refusal=refusal,
        fault=fault,
    )


def _form_of(action: Action) -> Callable[[Request, AppContext], Awaitable[Response]]:
    async def perform(request: Request, context: ContextDep) -> Response:
        require_same_origin(request)
        form = await read_form(request)
        _check_fields(action, form)
        if action.ask and "value" not in form:
            raise InvalidInputError("value", "", "the new value")
        caller = _authorize(action, request, context, form)
        preview = await action.preview(context, form)
        if form.get("confirm", "") != preview.object:
            note_of(request.scope).reason = "not confirmed"
            fault = f"Nothing was changed: the confirmation has to be {preview.object!r}."
            return await _show(Visit.of(request), action, form, preview=preview, fault=fault)
        before = context.registry.replica.version
        version = await action.perform(context, form, caller)
        entries, fault = await _entries_between(context, before, version)
        return await Visit.of(request).page(
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
