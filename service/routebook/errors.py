"""What can go wrong, in the product's words.

Each error says three things: what happened, with values; what was expected; what to do. The ports translate them at
their border (`http_api.problems`, later the remoting port's codes); nothing inside knows a status code.
"""


class RoutebookError(Exception):
    """Anything that Routebook itself reports."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".strip()


class InvalidInputError(RoutebookError):
    """A caller's value that no state of the route table would make right."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        shown = repr(value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        super().__init__(f"{field} is {shown}.", advice=f"Allowed: {allowed}.")
        self.field = field
        self.value = value
        self.allowed = allowed


class SettingsError(RoutebookError):
    """A setting that stops the start: unknown, out of range, or in conflict with another one."""


class ForbiddenError(RoutebookError):
    """An administrative verb without permission."""


class BrokenPropertiesError(RoutebookError):
    """A text in properties form that Java could not read either."""


class ProtectedPropertyError(ForbiddenError):
    """A property that must not be changed from outside; nothing of the request is applied."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(
            f"{', '.join(keys)} must not be changed over the remoting port.",
            advice="Nothing was changed; leave out what config_black_list (configBlackList) and Apache's list name.",
        )
        self.keys = keys


class NotFoundError(RoutebookError):
    """The route table is complete and does not hold it."""

    def __init__(self, what: str, name: str, *, advice: str = "") -> None:
        super().__init__(f"{what} {name!r} is not in the route table.", advice=advice)
        self.what = what
        self.name = name


class NotReadyError(RoutebookError):
    """In doubt: the table is not complete, so "no such thing" cannot be said."""


class NotSeenYetError(RoutebookError):
    """This worker has not seen the version asked for within the time allowed."""

    def __init__(self, wanted: int, seen: int) -> None:
        super().__init__(
            f"Version {wanted} is not here yet; this worker has seen {seen}.",
            advice="Ask again, or ask another worker.",
        )
        self.wanted = wanted
        self.seen = seen


class RefusedError(RoutebookError):
    """The rules of the route table say no (for instance a single topic from a broker not yet known)."""


class PeerUnavailableError(RoutebookError):
    """A name server or broker that we call: not reached, no answer in time, or an answer that is none."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} is unavailable: {reason}.")
        self.address = address
        self.reason = reason


class StoreError(RoutebookError):
    """The store, as far as Routebook is concerned."""


class StoreUnavailableError(StoreError):
    """The store did not answer in time, or could not be reached. Whether a write took place is unknown."""


class StoreRefusalError(StoreUnavailableError):
    """The store answers, and refuses for the moment: memory, disk, role. Nothing was written."""


class StoreUnsuitableError(StoreError):
    """The store answers but must not be used as it is: version, eviction policy, permission, layout."""


class ScriptError(StoreError):
    """A script of ours cannot be loaded: missing or circular include, header that does not fit."""
