#!/usr/bin/env python3
"""Prints the software bill of materials of an image, as CycloneDX 1.5 JSON.

Usage: make_sbom.py LOCK VERSION [DPKG_STATUS]

The components are the requirements of the lock file with their hashes, and the packages of Debian's `dpkg` status file.
The same input gives the same bytes: no time and no random number is in it.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: *; *(?P<marker>[^\\]+))?")
HASH = re.compile(r"--hash=sha256:(?P<hash>[0-9a-f]{64})")
Component = dict[str, Any]


def python_components(lock: str) -> Iterator[Component]:
    """The hashes are those of all files of a release that pip may install."""
    current: Component | None = None
    for line in lock.splitlines():
        if found := REQUIREMENT.match(line):
            if current:
                yield current
            name, version = found["name"].lower(), found["version"]
            purl = f"pkg:pypi/{name}@{quote(version)}"
            current = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
            if found["marker"]:
                current["properties"] = [{"name": "routebook:marker", "value": found["marker"].strip()}]
            current["hashes"] = []
        elif current and (hashed := HASH.search(line)):
            current["hashes"].append({"alg": "SHA-256", "content": hashed["hash"]})
    if current:
        yield current


def debian_components(status: str) -> Iterator[Component]:
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"[A-Z][A-Za-z-]*: ", line))
        if not fields.get("Status", "install ok installed").endswith(" installed") or "Package" not in fields:
            continue
        name, version = fields["Package"], fields.get("Version", "")
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}"
        if architecture := fields.get("Architecture"):
            purl += f"?arch={architecture}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill_of_materials(lock: str, version: str, status: str = "") -> str:
    components = sorted([*python_components(lock), *debian_components(status)], key=lambda one: str(one["purl"]))
    product = {"type": "application", "bom-ref": "routebook", "name": "routebook", "version": version}
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
    }
    content = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    status = Path(arguments[2]).read_text() if len(arguments) == 3 else ""
    sys.stdout.write(bill_of_materials(Path(arguments[0]).read_text(), arguments[1], status))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
