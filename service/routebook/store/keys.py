"""The names of all keys of one namespace. Scripts build the same names from `meta` (`lua/include/keys.lua`).

| key `rb:{ns}:…` | type | holds |
|---|---|---|
| `clusters` | set | cluster names |
| `cluster:<cluster>` | set | its broker names |
| `broker:<name>` | hash | cluster, zone, acting, rev (version of its last change), `addr:<id>` |
| `queues:<name>` | hash | topic → `perm read write flags[ t]`; t: registered by request |
| `staged:<random>` | hash | a queue table that is being staged; expires after a minute |
| `staged-changes:<random>` | hash | queue items of its history, in chunks: `kind:<n>`, `items:<n>`; expires too |
| `mapping:<host>`, `mapped` | hash, set | topic → static-topic mapping as JSON; the hosts that have mappings |
| `instance:<cluster>/<addr>` | hash | broker, id, inc, since, timeout, ha, dv, source, digests and their rev |
| `filters` | hash | `<cluster>/<addr>` → filter servers as JSON list |
| `heartbeats`, `deadlines` | sorted set | `<cluster>/<addr>` by last heartbeat; by deadline, on the deadline clock |
| `sessions:<worker>` | hash | `<cluster>/<addr>` → `<stamp> <incarnation>`: the worker has a connection of it |
| `lost` | hash | `<cluster>/<addr>` → `<incarnation> <lost ms> <worker>`: it has no session; worker investigates |
| `ended` | sorted set | `<worker> <cluster>/<addr>`: sessions that ended recently, by the store's clock |
| `workers`, `workers:about` | sorted set, hash | workers by the end of their lease (deadline clock); for `status` |
| `kv`, `kv:<namespace>` | set, hash | key-value namespaces, including empty ones; their values |
| `settings` | hash | run-time settings |
| `identities` | hash | name → role, policy and credentials as JSON; tokens hashed, signing secrets in clear |
| `changes` | stream | the history; id `<ms>-<version>`, one field `d` |
| `changes:marks` | sorted set | version by the bytes of the history written up to it, one per MiB |
| `refusals` | stream | requests that were refused or failed, the newest 10,000; one field `d` |
| `pulse` | stream | heartbeat gaps; ids as in `changes`, with versions of its own |
| `readers` | hash | reader of the history → `<version> <ms>`: consumed up to there, reported then |
| `meta` | hash | schema, history, began_at, ms, version, bytes, alive_ms, paused_ms, kv_*, restored, … |
| `identity` | string | random, set once |
| `leader`, `leader:token` | string | the lease `<token>:<worker>:<nonce>`; the last token |
| `new-instances` | sorted set | `<cluster>/<addr>` that is not established, by its registration (deadline clock) |
| `removals` | sorted set | established `<cluster>/<addr>` that was removed recently, by the deadline clock |
| `held` | sorted set | `<cluster>/<addr>` whose removal is held, by the deadline clock |
| `expiry` | hash | last_scan_ms, instances, due, held_since_ms, brokers, released_to, vanished*, paused_* |
"""

from routebook.model.names import check_namespace


class Keys:
    """The braces make the namespace the slot tag, so one script may use all of its keys on a Cluster."""

    def __init__(self, namespace: str) -> None:
        self.namespace = check_namespace(namespace)
        self.meta = self.table("meta")
        self.changes = self.table("changes")
        self.marks = self.table("changes:marks")
        self.refusals = self.table("refusals")
        self.readers = self.table("readers")
        self.pulse = self.table("pulse")

    def table(self, name: str) -> str:
        return f"rb:{{{self.namespace}}}:{name}"

    def of(self, kind: str, name: str) -> str:
        return f"rb:{{{self.namespace}}}:{kind}:{name}"
