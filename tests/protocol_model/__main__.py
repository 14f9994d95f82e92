"""`make model`: checks the model as it is configured, then without one protection after the other."""

import sys
import time

from tests.protocol_model.mutants import MUTANTS
from tests.protocol_model.tlc import UnavailableError, check, tlc_jar


def main() -> int:
    try:
        tlc_jar()
    except UnavailableError as error:
        print(f"skipped: {error}")
        return 0
    began = time.monotonic()
    result = check()
    found = result.violated or "no violation"
    print(
        f"all protections: {found}; {result.distinct_states:,} states, depth {result.depth}, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    failed = result.violated is not None
    for protection, mutant in MUTANTS.items():
        result = check(**{protection: False}, **mutant.changes)
        failed = failed or result.violated != mutant.violates
        print(
            f"without {protection}: {result.violated or 'no violation'} after {result.distinct_states:,} states, "
            f"depth {result.depth}",
            flush=True,
        )
    if failed:
        print("not as expected: see tests/protocol_model/mutants.py")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
