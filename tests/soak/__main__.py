"""The command line of the long run; see the package."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.soak.report import chart, growths, page
from tests.soak.run import PAUSE_S, Result, Soak

BUILT = Path("build/soak")
DOCS = Path("docs")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pause", type=float, nargs=2, default=PAUSE_S, metavar=("FROM", "TO"), help="between two faults, s"
    )
    parser.add_argument("--keep", action="store_true", help="write docs/soak.md and its chart, instead of build/soak")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="routebook-soak-"))
    soak = Soak(folder, seed=options.seed, minutes=options.minutes, pause_s=tuple(options.pause))
    # As in the tests. The fault proxies are made for it.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # Streams of asyncio report that the pumps of a fault proxy were cancelled when it was closed.
        runner.get_loop().set_exception_handler(lambda loop, context: None)
        result = runner.run(soak.run())
    result.failures += growths(result)
    target = DOCS if options.keep else BUILT
    command = f"make soak MINUTES={options.minutes:g} SEED={options.seed}"
    _write(result, target, command)
    print("\n".join(result.failures) or "no violation")
    print(f"written: {target}/soak.md")
    if result.failures:
        print(f"logs are kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _write(result: Result, target: Path, command: str) -> None:
    (target / "images").mkdir(parents=True, exist_ok=True)
    BUILT.mkdir(parents=True, exist_ok=True)
    (target / "soak.md").write_text(page(result, command))
    (target / "images" / "soak.svg").write_text(chart(result))
    points = [{"name": name, "line": line, "points": found} for (name, line), found in result.samples.lines.items()]
    (BUILT / "samples.json").write_text(json.dumps({"faults": result.faults, "samples": points}))


if __name__ == "__main__":
    sys.exit(main())
