"""Fuzzes both ports of a real service: its own processes, its own store, real sockets, for a limited time.

`make fuzz` (`.ci/run` does it as well, `make fuzz ARGS="--seconds 600"` for longer) runs three parts side by side:

- `remoting`: random and almost valid frames and PROXY headers on port 9876;
- `http`: almost valid bytes on the HTTP port;
- `api`: Schemathesis, which makes requests from `/openapi.json` and checks every response against it.

After each part the service must live, answer a lookup, and have logged no error.
"""
