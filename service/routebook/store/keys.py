"""The names of all keys of one namespace. Scripts build the same names from `meta` (`lua/include/keys.lua`).

| key `rb:{ns}:…` | type | holds |
|---|---|---|
| `clusters` | set | cluster names |
| `cluster:<cluster>` | set | its broker names |
| `broker:<name>` | hash | cluster, zone, acting, rev (version of its last change), `addr:<id>` |
| `queues:<name>` | hash | topic → `perm read write flags[ t]`, t: it came from register-topic |
| `staged:<random>` | hash | a queue table in preparation; vanishes after a minute |
| `mapping:<host>`, `mapped` | hash, set | topic → static-topic mapping as JSON; the hosts that have any |
| `instance:<cluster>/<addr>` | hash | broker, id, inc, timeout, ha, dv, digests and the rev they hold for |
| `filters` | hash | `<cluster>/<addr>` → JSON list |
| `heartbeats`, `deadlines` | sorted set | `<cluster>/<addr>` by last heartbeat; by expiry on the deadline clock |
| `sessions:<worker>` | hash | `<cluster>/<addr>` → `<stamp> <incarnation>`: connections of the worker carry it |
| `lost` | hash | `<cluster>/<addr>` → `<incarnation> <lost ms> <worker>`: it has no session, the worker looks |
| `ended` | sorted set | `<worker> <cluster>/<addr>`: sessions that ended lately, by the server's clock |
| `workers`, `workers:about` | sorted set, hash | workers by the end of their lease (deadline clock); for `status` |
| `kv`, `kv:<namespace>` | set, hash | namespaces of key-values, an emptied one stays; their values |
| `settings` | hash | run-time settings |
| `changes` | stream | the history; id `<ms>-<version>`, one field `d` |
| `changes:marks` | sorted set | version by the bytes of the history written up to it, one a MiB |
| `pulse` | stream | heartbeat gaps, summed up; ids as in `changes`, with numbers of its own |
| `readers` | hash | reader of the history → `<version> <ms>`: what it holds safely, and when it said so |
| `meta` | hash | schema, history, ms, version, bytes, alive_ms, paused_ms, kv_imported, restored, pulse_*, baseline_* |
| `identity` | string | random, set once |
| `leader`, `leader:token` | string | the lease `<token>:<worker>:<nonce>`; the last token |
| `expired` | sorted set | `<cluster>/<addr>` that expired lately, by the deadline clock |
| `expiry` | hash | last_scan_ms, instances, due, held_since_ms, brokers, released_to, vanished…, stood… |
"""

from dataclasses import dataclass

from routebook.model.names import check_namespace


@dataclass(frozen=True, slots=True)
class Keys:
    """The braces make the namespace the slot tag, so that one script may touch all of it on a Cluster."""

    namespace: str

    def __post_init__(self) -> None:
        check_namespace(self.namespace)

    def table(self, name: str) -> str:
        return f"rb:{{{self.namespace}}}:{name}"

    def of(self, kind: str, name: str) -> str:
        return f"rb:{{{self.namespace}}}:{kind}:{name}"

    @property
    def meta(self) -> str:
        return self.table("meta")

    @property
    def changes(self) -> str:
        return self.table("changes")

    @property
    def marks(self) -> str:
        return self.table("changes:marks")

    @property
    def readers(self) -> str:
        return self.table("readers")

    @property
    def pulse(self) -> str:
        return self.table("pulse")
