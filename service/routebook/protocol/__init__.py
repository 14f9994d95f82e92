"""The RocketMQ remoting protocol without sockets: bytes in, events out, bytes to send.

From the outside in: `opening` (the first bytes of a connection), `connection` (what a port uses), `frame`, `headers`
(two encodings, and the values of the ext fields), `command` (requests and responses), and the bodies:
`registration_body`, `request_bodies`, `answer_bodies`, with `body_json` below them.
"""
