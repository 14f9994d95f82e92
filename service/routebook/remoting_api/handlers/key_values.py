"""100, 101, 102, 219: key-values by namespace."""

from contextlib import suppress
from typing import Final

from routebook.errors import InvalidInputError, NotFoundError
from routebook.registry.registry import Registry
from routebook.remoting_api.handlers.asking import Asking
from routebook.remoting_api.reply import Reply
from routebook.wire.bodies.answers import encode_kv_table
from routebook.wire.codes import ResponseCode
from routebook.wire.fields import write_fields

NAMELESS: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="namespace or key is null")


class KeyValueHandlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def put(self, asking: Asking) -> Reply:
        namespace, key, value = asking.text("namespace"), asking.text("key"), asking.text("value")
        if namespace is None or key is None:
            return NAMELESS
        await self._registry.put_kv(namespace, key, value or "", asking.caller)
        if value is None:
            # The reference stores null then: the namespace is there, the key reads as absent.
            await self._registry.delete_kv(namespace, key, asking.caller)
        return Reply()

    async def get(self, asking: Asking) -> Reply:
        namespace, key = asking.text("namespace"), asking.text("key")
        try:
            value = self._registry.kv_value(namespace or "", key or "")
        except NotFoundError:
            remark = f"No config item, Namespace: {_said(namespace)} Key: {_said(key)}"
            return Reply(ResponseCode.QUERY_NOT_FOUND, ext={}, remark=remark)
        return Reply(ext=write_fields({"value": value}))

    async def delete(self, asking: Asking) -> Reply:
        """Success also where nothing was there."""
        with suppress(NotFoundError, InvalidInputError):
            await self._registry.delete_kv(asking.text("namespace") or "", asking.text("key") or "", asking.caller)
        return Reply()

    async def list(self, asking: Asking) -> Reply:
        namespace = asking.text("namespace")
        try:
            table = self._registry.kv(namespace or "")
        except NotFoundError:
            return Reply(ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {_said(namespace)}")
        return Reply(body=encode_kv_table(table))


def _said(name: str | None) -> str:
    return "null" if name is None else name
