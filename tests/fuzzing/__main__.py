"""The command line of the fuzzers; see the package."""

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from tests.fuzzing.api import fuzz_api
from tests.fuzzing.sockets import fuzz_http, fuzz_remoting
from tests.runtime.running import Running

PARTS = {"remoting": fuzz_remoting, "http": fuzz_http, "api": fuzz_api}
SIGNS_OF_A_DEFECT = ("Traceback", "Exception in", "never awaited")
TOPIC = "fuzz-canary"


class FoundError(AssertionError):
    """The service did not withstand the fuzzer. The message has what is needed to reproduce it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=75, help="for each part")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"seed {options.seed}", flush=True)
    # On two cores as well: most of the time a fuzzer waits for an answer.
    with ThreadPoolExecutor(len(PARTS)) as threads:
        fuzz = partial(run_part, seed=options.seed, seconds=options.seconds)
        parts = {threads.submit(fuzz, part): part for part in options.parts or PARTS}
        failed = False
        for done in as_completed(parts):
            try:
                print(f"{parts[done]}: {done.result()}", flush=True)
            except AssertionError as found:
                print(f"{parts[done]}: {found}", file=sys.stderr)
                failed = True
    return 1 if failed else 0


def run_part(part: str, *, seed: int, seconds: float) -> str:
    """On a service of its own. Returns what it did."""
    with tempfile.TemporaryDirectory() as folder, Running("up", folder=Path(folder)) as service:
        service.register("broker-fuzz", TOPIC)
        result = PARTS[part](service, random.Random(seed), seconds)
        check(service)
        return result


def check(service: Running) -> None:
    log = service.log
    if service.process.poll() is not None:
        raise FoundError(f"The service ended.\n{log[-4000:]}")
    for sign in SIGNS_OF_A_DEFECT:
        at = log.find(sign)
        if at >= 0:
            raise FoundError(f"The log has {sign.strip()!r}:\n{log[max(at - 1000, 0) : at + 20_000]}")
    if service.get_admin("/livez").status_code != 200:
        raise FoundError("The service does not say that it is alive.")
    # The fuzzers may delete or change the broker; registering it again must make it visible.
    service.register("broker-fuzz", TOPIC)
    if service.get(f"/v1/routes/{TOPIC}").status_code != 200:
        raise FoundError("A lookup is not answered.")


if __name__ == "__main__":
    sys.exit(main())
