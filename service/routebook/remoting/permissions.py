"""Which requests of the remoting port need a permission, and whether a caller has it.

RocketMQ's name server obeys everyone who can connect. That is right on one machine. On a network, anyone could delete
topics and take brokers out of service. So a service that other machines can reach refuses the requests that change the
fleet by hand, or read what HTTP guards, until the setting `remoting_admin` allows them. What brokers, producers and
consumers send in normal operation is not affected.
"""

from typing import Final

from routebook.errors import ForbiddenError
from routebook.protocol.frame import RequestCode, request_name
from routebook.registry.registry import Registry
from routebook.remoting.reply import RequestContext
from routebook.settings import LiveSettings, Settings

ADMINISTRATIVE: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    }
)
PAGE: Final = "docs/security.md#the-remoting-port"


class Permissions:
    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._is_open = True
        self.guarded: frozenset[int] = frozenset()
        """The codes for which `check` has to be called."""
        live.subscribe(self._settings_changed)
        self._settings_changed(live.current)

    def _settings_changed(self, settings: Settings) -> None:
        mode = settings.remoting_admin or ("open" if settings.listens_on_loopback_only else "off")
        self._is_open = mode == "open"
        self.guarded = frozenset() if self._is_open else ADMINISTRATIVE

    def check(self, context: RequestContext) -> None:
        """Raises ForbiddenError when the caller may not send this request."""
        raise self._refusal(request_name(context.request.code))

    def check_topic_registration(self, context: RequestContext, brokers: set[str]) -> None:
        """217: brokers send it for themselves, over the connection that they registered with."""
        if not self._is_open and not brokers <= self._registry.sessions.broker_names_of(context.connection):
            raise self._refusal(f"{request_name(context.request.code)} for brokers of another connection")

    def _refusal(self, what: str) -> ForbiddenError:
        return ForbiddenError(
            f"{what} is not allowed on this port (setting remoting_admin).",
            advice=f"Use HTTP with a token, or set remoting_admin to open; see {PAGE}.",
        )
