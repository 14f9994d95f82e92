"""The remoting port: its queues, its connections, its frames."""

from typing import Annotated, Literal

from pydantic import Field

from routebook.settings.fields.about import About, Part


class RemotingSettings(Part):
    serialize_type: Annotated[
        Literal["JSON", "ROCKETMQ"],
        About(
            "Encoding of the headers of all answers, whatever their requests came in, and of requests that start "
            "here: JSON as in Apache's, which every peer reads. The variable ROCKETMQ_SERIALIZE_TYPE counts where "
            "no file says.",
            properties_name="rocketmq.serialize.type",
        ),
    ] = "JSON"
    max_frame_bytes: Annotated[
        Annotated[int, Field(ge=4_096, le=1_073_741_824)],
        About(
            "Largest frame of the remoting port, judged by its first four bytes, before anything is kept; a longer "
            "one ends the connection. Apache's 16 MiB.",
            properties_name="com.rocketmq.remoting.frameMaxLength",
        ),
    ] = 16_777_216
    max_header_bytes: Annotated[
        Annotated[int, Field(ge=1_024, le=16_777_215)],
        About("Largest header of a frame. Real ones stay below 2 KiB; what is large belongs into a body."),
    ] = 131_072
    default_thread_pool_nums: Annotated[
        Annotated[int, Field(ge=1, le=1_024)],
        About(
            "Requests other than 105 that one worker has in hand at once; the others queue. Apache's number.",
            properties_name="defaultThreadPoolNums",
        ),
    ] = 16
    default_thread_pool_queue_capacity: Annotated[
        Annotated[int, Field(ge=1, le=10_000_000)],
        About(
            "Requests other than 105 that wait; beyond it the answer is 2 (busy) at once. Apache's number.",
            properties_name="defaultThreadPoolQueueCapacity",
        ),
    ] = 10_000
    client_request_thread_pool_nums: Annotated[
        Annotated[int, Field(ge=1, le=1_024)],
        About(
            "Lookups (105) that are asked of other name servers (cluster_test) at once; all others are answered "
            "as they come, from memory. Apache's number.",
            properties_name="clientRequestThreadPoolNums",
        ),
    ] = 8
    client_request_thread_pool_queue_capacity: Annotated[
        Annotated[int, Field(ge=1, le=10_000_000)],
        About(
            "Lookups (105) that wait for that; beyond it the answer is 2 (busy) at once. Apache's number. Of its "
            "own, so that lookups and brokers do not starve each other.",
            properties_name="clientRequestThreadPoolQueueCapacity",
        ),
    ] = 50_000
    server_channel_max_idle_time_seconds: Annotated[
        Annotated[int, Field(ge=0, le=86_400)],
        About(
            "A connection that neither reads nor writes for so long is closed: Apache's 120 s, four registration "
            "periods. 0: never.",
            properties_name="serverChannelMaxIdleTimeSeconds",
        ),
    ] = 120
    incomplete_frame_timeout_ms: Annotated[
        Annotated[int, Field(ge=100, le=3_600_000)],
        About(
            "A frame (or a PROXY header, or a handshake) that has begun must be whole within this, and a peer "
            "that reads too slowly must have caught up, else the connection is closed: neither may hold memory. "
            "16 MiB in 10 s is 13 Mbit/s."
        ),
    ] = 10_000
    max_connections: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)],
        About(
            "Connections of one worker on each public port. When they are used up, silent ones are closed, then idle "
            "ones without a broker, then newcomers. Each costs a file descriptor and some kilobytes."
        ),
    ] = 20_000
    max_output_bytes: Annotated[
        Annotated[int, Field(ge=65_536, le=1_073_741_824)],
        About(
            "Unread bytes of a connection's answers at which its requests are no longer read; who stays there for "
            "incomplete_frame_timeout_ms is cut off. A peer that never reads must not fill the memory."
        ),
    ] = 1_048_576
    max_queued_bytes: Annotated[
        Annotated[int, Field(ge=1_048_576, le=68_719_476_736)],
        About(
            "Bodies of all requests that wait in one worker, together; beyond it the answer is 2 (busy). 10 000 "
            "waiting requests of 16 MiB would be 160 GB."
        ),
    ] = 268_435_456
    server_socket_snd_buf_size: Annotated[
        Annotated[int, Field(ge=0, le=1_073_741_824)],
        About(
            "SO_SNDBUF in bytes of each connection. 0: the system's own, which grows as needed.",
            properties_name="serverSocketSndBufSize",
            weaker_properties=("com.rocketmq.remoting.socket.sndbuf.size",),
        ),
    ] = 0
    server_socket_rcv_buf_size: Annotated[
        Annotated[int, Field(ge=0, le=1_073_741_824)],
        About(
            "SO_RCVBUF in bytes of each connection. 0: the system's own, which grows as needed.",
            properties_name="serverSocketRcvBufSize",
            weaker_properties=("com.rocketmq.remoting.socket.rcvbuf.size",),
        ),
    ] = 0
    write_buffer_high_water_mark: Annotated[
        Annotated[int, Field(ge=0, le=1_073_741_824)],
        About(
            "Apache's name for the same, in place of max_output_bytes where it is set. 0: not set, as by default.",
            properties_name="writeBufferHighWaterMark",
            weaker_properties=("com.rocketmq.remoting.write.buffer.high.water.mark",),
        ),
    ] = 0
    write_buffer_low_water_mark: Annotated[
        Annotated[int, Field(ge=0, le=1_073_741_824)],
        About(
            "Unread bytes at which requests are read again. 0: a quarter of the high mark.",
            properties_name="writeBufferLowWaterMark",
            weaker_properties=("com.rocketmq.remoting.write.buffer.low.water.mark",),
        ),
    ] = 0
    enable_shutdown_gracefully: Annotated[
        bool,
        About(
            "At a stop, peers that know it are asked to move (GO_AWAY, code 1500) during drain_ms. On, unlike "
            "Apache's: a rolling restart must not cost a request.",
            properties_name="enableShutdownGracefully",
        ),
    ] = True
    connect_timeout_ms: Annotated[
        Annotated[int, Field(ge=10, le=600_000)],
        About(
            "For connections that start here (905 to brokers, lookups upstream). Apache's 3 s.",
            properties_name="connectTimeoutMillis",
            weaker_properties=("com.rocketmq.remoting.client.connect.timeout",),
        ),
    ] = 3_000
