"""The bodies of requests and answers: bytes to values of the model and back. Neither sockets nor the store are known.

Reading: `json_reading` (any JSON that a peer sends), `json_values` (what its fields mean), `shared_objects`,
`questions` (322, 217), `registration` (103) with `compressed_registration` and `inflating`. Writing: `dialect`,
`answers`. What is wrong with a body: `body_error`.
"""
