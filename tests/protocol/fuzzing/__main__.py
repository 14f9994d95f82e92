"""Runs the fuzzer from the command line; see the package."""

import argparse
import faulthandler
import sys

from tests.protocol.fuzzing.run import FoundError, Report, check_one, fuzz

HANG_SECONDS = 300
"""For a thousand inputs, which usually take a quarter of a second."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.fuzzing", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="check this input alone")
    options = parser.parse_args()
    if options.only is not None:
        print(check_one(options.seed, options.only))
        return 0

    def watch() -> None:
        """Prints a traceback if an input never ends."""
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)

    try:
        show(fuzz(options.seed, options.inputs, every_thousand=watch))
    except FoundError as found:
        print(found, file=sys.stderr)
        return 1
    return 0


def show(report: Report) -> None:
    rate = report.inputs / report.work_seconds
    print(
        f"{report.inputs:,} inputs, seed {report.seed}: nothing found. {report.seconds:.0f} s, of them "
        f"{report.work_seconds:.0f} s of work, {rate:,.0f} inputs/s of work.\n"
        f"Resident memory grew by {report.growth_bytes / 1024:,.0f} KiB after the warm-up "
        f"(from {report.resident_before / 2**20:.1f} MiB)."
    )
    for name, target in report.targets.items():
        print(
            f"  {name:24}{target.inputs:>10,} inputs, {target.accepted / target.inputs:4.0%} accepted in part, "
            f"the longest {target.worst_ms:7.1f} ms (input {target.worst_input})"
        )


if __name__ == "__main__":
    sys.exit(main())
