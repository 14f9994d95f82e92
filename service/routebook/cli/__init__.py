"""`routebook …`: one module a noun. All but `up`, `serve` and `doctor` only talk to the HTTP API."""
