"""What a supervisor tells a worker process: one line of JSON on its standard input, which then stays open.

By standard input and not by arguments or variables, because secrets are in it; and the settings as the
supervisor read them, because a file that changes must not give two workers of one service different settings.
The end of the input means that the supervisor is gone.
"""

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from routebook.process.listening import PublicPorts
from routebook.settings import Loaded, Origin, Settings, catalogue


@dataclass(frozen=True, slots=True)
class Handover:
    number: int
    remoting_socket: int
    """File descriptors of the listening sockets, inherited."""
    http_socket: int
    admin_socket: str
    """Where to serve health and metrics for the supervisor."""
    values: dict[str, str]
    origins: dict[str, str]
    kept_properties: dict[str, str]
    """Without effect, but every worker is asked for them (319)."""
    file: str

    @classmethod
    def of(cls, loaded: Loaded, *, number: int, public: PublicPorts, admin_socket: Path) -> "Handover":
        values = {name: one.text(getattr(loaded.settings, name)) for name, one in catalogue.all_settings().items()}
        origins = {name: str(origin) for name, origin in loaded.origins.items()}
        kept = dict(loaded.kept_properties)
        remoting, http = public.remoting.fileno(), public.http.fileno()
        return cls(number, remoting, http, str(admin_socket), values, origins, kept, loaded.file)

    def ports(self) -> PublicPorts:
        return PublicPorts(socket.socket(fileno=self.remoting_socket), socket.socket(fileno=self.http_socket))

    def loaded(self) -> Loaded:
        settings = Settings(**{name: catalogue.find(name).parse(text) for name, text in self.values.items()})
        origins = {name: Origin(origin) for name, origin in self.origins.items()}
        return Loaded(settings, origins, self.kept_properties, file=self.file)

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Handover":
        return cls(**json.loads(line))
