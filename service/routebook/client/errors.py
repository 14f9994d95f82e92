"""What can go wrong with a request, as exceptions."""


class ClientError(Exception):
    """`kind` is the short stable word of the service's answer, such as `topic-not-found`; `advice` says what to do."""

    def __init__(self, detail: str, *, kind: str = "", status: int = 0, advice: str = "") -> None:
        super().__init__(f"{detail} {advice}".strip())
        self.detail = detail
        self.kind = kind
        self.status = status
        self.advice = advice


class NotFoundError(ClientError):
    """The route table is complete and current, and does not have it."""


class NotAllowedError(ClientError):
    """The token is missing or wrong (401), or its identity may not do this (403)."""


class RefusedError(ClientError):
    """The service understood the request and refused it. Repeating it does not help."""


class UnreachableError(ClientError):
    """No address gave a usable answer, after all repetitions."""


class HistoryLostError(ClientError):
    """The history no longer has the entries from where the caller wanted to continue."""
