"""The RocketMQ remoting protocol without sockets: bytes in, events out, bytes to send.

From the outside in: `opening` (what a connection begins with), `connection` (what a port talks to), `frame`, `header`
with its two encodings, `command` (requests and responses), `fields` (what the ext fields mean), `bodies`.
"""
