"""The errors of Routebook.

Each message says what happened, with values, what is allowed, and what to do. The two ports translate errors into HTTP
statuses (`http_api/problems.py`) and response codes (`remoting/requests.py`); no other code uses those.
"""


class RoutebookError(Exception):
    """Any error that Routebook reports itself."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".strip()


class InvalidInputError(RoutebookError):
    """A value that is invalid whatever the route table contains."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        shown = repr(value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        super().__init__(f"{field} is {shown}.", advice=f"Allowed: {allowed}.")
        self.field = field
        self.value = value
        self.allowed = allowed


class LimitError(RoutebookError):
    """A limit of `docs/limits.md` does not allow it. Nothing was changed."""

    def __init__(self, fact: str, setting: str, limit: int, *, is_least: bool = False) -> None:
        """`fact` states what was sent, or what there is already, with its value."""
        super().__init__(
            f"{fact}, and {setting} {'requires at least' if is_least else 'allows'} {limit}.",
            advice=f"See docs/limits.md; the setting is {setting}.",
        )
        self.setting = setting
        self.limit = limit


class SettingsError(RoutebookError):
    """A setting that prevents the start: unknown, out of range, or in conflict with another one."""


class PastUnknownError(RoutebookError):
    """The history does not reach back to an instant, or that instant is too far from a baseline."""


class ForbiddenError(RoutebookError):
    """An administrative verb without permission."""


class BrokenPropertiesError(RoutebookError):
    """A text in properties format that Java could not read either."""


class ProtectedPropertyError(ForbiddenError):
    """A property that may not be changed remotely. Nothing of the request is applied."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(
            f"{', '.join(keys)} may not be changed over the remoting port.",
            advice="Nothing was changed; omit the names in config_black_list (configBlackList) and in Apache's list.",
        )
        self.keys = keys


class NotFoundError(RoutebookError):
    """The table is complete and does not contain it."""

    def __init__(self, what: str, name: str, *, advice: str = "") -> None:
        super().__init__(f"There is no {what} {name!r}.", advice=advice)
        self.what = what
        self.name = name


class NotReadyError(RoutebookError):
    """The table is not complete, so it is unknown whether the object exists."""


class BusyError(RoutebookError):
    """A limit of this worker, or of the peer's share of it, is reached. The same request may succeed later."""


class NotSeenYetError(RoutebookError):
    """The worker's table did not reach the requested version in time."""

    def __init__(self, wanted: int, seen: int) -> None:
        super().__init__(
            f"Version {wanted} is not here yet; this worker has version {seen}.",
            advice="Try again, or use another worker.",
        )
        self.wanted = wanted
        self.seen = seen


class RefusedError(RoutebookError):
    """The rules of the route table forbid it, such as a single topic from a broker that is not known."""


class ConflictError(RoutebookError):
    """Something else has this name already."""


class PeerUnavailableError(RoutebookError):
    """A name server or broker that Routebook calls cannot be reached, does not answer in time, or answers wrongly."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} is unavailable: {reason}.")
        self.address = address
        self.reason = reason


class StoreError(RoutebookError):
    """Any error of the store."""


class StoreUnavailableError(StoreError):
    """The store could not be reached, or did not answer in time. Whether a write was carried out is unknown."""


class NotPrimaryError(StoreUnavailableError):
    """The server at the store's address answers, but it is a replica."""


class StoreRefusalError(StoreUnavailableError):
    """The store refuses commands for now, because of its memory, disk or role. Nothing was written."""


class EpochEndedError(StoreUnavailableError):
    """Nothing has been sent: the connections are others than those that the caller relied on."""


class StoreUnsuitableError(StoreError):
    """The store must not be used as it is: version, eviction policy, permission or layout."""


class ScriptError(StoreError):
    """A Lua script cannot be loaded: a missing file, or a missing or circular include."""
