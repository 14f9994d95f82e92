"""The Redis ACL rules that a worker's store user needs (`routebook doctor --acl`): exactly these commands, on the
keys of one namespace.

The commands of the scripts are read from the scripts, so a changed script changes the rule. The others are listed here;
one test runs whole workers under the rule, another one removes each command in turn.
"""

import re
from typing import Final

from routebook.store.connection.url import Layout, StoreUrl
from routebook.store.keys import Keys
from routebook.store.namespace import ScriptSet

_CALLED = re.compile(r"(?:redis\.p?call|call_in_slices)\(\s*'(\w+)'")

_CONNECTING: Final = ("client|setname", "ping", "role")
_SCRIPTS: Final = ("eval", "evalsha", "script|load")
_CHECKS: Final = ("config|get", "info", "time")
_READS: Final = ("get", "hget", "hgetall", "hlen", "hmget", "hscan", "smembers", "zmscore", "zrange", "zscore")
_READS_OF_THE_HISTORY: Final = ("xlen", "xrange", "xread", "xrevrange")
_TRIMMING: Final = ("hdel", "xtrim", "zremrangebyscore")

DEFAULT_USER: Final = "routebook"


def commands_of_scripts(scripts: ScriptSet) -> set[str]:
    return {command.lower() for name in scripts.names for command in _CALLED.findall(scripts[name].source)}


def needed_commands(scripts: ScriptSet, url: StoreUrl) -> list[str]:
    needed = {*_CONNECTING, *_SCRIPTS, *_CHECKS, *_READS, *_READS_OF_THE_HISTORY, *_TRIMMING}
    needed |= commands_of_scripts(scripts)
    if url.db:
        needed.add("select")
    if url.layout is Layout.CLUSTER:
        needed.add("cluster|slots")
    return sorted(needed)


def acl_rules(scripts: ScriptSet, url: StoreUrl, namespace: str) -> list[str]:
    """The words after the user's name in `ACL SETUSER`. They replace all permissions of the user but no password."""
    keys = Keys(namespace).table("*")
    commands = [f"+{command}" for command in needed_commands(scripts, url)]
    return ["on", "resetkeys", f"~{keys}", "resetchannels", "nocommands", *commands]


def acl_commands(scripts: ScriptSet, url: StoreUrl, namespace: str) -> list[str]:
    """Lines for redis-cli, without passwords."""
    user = url.credentials.username or DEFAULT_USER
    lines = [" ".join(["ACL SETUSER", user, *acl_rules(scripts, url, namespace)])]
    if url.layout is Layout.SENTINEL and (sentinel_user := url.sentinel_credentials.username):
        lines.append(f"ACL SETUSER {sentinel_user} on resetchannels nocommands +sentinel|get-master-addr-by-name")
    return lines
