"""Reads the bytes of a connection as the remoting port does: lookups by the template, everything else by the parser."""

from routebook.protocol.connection import Connection, Event


def read_with_template(connection: Connection, piece: bytes) -> list[Event]:
    events: list[Event] = []
    at = 0
    while (template := connection.lookup_template) and (lookups := template.read(piece, at)):
        for topic, opaque, end in lookups:
            ext = {**(template.example.ext or {}), "topic": topic}
            events.append(template.example._replace(opaque=int(opaque), ext=ext))
            at = end
    if at < len(piece):
        events += connection.receive(piece[at:])
    return events
