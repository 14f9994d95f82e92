"""Every setting: type, default, range and the reason, one flat entry each. The only home of each of them.

The flag, the variable and the TOML key follow from the name (`catalogue.py`). The unit is the end of the name: `_ms`
are milliseconds. Where RocketMQ counts in seconds, and the setting means the same, the name ends in `_seconds`.
"""

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from routebook.settings.kinds import (
    STORE_SCHEMES,
    Addresses,
    Host,
    HostNames,
    NamespaceName,
    Network,
    Networks,
    Secret,
    StoreUrl,
    Token,
    setting,
    split_list,
)
from routebook.settings.limits import LimitSettings

_HOST = "an IP address or a host name of this machine"
_ADDRESSES = "host:port;host:port, IPv6 in brackets"
_DAY_MS = 86_400_000
_GIB = 1_073_741_824
_TIB = 1_099_511_627_776


class Settings(LimitSettings):
    """Effective settings of one process. Immutable: a change at run time makes a new object (`live.py`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # One entry a setting, the numbers first and the reason last: read it as a table. The formatter would spread each
    # entry over ten lines.
    # fmt: off

    # Ports and the process

    remoting_port: int = setting(
        9876, ge=0, le=65_535, properties_name="listenPort",
        why="RocketMQ's port for brokers, clients and mqadmin; all expect 9876. 0 takes a free port.",
    )
    http_port: int = setting(
        8080, ge=0, le=65_535,
        why="HTTP API and watch. 0 takes a free port; the start line and `status` show it.",
    )
    admin_port: int = setting(
        8081, ge=0, le=65_535,
        why="Health and metrics, never public. 0 takes a free port; the start line shows it.",
    )
    bind_address: Host = setting(
        "127.0.0.1", properties_name="bindAddress", allowed=_HOST,
        why="Address on which the public ports listen: loopback with `up`, all addresses with `serve`.",
    )
    admin_host: Host = setting(
        "127.0.0.1", allowed=_HOST,
        why="Address on which the admin port listens. Loopback, because the admin port has no authentication.",
    )
    workers: int = setting(
        1, ge=1, le=256,
        why="Worker processes of one `serve`. With 1, no supervisor process is needed.",
    )
    advertised_addresses: Addresses = setting(
        "", allowed=_ADDRESSES,
        why="Addresses returned by /rocketmq/nsaddr. Empty: the request's host and the remoting port.",
    )
    admin_token: Token = setting(
        "", secret=Secret.WHOLE, allowed="printable ASCII letters without spaces",
        why=(
            "Bearer token with the role admin for HTTP requests. Empty: only identities have tokens. A service that "
            "listens on loopback only needs none for local callers."
        ),
    )
    proxy_from: Networks = setting(
        "", allowed="networks such as 10.0.0.0/8, separated by commas; empty for none",
        why=(
            "Networks whose PROXY headers are trusted: those of your load balancers. None by default, because "
            "anyone can write such a header, also from this machine through a relay."
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", at_run_time=True,
        why="Lowest level that is logged. info writes one line for each change of the route table.",
    )
    log_format: Literal["text", "json"] = setting(
        "text",
        why="text for people, json (one object a line) for log collectors.",
    )
    drain_ms: int = setting(
        10_000, ge=0, le=_DAY_MS, properties_name="shutdownWaitTimeSeconds", properties_factor=1_000,
        why=(
            "At a stop, how long running requests may take to finish while peers of the remoting port are asked to "
            "move; what is left then is cut and counted. A third of what Kubernetes allows. Apache's waits 30 s, in "
            "whole seconds."
        ),
    )

    # The store

    redis_url: StoreUrl = setting(
        "", secret=Secret.URL, allowed="a URL that begins with " + ", ".join(STORE_SCHEMES),
        why="The store. Empty: `up` starts an embedded one; `serve` requires a URL.",
    )
    namespace: NamespaceName = setting(
        "default", allowed="1 to 64 of A-Z a-z 0-9 . _ -",
        why="Prefix and hash slot of every key in the store. Each fleet has its own namespace.",
    )
    store_timeout_ms: int = setting(
        900, ge=10, le=60_000,
        why="Deadline of one call to the store. A write is refused after it, within a second; lookups need no store.",
    )
    store_connections: int = setting(
        8, ge=1, le=1_000,
        why="Maximum number of connections from one worker to the store. A script takes well below a millisecond.",
    )
    store_cut_off_ms: int = setting(
        10_000, ge=1_000, le=3_600_000, at_run_time=True,
        why=(
            "A worker that has not reached the store for this time closes the connections of its brokers, spread over "
            "some seconds, so that they reconnect through the balancer to a worker that can. A value shorter than a "
            "failover would move all brokers needlessly."
        ),
    )
    store_wait_ms: int = setting(
        0, ge=0, le=_DAY_MS,
        why=(
            "At the start, how long to wait for an unreachable store, alive and not ready. 0: fail at once. People "
            "want the message immediately, but a container that ended is restarted with a growing delay of minutes."
        ),
    )
    kv_config_path: str = setting(
        "", properties_name="kvConfigPath",
        why="Apache's kvConfig.json, imported once into a store that never held key-values. Empty: no import.",
    )
    data_dir: Path = setting(
        Path(".routebook"), allowed="a folder",
        why="Folder of the embedded store of `up`. Its data survive restarts.",
    )

    # The history

    history_min_entries: int = setting(
        100_000, ge=1_000, le=1_000_000_000, at_run_time=True, former_names=("history_max_entries",),
        why=(
            "Number of changes kept even when every reader has consumed them: watches resume from them and new "
            "readers start with them. About 30 MB at the usual size."
        ),
    )
    history_hard_limit: int = setting(
        5_000_000, ge=1_000, le=1_000_000_000, at_run_time=True,
        why=(
            "Changes beyond this number are trimmed even if a reader has not consumed them, to protect the store's "
            "memory. About 1 GB at the usual size."
        ),
    )
    history_max_bytes: int = setting(
        268_435_456, ge=1_048_576, le=_TIB, at_run_time=True,
        why=(
            "Approximate limit of the history in bytes, whatever the two limits in entries say: one change of 1,000 "
            "topics takes 60 KB."
        ),
    )
    reader_expiry_ms: int = setting(
        604_800_000, ge=60_000, le=31_536_000_000, at_run_time=True,
        why=(
            "A reader of the history (the pipeline) that has not reported its position for this time no longer delays "
            "trimming. Seven days: a long week-end with a broken job loses nothing."
        ),
    )
    pulse_max_bytes: int = setting(
        67_108_864, ge=1_048_576, le=_TIB, at_run_time=True,
        why=(
            "Approximate limit of the stream of heartbeat gaps: half a day of a thousand brokers. A running pipeline "
            "reads it within minutes."
        ),
    )

    # Expiry and lost connections

    broker_timeout_ms: int = setting(
        120_000, ge=1_000, le=_DAY_MS, at_run_time=True,
        why="A broker that sent no timeout of its own expires after this silence. Apache's two minutes.",
    )
    scan_not_active_broker_interval_ms: int = setting(
        5_000, ge=10, le=3_600_000, properties_name="scanNotActiveBrokerInterval",
        why="How often the leader scans for silent brokers. Apache's five seconds.",
    )
    lease_ms: int = setting(
        10_000, ge=200, le=600_000,
        why=(
            "Duration of the leader's lease: a dead leader is replaced after it. A shorter lease is replaced sooner, "
            "and a shorter pause of the store changes the leader."
        ),
    )
    hold_percent: int = setting(
        30, ge=0, le=100, at_run_time=True,
        why=(
            "When more than this share of all instances (and at least hold_minimum of them) would be removed within "
            "hold_window_ms, further removals are held until an operator decides: a failed network is more likely than "
            "the death of so many brokers. Expiries, lost connections and unregistrations count together."
        ),
    )
    hold_window_ms: int = setting(
        60_000, ge=0, le=3_600_000, at_run_time=True,
        why=(
            "Removals within this time count together: brokers that fall silent at once become due spread over their "
            "registration period of 30 s. The default is two periods. 0: only what is due or held counts."
        ),
    )
    hold_minimum: int = setting(
        5, ge=1, le=1_000_000, at_run_time=True,
        why="Fewer instances than this are never held: in a small fleet, two dead brokers are a large share.",
    )
    recovery_window_ms: int = setting(
        150_000, ge=0, le=_DAY_MS,
        why="How long the old table is still served after the store lost its data. Five registration periods.",
    )
    self_check_interval_ms: int = setting(
        180_000, ge=0, le=_DAY_MS, at_run_time=True,
        why=(
            "How often a worker compares the store with its table and writes back what the store lacks, such as a key "
            "that was deleted by hand. 0: never."
        ),
    )
    store_check_interval_ms: int = setting(
        10_000, ge=1_000, le=_DAY_MS, at_run_time=True,
        why="How often the store's eviction policy, memory, role and disk are checked while a worker runs.",
    )
    warm_up_ms: int = setting(
        0, ge=0, le=_DAY_MS,
        why="For this time, a cold worker on a young, empty store answers `not ready` instead of `not found`. 0: off.",
    )
    connection_grace_ms: int = setting(
        3_000, ge=0, le=600_000, at_run_time=True,
        why=(
            "A broker whose last connection ended is dialled once, and removed after this time if its incarnation is "
            "still the same. It has this long to reconnect through another worker. 0: removed at once, as Apache's "
            "does."
        ),
    )
    mass_disconnect_percent: int = setting(
        20, ge=0, le=100, at_run_time=True, former_names=("network_ill_percent",),
        why=(
            "When this share of all sessions (and at least mass_disconnect_minimum of them) ended within one grace, "
            "it is a mass disconnect: brokers whose addresses refuse or do not answer then keep their deadlines."
        ),
    )
    mass_disconnect_minimum: int = setting(
        3, ge=1, le=1_000_000, at_run_time=True, former_names=("network_ill_minimum",),
        why="Fewer lost sessions than this are never a mass disconnect: one of two is half of a small fleet.",
    )
    dial_networks: Networks = setting(
        "", allowed="networks such as 10.0.0.0/8, separated by commas; empty for each broker's own network",
        why=(
            "Networks whose addresses may be dialled after a lost connection. Empty: the one that the broker's "
            "connection came from (its /24, IPv6 its /64), because any peer can register any address. "
            "Set it when brokers connect through a balancer without PROXY headers: a dead broker that may not be "
            "dialled stays until its deadline."
        ),
    )
    unregister_broker_queue_capacity: int = setting(
        3_000, ge=1, le=1_000_000, properties_name="unRegisterBrokerQueueCapacity",
        why=(
            "Unregistrations (request 104) that may wait for the store. Beyond it, one is answered with code 1 and the "
            "broker's deadline decides. Removals for lost connections and expiries are never refused. Apache's number."
        ),
    )

    # Answers to RocketMQ peers

    support_acting_master: bool = setting(
        False, at_run_time=True, properties_name="supportActingMaster",
        why="In a group without a master, the slave with the lowest id is served as acting master. Off as in Apache's.",
    )
    delete_topic_with_broker_registration: bool = setting(
        False, at_run_time=True, properties_name="deleteTopicWithBrokerRegistration",
        why=(
            "A registration removes the broker's topics that it does not name. Off as in Apache's. A broker that "
            "registers only a part of its topics (enableSplitRegistration, or a single new topic) loses all others."
        ),
    )
    order_message_enable: bool = setting(
        False, at_run_time=True, properties_name="orderMessageEnable",
        why="Routes contain the order configuration of the topic.",
    )
    return_order_topic_config_to_broker: bool = setting(
        True, at_run_time=True, properties_name="returnOrderTopicConfigToBroker",
        why="The answer to a registration contains the order configuration of all topics.",
    )
    enable_topic_list: bool = setting(
        True, at_run_time=True, properties_name="enableTopicList",
        why="Lists of topics by cluster and by kind (224, 311, 312, 313) are answered. On as in Apache's.",
    )
    enable_all_topic_list: bool = setting(
        True, at_run_time=True, properties_name="enableAllTopicList",
        why="The list of all topics (206) is answered. On as in Apache's.",
    )
    notify_min_broker_id_changed: bool = setting(
        False, at_run_time=True, properties_name="notifyMinBrokerIdChanged",
        why=(
            "Brokers of a group are notified (905) when its lowest id changes; acting masters depend on it. Off as in "
            "Apache's."
        ),
    )
    need_wait_for_service: bool = setting(
        False, at_run_time=True, properties_name="needWaitForService",
        why=(
            "Route lookups (105) are refused for wait_seconds_for_service after the start. Off as in Apache's. The "
            "table in the store is complete at once, so this helps only with a store that starts empty."
        ),
    )
    wait_seconds_for_service: int = setting(
        45, ge=0, le=86_400, at_run_time=True, properties_name="waitSecondsForService",
        why="How long need_wait_for_service refuses lookups. Apache's 45 s, one and a half registration periods.",
    )
    cluster_test: bool = setting(
        False, properties_name="clusterTest",
        why="A name server for tests: lookups of unknown topics are sent to cluster_test_upstream. Off as in Apache's.",
    )
    cluster_test_upstream: Addresses = setting(
        "", allowed=_ADDRESSES,
        why="Name servers that cluster_test asks. No default: a guess could return routes of another fleet.",
    )
    remoting_config_updates: bool = setting(
        False,
        why=(
            "Whether mqadmin may change the nine run-time properties over the remoting port (318). Off, because that "
            "port does not authenticate its peers; HTTP with the token can change the same settings."
        ),
    )
    remoting_admin: Literal["", "open", "signed", "off"] = setting(
        "", at_run_time=True, allowed="open, signed, off, or empty",
        why=(
            "Who may send administrative requests (100, 101, 102, 205, 216, 219, 318, 327) over the remoting port: "
            "everyone (open, as Apache's), identities with the role operator, for 318 admin (signed), or no peer "
            "(off). Empty: open when the service listens on loopback only, otherwise signed."
        ),
    )
    remoting_access: Literal["open", "signed"] = setting(
        "open", at_run_time=True,
        why=(
            "Whether all requests of the remoting port, lookups too, must be signed or come with a client certificate. "
            "Open as Apache's; brokers must sign in any case once there is an identity with the role broker."
        ),
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath", properties_name="configBlackList",
        allowed="names of properties, separated by semicolons",
        why="Properties that 318 must not name, besides Apache's fixed four. Naming one refuses the whole request.",
    )

    # The remoting port

    serialize_type: Literal["JSON", "ROCKETMQ"] = setting(
        "JSON", properties_name="rocketmq.serialize.type",
        why=(
            "Header encoding of all answers, whatever the encoding of the request, and of requests sent from here. "
            "JSON as in Apache's, which every peer reads. The variable ROCKETMQ_SERIALIZE_TYPE applies when no file "
            "sets it."
        ),
    )
    max_frame_bytes: int = setting(
        16_777_216, ge=4_096, le=_GIB, properties_name="com.rocketmq.remoting.frameMaxLength",
        why=(
            "Largest frame of the remoting port, checked on its first four bytes before anything is kept. A longer "
            "frame closes the connection. Apache's 16 MiB."
        ),
    )
    max_header_bytes: int = setting(
        131_072, ge=1_024, le=16_777_215,
        why="Largest header of a frame. Real ones stay below 2 KiB; large data belongs into a body.",
    )
    default_thread_pool_nums: int = setting(
        16, ge=1, le=1_024, properties_name="defaultThreadPoolNums",
        why="Requests other than 105 that one worker runs at the same time; the others queue. Apache's number.",
    )
    default_thread_pool_queue_capacity: int = setting(
        10_000, ge=1, le=10_000_000, properties_name="defaultThreadPoolQueueCapacity",
        why="Requests other than 105 that may wait. Beyond it, the answer is 2 (busy) at once. Apache's number.",
    )
    client_request_thread_pool_nums: int = setting(
        8, ge=1, le=1_024, properties_name="clientRequestThreadPoolNums",
        why=(
            "Lookups (105) forwarded to other name servers (cluster_test) at the same time. All other lookups are "
            "answered from memory as they arrive. Apache's number."
        ),
    )
    client_request_thread_pool_queue_capacity: int = setting(
        50_000, ge=1, le=10_000_000, properties_name="clientRequestThreadPoolQueueCapacity",
        why=(
            "Forwarded lookups that may wait. Beyond it, the answer is 2 (busy) at once. A queue of its own, so that "
            "lookups and brokers do not starve each other. Apache's number."
        ),
    )
    server_channel_max_idle_time_seconds: int = setting(
        120, ge=0, le=86_400, properties_name="serverChannelMaxIdleTimeSeconds",
        why=(
            "A connection that neither reads nor writes for this time is closed. Apache's 120 s, four registration "
            "periods. 0: never."
        ),
    )
    incomplete_frame_timeout_ms: int = setting(
        10_000, ge=100, le=3_600_000,
        why=(
            "Deadline for completing a frame (or PROXY header, or handshake) that has begun, and for a slow reader to "
            "catch up. Then the connection is closed, because both hold memory. 16 MiB in 10 s is 13 Mbit/s."
        ),
    )
    max_connections: int = setting(
        20_000, ge=1, le=1_000_000,
        why=(
            "Connections of one worker on each public port. When all are in use, silent ones are closed first, then "
            "idle ones without a broker, then new ones. Each costs a file descriptor and some kilobytes."
        ),
    )
    max_output_bytes: int = setting(
        1_048_576, ge=65_536, le=_GIB,
        why=(
            "Unread bytes of a connection's answers at which its requests are no longer read. A connection that stays "
            "there for incomplete_frame_timeout_ms is closed, so that a peer that never reads cannot fill the memory."
        ),
    )
    max_queued_bytes: int = setting(
        268_435_456, ge=1_048_576, le=68_719_476_736,
        why=(
            "Bodies of all waiting requests of one worker together. Beyond it, the answer is 2 (busy). 10,000 waiting "
            "requests of 16 MiB would be 160 GB."
        ),
    )
    server_socket_snd_buf_size: int = setting(
        0, ge=0, le=_GIB, properties_name="serverSocketSndBufSize",
        weaker_properties=("com.rocketmq.remoting.socket.sndbuf.size",),
        why="SO_SNDBUF in bytes of each connection. 0: the system's default, which grows as needed.",
    )
    server_socket_rcv_buf_size: int = setting(
        0, ge=0, le=_GIB, properties_name="serverSocketRcvBufSize",
        weaker_properties=("com.rocketmq.remoting.socket.rcvbuf.size",),
        why="SO_RCVBUF in bytes of each connection. 0: the system's default, which grows as needed.",
    )
    write_buffer_high_water_mark: int = setting(
        0, ge=0, le=_GIB, properties_name="writeBufferHighWaterMark",
        weaker_properties=("com.rocketmq.remoting.write.buffer.high.water.mark",),
        why="Apache's name for max_output_bytes; replaces it where set. 0: not set, as by default.",
    )
    write_buffer_low_water_mark: int = setting(
        0, ge=0, le=_GIB, properties_name="writeBufferLowWaterMark",
        weaker_properties=("com.rocketmq.remoting.write.buffer.low.water.mark",),
        why="Unread bytes at which requests are read again. 0: a quarter of the high mark.",
    )
    enable_shutdown_gracefully: bool = setting(
        True, properties_name="enableShutdownGracefully",
        why=(
            "At a stop, peers that understand it are asked to move (GO_AWAY, code 1500) during drain_ms. On, unlike "
            "Apache's: a rolling restart must not cost a request."
        ),
    )
    connect_timeout_ms: int = setting(
        3_000, ge=10, le=600_000, properties_name="connectTimeoutMillis",
        weaker_properties=("com.rocketmq.remoting.client.connect.timeout",),
        why="For connections opened from here (905 to brokers, forwarded lookups). Apache's 3 s.",
    )

    # TLS, of the remoting port and of HTTP alike; names and meaning are those of Apache's system properties

    tls_mode: Literal["permissive", "enforcing", "disabled"] = setting(
        "permissive", properties_name="tls.server.mode",
        why=(
            "TLS on the shared port: permissive accepts TLS and plain connections (as Apache's), enforcing closes "
            "plain ones, disabled closes TLS ones."
        ),
    )
    tls_test_mode: bool = setting(
        True, properties_name="tls.test.mode.enable",
        why=(
            "On as in Apache's: a self-signed certificate is made at the start, and the key and certificate files are "
            "ignored. Turn it off to use your files."
        ),
    )
    tls_config_file: str = setting(
        "/etc/rocketmq/tls.properties", properties_name="tls.config.file", allowed="a file",
        why=(
            "Properties that are read when this file exists; they override those of the file given with -c. Apache's "
            "location. A file that you name must exist."
        ),
    )
    tls_key_path: str = setting(
        "", properties_name="tls.server.keyPath", allowed="a file",
        why=(
            "Private key of the server, PEM (PKCS#8 or traditional). Read again when it changes together with "
            "tls_cert_path."
        ),
    )
    tls_key_password: str = setting(
        "", properties_name="tls.server.keyPassword", secret=Secret.WHOLE,
        why="Password of the private key. Empty: it has none.",
    )
    tls_cert_path: str = setting(
        "", properties_name="tls.server.certPath", allowed="a file",
        why="Certificate chain of the server, PEM, its own certificate first.",
    )
    tls_trust_path: str = setting(
        "", properties_name="tls.server.trustCertPath", allowed="a file",
        why="Certificates that may sign a client's, PEM. Used when tls_auth_client is on.",
    )
    tls_auth_client: bool = setting(
        False, properties_name="tls.server.authClient",
        why=(
            "A client's certificate is verified against tls_trust_path. Off as in Apache's: any certificate is "
            "accepted."
        ),
    )
    tls_need_client_auth: Literal["none", "optional", "require"] = setting(
        "none", properties_name="tls.server.need.client.auth",
        why="Whether a client is asked for a certificate, and refused without one. none as in Apache's.",
    )
    tls_client_enable: bool = setting(
        False, properties_name="tls.enable", weaker_properties=("useTLS",),
        why="Connections opened from here (905 to brokers, forwarded lookups) use TLS. Off as in Apache's.",
    )

    # HTTP

    http_host_names: HostNames = setting(
        "", allowed="host names separated by commas; *.example.com for all names below; * for any",
        why=(
            "Host names of this service besides localhost, its addresses, the machine's own name and the hosts of "
            "advertised_addresses. Requests with another Host header are refused, so that a page whose name resolves "
            "to this machine cannot use the service (DNS rebinding)."
        ),
    )
    http_reads: Literal["open", "token"] = setting(
        "open",
        why=(
            "Whether reads over HTTP need a token (or a client certificate) of any role. Open, as lookups on the "
            "remoting port are. The list of name servers (/rocketmq/…) stays open, because RocketMQ sends no token."
        ),
    )
    min_version_wait_ms: int = setting(
        5_000, ge=0, le=_DAY_MS,
        why="How long a request with ?min_version= may wait until this worker has seen that version. 0: not at all.",
    )
    request_timeout_ms: int = setting(
        10_000, ge=100, le=3_600_000,
        why="Deadline for receiving and answering a request. uvicorn has no such deadline.",
    )
    max_body_bytes: int = setting(
        67_108_864, ge=1_024, le=_GIB,
        why="Largest request body in bytes: 64 MiB holds 70,000 topics several times over.",
    )
    reports_dir: str = setting(
        "", allowed="a folder",
        why=(
            "Folder whose reports (`routebook pipeline report --out`) are shown under /v1/reports. Empty: none. "
            "Everyone who can reach the port may read them."
        ),
    )
    pipeline_socket: str = setting(
        "", allowed="path of a socket",
        why=(
            "Socket of the pipeline's warm session (`routebook pipeline serve`), which answers /v1/questions. Empty: "
            "none. The commands of the pipeline use the same variable."
        ),
    )

    # fmt: on

    @property
    def listens_on_loopback_only(self) -> bool:
        """Whether only programs on this machine can reach the public ports. They need no permission."""
        host = self.bind_address.strip("[]").partition("%")[0]
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(part) for part in split_list(self.proxy_from))

    @property
    def dial_network_list(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(part) for part in split_list(self.dial_networks))

    @property
    def host_names(self) -> tuple[str, ...]:
        return split_list(self.http_host_names)

    @property
    def advertised(self) -> tuple[str, ...]:
        return split_list(self.advertised_addresses)
