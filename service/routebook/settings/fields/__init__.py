"""Every setting: type, unit (in its name), default, range and the reason. The one home of each; a module a subject.

The flag, the variable and the TOML key follow from the name (`catalogue.py`); `_ms` are milliseconds. Where
RocketMQ counts in seconds, and ours means the same, the name says `_seconds`.
"""

from routebook.settings.fields.about import STORE_SCHEMES, About, Network, split_list
from routebook.settings.fields.expiry import ExpirySettings
from routebook.settings.fields.history import HistorySettings
from routebook.settings.fields.http import HttpSettings
from routebook.settings.fields.ports import PortSettings
from routebook.settings.fields.remoting import RemotingSettings
from routebook.settings.fields.routes import RouteSettings
from routebook.settings.fields.store import StoreSettings
from routebook.settings.fields.tls import TlsSettings

__all__ = ["STORE_SCHEMES", "About", "Network", "Settings", "split_list"]


# Python looks through bases from the right, so the last one's fields are told first.
class Settings(
    HttpSettings,
    TlsSettings,
    RemotingSettings,
    RouteSettings,
    ExpirySettings,
    HistorySettings,
    StoreSettings,
    PortSettings,
):
    """Effective settings of one process. Immutable: a change at run time makes a new one (`live.py`)."""
