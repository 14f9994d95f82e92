"""Where the service listens, who may ask what, and how a process runs and speaks."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from routebook.settings.fields.about import (
    HOST_ALLOWED,
    About,
    Duration,
    Host,
    Network,
    Part,
    Port,
    check_addresses_text,
    check_networks_text,
    check_token_text,
    split_list,
)
from routebook.settings.masking import Secret


class PortSettings(Part):
    remoting_port: Annotated[
        Port,
        About(
            "RocketMQ's own port for brokers, clients and mqadmin; all expect 9876. 0 takes a free one.",
            properties_name="listenPort",
        ),
    ] = 9876
    http_port: Annotated[
        Port, About("HTTP API and watch. 0 takes a free one, named in the start line and in `status`.")
    ] = 8080
    admin_port: Annotated[
        Port, About("Health and metrics, never public. 0 takes a free one, named in the start line.")
    ] = 8081
    bind_address: Annotated[
        Host,
        About(
            "Address that the public ports listen on: loopback with `up`, all addresses with `serve`.",
            properties_name="bindAddress",
            allowed=HOST_ALLOWED,
        ),
    ] = "127.0.0.1"
    admin_host: Annotated[
        Host,
        About(
            "Address that the admin port listens on; loopback, because it asks nobody who he is.",
            allowed=HOST_ALLOWED,
        ),
    ] = "127.0.0.1"
    workers: Annotated[
        int, Field(ge=1, le=256), About("Worker processes of one `serve`; one needs no second process.")
    ] = 1
    advertised_addresses: Annotated[
        str,
        AfterValidator(check_addresses_text),
        About(
            "What /rocketmq/nsaddr names. Empty: the request's host and the remoting port.",
            allowed="host:port;host:port, IPv6 in brackets",
        ),
    ] = ""
    admin_token: Annotated[
        str,
        AfterValidator(check_token_text),
        About(
            "Bearer token for administrative HTTP verbs from off loopback. Empty: nobody may.",
            allowed="printable ASCII letters without spaces",
            secret=Secret.WHOLE,
        ),
    ] = Field(default="", repr=False)
    proxy_from: Annotated[
        str,
        AfterValidator(check_networks_text),
        About(
            "Networks whose PROXY headers are believed; loopback, because anyone can write such a header.",
            allowed="networks such as 10.0.0.0/8, separated by commas; empty for nobody",
        ),
    ] = "127.0.0.0/8,::1/128"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        About("Least level that is logged. info has one line a change of the table.", at_run_time=True),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], About("text for people, json (one object a line) for collectors.")
    ] = "text"
    drain_ms: Annotated[
        Duration,
        About(
            "At a stop, how long requests under way may still take, and peers of the remoting port are asked to move; "
            "the rest is cut and counted. A third of what Kubernetes allows. Apache's waits 30 s, in whole seconds.",
            properties_name="shutdownWaitTimeSeconds",
            properties_factor=1_000,
        ),
    ] = 10_000

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(part) for part in split_list(self.proxy_from))

    @property
    def advertised(self) -> tuple[str, ...]:
        return split_list(self.advertised_addresses)
