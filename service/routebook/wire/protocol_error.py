"""Who broke the protocol, and how."""

from enum import StrEnum

from routebook.errors import RoutebookError


class Violation(StrEnum):
    """What was wrong, in few enough words to be the label of a counter."""

    FRAME_LENGTH = "frame length"
    HEADER_LENGTH = "header length"
    SERIALIZATION = "serialization"
    JSON_HEADER = "JSON header"
    BINARY_HEADER = "binary header"
    PROXY_HEADER = "PROXY header"
    MISUSE = "misuse"


class ProtocolError(RoutebookError):
    """The remoting protocol was not kept. Which of the two classes below it is says by whom."""

    def __init__(self, violation: Violation, message: str, *, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.violation = violation


class PeerProtocolError(ProtocolError):
    """The peer sent what cannot be understood. The answer is none: the connection is closed, as the reference does."""


class OwnProtocolError(ProtocolError):
    """We wanted to send what the protocol cannot carry; the peer has seen nothing of it."""
