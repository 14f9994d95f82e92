"""Starts and stops a test cluster by hand.

python -m tests.kubernetes.cluster up [NODES]     prints the variables to export
python -m tests.kubernetes.cluster load IMAGE…    loads images from the local Docker engine
python -m tests.kubernetes.cluster down
"""

import sys
import time

from tests.kubernetes.cluster import requirements
from tests.kubernetes.cluster.cluster import Cluster


def main(arguments: list[str]) -> int:
    match arguments:
        case ["up", *nodes]:
            if reason := requirements.missing():
                print(reason, file=sys.stderr)
                return 1
            start = time.monotonic()
            cluster = Cluster.start(nodes=int(nodes[0]) if nodes else 3)
            print(f"# ready after {time.monotonic() - start:.1f} s; addresses: {cluster.addresses}", file=sys.stderr)
            print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.state}/bin:$PATH")
            print(f"export no_proxy={cluster.addresses.network} NO_PROXY={cluster.addresses.network}")
        case ["load", *images] if images:
            for image in images:
                Cluster.attach().load(image)
        case ["down"]:
            Cluster.attach().stop()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
