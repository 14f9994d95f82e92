"""Both streams of a namespace, written like the service writes them."""

from collections.abc import Iterable

from routebook_pipeline.source.stream import StreamEnd, StreamReader, key_of
from tests.pipeline.source.streams import URL_ENV, Stream


class Store:
    def __init__(self, url: str, namespace: str) -> None:
        self.changes, self.pulse = Stream(url, namespace), Stream(url, namespace, "pulse")
        self._readers, self._meta = key_of(namespace, "readers"), key_of(namespace, "meta")

    def add(self, rows: Iterable[tuple[str, bytes]], *, stream: str = "changes") -> None:
        target = self.changes if stream == "changes" else self.pulse
        for entry_id, payload in rows:
            target.client.execute_command("XADD", target.key, entry_id, "d", payload)

    def delete(self, *rows: tuple[str, bytes]) -> None:
        self.changes.client.execute_command("XDEL", self.changes.key, *(entry_id for entry_id, _ in rows))

    def name_history(self, name: str) -> None:
        """As the service does when it finds an empty store, or a failover has lost changes."""
        self.changes.client.execute_command("HSET", self._meta, "history", name)

    def newest(self) -> StreamEnd:
        with StreamReader(URL_ENV, self.changes.namespace) as reader:
            return reader.newest()

    def trim_below(self, entry_id: str) -> None:
        self.changes.client.execute_command("XTRIM", self.changes.key, "MINID", entry_id)

    def reader_position(self, reader: str) -> int | None:
        """The version up to which the reader has durably consumed the changes."""
        value = self.changes.client.execute_command("HGET", self._readers, reader)
        return None if value is None else int(value.split()[0])

    def close(self) -> None:
        self.changes.client.delete(self._readers, self._meta)
        for stream in (self.changes, self.pulse):
            stream.client.delete(stream.key)
            stream.client.close()
