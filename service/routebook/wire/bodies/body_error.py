"""What can be wrong with a body. All of it is answered with code 1 and the error's `remark`."""

import copyreg
import reprlib

from routebook.errors import RoutebookError


class BodyError(RoutebookError):
    """A peer's body cannot be used. Nothing of it has taken effect."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without its constructor, whose arguments differ: large bodies are read in another process."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def remark(self) -> str:
        """What the peer is told. The reference sends Java's exception text here, which peers only log."""
        return str(self)


class JsonSyntaxError(BodyError):
    """Not JSON, not even the reference's lenient kind."""


class JsonLimitError(BodyError):
    """JSON that is deeper or has more values than any peer's, and so is not read to its end."""


class JsonShapeError(BodyError):
    """JSON in good order, with the wrong thing in some place."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        # reprlib, since the value may be megabytes, or nested deeper than repr can follow.
        super().__init__(f"{field} is {reprlib.repr(value)}.", advice=f"Allowed: {allowed}.")
        self.field = field
        self.allowed = allowed


class NullBodyError(BodyError):
    """There is a body, and it decodes to nothing: `null`, or not UTF-8. The reference runs into a null pointer."""

    def __init__(self, what: str) -> None:
        super().__init__("The body decodes to null: `null`, or not UTF-8 (as compressed bytes are not).")
        self.what = what

    @property
    def remark(self) -> str:
        return f"NullPointerException: {self.what}. {self}"


class ChecksumError(BodyError):
    """The body is not the one that its sender took the sum of."""

    def __init__(self, announced: int, found: int) -> None:
        super().__init__(f"bodyCrc32 is {announced}, the body's is {found}.")
        self.announced = announced
        self.found = found

    @property
    def remark(self) -> str:
        return "crc32 not match"


class VersionError(BodyError):
    """A header version below zero names no release, so it does not say what form the body has."""

    def __init__(self, version: int) -> None:
        super().__init__(f"The header's version is {version}.", advice="Allowed: 0 or more.")
        self.version = version


class InflateError(BodyError):
    """A compressed body that ends before what it announced, or is no zlib stream."""


class InflateLimitError(InflateError):
    """A compressed body that would grow beyond what an uncompressed one may have."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The body inflates to more than {limit_bytes} bytes.", advice="Register in smaller parts.")
        self.limit_bytes = limit_bytes


class RegistrationBodyError(BodyError):
    """A registration's body that does not decode; the cause says why. The remark begins as the reference's does."""

    def __init__(self, cause: BodyError) -> None:
        super().__init__(f"Failed to decode RegisterBrokerBody: {cause}")
        self.cause = cause
