"""318, 319: the configuration, as a properties file."""

import logging
from typing import Final

from routebook.errors import BrokenPropertiesError, ProtectedPropertyError
from routebook.registry.registry import Registry
from routebook.remoting_api.handlers.asking import Asking
from routebook.remoting_api.peer_log import PeerLog
from routebook.remoting_api.reply import Reply
from routebook.settings import LiveSettings
from routebook.settings.config_text import plan_config_update, properties_text
from routebook.wire.codes import ResponseCode

audit = logging.getLogger("routebook.audit")
refusals = PeerLog(audit)

BLACK_LISTED: Final = "Can not update config in black list."
NOT_ALLOWED: Final = "Configuration is not changed over this port here: remoting_config_updates is off."
MAX_TEXT_BYTES: Final = 65_536
UNREADABLE: Final = "string2Properties error"


class ConfigurationHandlers:
    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live

    async def show(self, _asking: Asking) -> Reply:
        return Reply(body=properties_text(self._live).encode())

    async def update(self, asking: Asking) -> Reply:
        """Nobody on this port says who he is: only where a setting allows it, and only what takes effect at once."""
        if not self._live.current.remoting_config_updates:
            refusals.say(logging.WARNING, "configuration change from %s: refused", asking.caller.source)
            return Reply(ResponseCode.NO_PERMISSION, remark=NOT_ALLOWED)
        try:
            changes = plan_config_update(_text_of(asking.body_within(MAX_TEXT_BYTES)), self._live)
        except BrokenPropertiesError:
            return Reply(ResponseCode.SYSTEM_ERROR, remark=UNREADABLE)
        except ProtectedPropertyError:
            refusals.say(
                logging.WARNING, "configuration change from %s: refused, a key is black-listed", asking.caller.source
            )
            return Reply(ResponseCode.NO_PERMISSION, remark=BLACK_LISTED)
        for key, value in changes.items():
            await self._registry.change_setting(key, value, asking.caller)
        audit.info("configuration change from %s: %s", asking.caller.source, changes)
        return Reply()


def _text_of(body: bytes) -> str:
    """The reference reads it as Java does: what is not UTF-8 becomes a replacement letter."""
    return body.decode("utf-8", "replace")
