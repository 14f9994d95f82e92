"""The settings that limit the cost of peers: a part of `Settings`, in the form that `fields.py` explains.

`docs/limits.md` has one row for each, and for the limits of frames, bodies and queues in `fields.py`.
"""

from pydantic import BaseModel

from routebook.settings.kinds import setting


class LimitSettings(BaseModel):
    # fmt: off

    # Limits of the route table, for all workers together (docs/limits.md)

    max_clusters: int = setting(
        1_000, ge=0, le=1_000_000, at_run_time=True,
        why="Clusters of the route table. Real fleets have fewer than a hundred. 0: no limit.",
    )
    max_groups: int = setting(
        10_000, ge=0, le=1_000_000, at_run_time=True,
        why="Groups (broker names) of the route table, and hosts of static mappings. 0: no limit.",
    )
    max_brokers: int = setting(
        20_000, ge=0, le=1_000_000, at_run_time=True,
        why="Broker instances of the route table: two for each of max_groups. 0: no limit.",
    )
    max_seats_per_group: int = setting(
        64, ge=0, le=1_000_000, at_run_time=True,
        why=(
            "Broker ids of one group. A group has a master and a few slaves; scripts read all seats of a group at "
            "once. 0: no limit."
        ),
    )
    max_topics_per_broker: int = setting(
        100_000, ge=0, le=10_000_000, at_run_time=True,
        why=(
            "Topics of one group, and static mappings of one host. The largest groups have some 70,000, for which the "
            "time that a registration blocks the store is measured. 0: no limit."
        ),
    )
    max_queues_per_topic: int = setting(
        65_536, ge=1, le=2_147_483_647, at_run_time=True,
        why=(
            "Read queues, or write queues, of one topic on one broker. Brokers have 4 to 16 by default, and clients "
            "create an object for each queue."
        ),
    )
    min_broker_timeout_ms: int = setting(
        1_000, ge=1, le=86_400_000, at_run_time=True,
        why=(
            "Shortest timeout that a broker may register with. Apache's brokers send a heartbeat once a second at the "
            "fastest; a shorter timeout only fills the history with expiries."
        ),
    )
    max_broker_timeout_ms: int = setting(
        86_400_000, ge=1_000, le=315_360_000_000, at_run_time=True,
        why="Longest timeout that a broker may register with. When the broker dies, its routes remain until then.",
    )
    max_key_values: int = setting(
        10_000, ge=0, le=10_000_000, at_run_time=True,
        why=(
            "Key-values in all namespaces, and number of namespaces. Most are order configurations, one for each "
            "ordered topic. 0: no limit."
        ),
    )
    max_key_value_bytes: int = setting(
        65_536, ge=1, le=16_777_216, at_run_time=True,
        why="Size of one value in UTF-8. An order configuration for a thousand brokers has some 20,000 bytes.",
    )
    max_key_values_bytes: int = setting(
        16_777_216, ge=0, le=1_073_741_824, at_run_time=True,
        why="Size of all keys and values together: every worker keeps them in memory. 0: no limit.",
    )

    empty_group_timeout_ms: int = setting(
        120_000, ge=100, le=86_400_000, at_run_time=True,
        why=(
            "A group without any broker, such as a refused registration leaves behind, is removed after this time. "
            "Four registration periods: its broker has registered by then, if it exists."
        ),
    )

    # Limits of one request

    max_inflated_bytes: int = setting(
        0, ge=0, le=1_073_741_824,
        why=(
            "Largest size to which the body of a compressed registration may inflate. 0: max_frame_bytes, the limit of "
            "a body that is not compressed."
        ),
    )
    max_inflation_ratio: int = setting(
        100, ge=0, le=1_100,
        why=(
            "How many times its size a compressed registration may inflate to, beyond its first MiB. Tables of topics "
            "compress ten times, a bomb a thousand times. 0: no limit."
        ),
    )

    max_http_header_bytes: int = setting(
        65_536, ge=1_024, le=16_777_216,
        why=(
            "Request line and headers of one HTTP request. Each further piece of an endless header would be copied "
            "together with all before it. Browsers and proxies send a few KB."
        ),
    )
    max_http_header_line_bytes: int = setting(
        16_384, ge=1_024, le=16_777_216,
        why="One header, or the request line, of an HTTP request. Common servers allow 8 KiB.",
    )
    max_http_header_count: int = setting(
        100, ge=10, le=10_000,
        why="Headers of one HTTP request, and its trailers. Browsers send twenty.",
    )
    max_json_values: int = setting(
        1_048_576, ge=1_024, le=100_000_000,
        why=(
            "Values in the JSON body of a registration or snapshot over HTTP, counted before it is decoded. 100,000 "
            "topics need 600,000. Without this limit, 47 MB of brackets would become 2 GB of objects."
        ),
    )

    # Limits of one address, on one worker

    max_connections_per_address: int = setting(
        10_000, ge=0, le=1_000_000,
        why=(
            "Connections from one address to one worker, on both public ports together. The address is that of a "
            "PROXY header where one is trusted. Half of max_connections, because all peers behind a balancer without "
            "PROXY headers share its address. 0: no limit."
        ),
    )
    kept_connections_percent: int = setting(
        20, ge=0, le=90,
        why=(
            "Share of max_connections on the remoting port that is kept for known brokers. Others may use these "
            "connections too, but they are closed when room is needed. So a crowd of new peers cannot lock out the "
            "brokers that return."
        ),
    )
    max_requests_per_second: int = setting(
        20_000, ge=0, le=1_000_000,
        why=(
            "Requests other than lookups that one worker accepts on the remoting port; twice as many at once. Beyond "
            "it, the answer is 2 (busy), except to registrations and heartbeats. More than the store can serve. 0: no "
            "limit."
        ),
    )
    max_requests_per_second_per_address: int = setting(
        5_000, ge=0, le=1_000_000,
        why=(
            "Requests other than lookups that one address may send to one worker; twice as many at once. Beyond it, "
            "the answer is 2 (busy) or HTTP 429. Registrations and heartbeats count, and are never refused. A fleet of "
            "1,000 brokers sends 300 a second. 0: no limit."
        ),
    )
    max_lookups_per_second_per_address: int = setting(
        0, ge=0, le=10_000_000,
        why=(
            "Lookups that one address may send to the remoting port of one worker; twice as many at once. Beyond it, "
            "its connections are read from more slowly. 0, the default: no limit, because a lookup costs some "
            "microseconds, connections take turns, and thousands of clients may share the address of a balancer."
        ),
    )
    max_decoding_percent_per_address: int = setting(
        50, ge=0, le=100,
        why=(
            "Share of one core that a worker spends on decoding the bodies of one address, after ten seconds' worth "
            "at once. Brokers behind a balancer share an address, and register together after an outage. 0: no limit."
        ),
    )
    max_failed_sign_ins_per_minute_per_address: int = setting(
        60, ge=0, le=1_000_000,
        why=(
            "Wrong tokens or signatures from one address. Beyond this rate, sign-ins from the address are refused "
            "unchecked. A person mistypes a few times; a program that guesses tries a thousand a second. 0: no "
            "limit."
        ),
    )
    max_watches: int = setting(
        1_000, ge=0, le=1_000_000,
        why=(
            "Open watches of one worker. Each needs a connection, a queue of events and up to 64 KiB of unsent bytes: "
            "together at most 100 MB."
        ),
    )
    max_watches_per_address: int = setting(
        500, ge=0, le=1_000_000,
        why="Open watches of one address on one worker: half, so that no single peer takes them all. 0: no limit.",
    )

    # fmt: on
