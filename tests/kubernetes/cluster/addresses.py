"""The addresses of a cluster. Each cluster uses its own /16 network, so two can run at the same time."""

import re
import subprocess
from dataclasses import dataclass

FIRST_NETWORK, LAST_NETWORK = 180, 198
"""The range 10.180 to 10.198; a cluster uses the first network that this machine has no route to."""


@dataclass(frozen=True, slots=True)
class Addresses:
    prefix: str
    """The first two bytes, for instance `10.180`."""
    nodes: int

    @property
    def name(self) -> str:
        """Name of the cluster's interface, network namespace and cgroup on this machine."""
        return f"rbkube{self.prefix.rpartition('.')[2]}"

    @property
    def network(self) -> str:
        return f"{self.prefix}.0.0/16"

    @property
    def host(self) -> str:
        """This machine's address in the cluster's network, used by the brokers and clients outside the cluster."""
        return f"{self.prefix}.0.1"

    @property
    def services(self) -> str:
        return f"{self.prefix}.128.0/20"

    @property
    def api_service(self) -> str:
        return f"{self.prefix}.128.1"

    @property
    def all_pods(self) -> str:
        return f"{self.prefix}.64.0/18"

    @property
    def numbers(self) -> range:
        return range(1, self.nodes + 1)

    def node(self, number: int) -> str:
        return f"{self.prefix}.0.{10 + number}"

    def pods(self, number: int) -> str:
        return f"{self.prefix}.{64 + number}.0/24"


def free_addresses(nodes: int) -> Addresses:
    routes = subprocess.run(["ip", "-4", "route"], check=True, capture_output=True, text=True).stdout
    for number in range(FIRST_NETWORK, LAST_NETWORK + 1):
        if not re.search(rf"^10\.{number}\.", routes, re.MULTILINE):
            return Addresses(f"10.{number}", nodes)
    raise RuntimeError(f"every network from 10.{FIRST_NETWORK} to 10.{LAST_NETWORK} is in use")
