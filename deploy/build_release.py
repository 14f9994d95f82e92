#!/usr/bin/env python3
"""Builds everything that a release publishes, from the commit HEAD: `make release`.

Usage: build_release.py [--output FOLDER] [--no-images]      default: dist/<version>

The files are the sdist, the wheel (built from the sdist, which proves that the sdist is complete), the client's wheel,
the chart, bills of materials of both images, and SHA256SUMS over all of these. The same commit gives the same bytes on
every machine: the sources come from the commit, not from the work tree, and every time is SOURCE_DATE_EPOCH, by default
the time of the commit.

The images stay in the container engine. They are left out with the reason where no engine can build, and are not in
SHA256SUMS: their base image and Debian's packages are not part of the commit.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from build_metadata import version as version_of

ROOT = Path(__file__).resolve().parents[1]
_LOCKS = {"worker": "requirements-image.lock", "pipeline": "requirements-pipeline.lock"}
_NO_ENGINE = 75
"""Exit code of build_image.sh when no engine can build."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Build everything that a release publishes, from the commit HEAD.")
    parser.add_argument("--output", type=Path, help="folder for the files; default: dist/<version>")
    parser.add_argument("--no-images", action="store_true", help="leave out the container images")
    given = parser.parse_args(arguments)
    warn_of_uncommitted_changes()
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct").strip())
    with tempfile.TemporaryDirectory(prefix="routebook-release-") as folder:
        source = Path(folder, "source")
        export_commit(source)
        version = version_of(source)
        output = (given.output or ROOT / "dist" / version).resolve()
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        build_packages(source, Path(folder), output)
        write_chart(source, output / f"routebook-chart-{version}.tgz")
        for image, lock in _LOCKS.items():
            bill = run(sys.executable, str(source / "deploy/make_sbom.py"), str(source / lock), version)
            (output / f"routebook-{image}-{version}.cdx.json").write_text(bill)
    write_checksums(output)
    sys.stdout.write((output / "SHA256SUMS").read_text())
    return 0 if given.no_images else build_images()


def warn_of_uncommitted_changes() -> None:
    if run("git", "status", "--porcelain").strip():
        sys.stderr.write("warning: uncommitted changes are not part of the release\n")


def export_commit(folder: Path) -> None:
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--format=tar", f"--output={archive}", "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")


def build_packages(source: Path, work: Path, output: Path) -> None:
    build = (sys.executable, "-m", "hatchling", "build", "--directory", str(output))
    run(*build, "--target", "sdist", folder=source)
    (sdist,) = output.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        files.extractall(work / "sdist", filter="data")
    (unpacked,) = (work / "sdist").iterdir()
    run(*build, "--target", "wheel", folder=unpacked)
    run(*build, "--target", "wheel", folder=source / "deploy/client")


def write_chart(source: Path, file: Path) -> None:
    """As `helm package` does, which needs Helm and writes the time of the packaging into the archive."""
    chart = source / "helm/routebook"
    with file.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
        write_tar(packed, chart)


def write_tar(stream: IO[bytes], chart: Path) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as files:
        for path in chart_files(chart):
            content = path.read_bytes()
            about = tarfile.TarInfo(f"routebook/{path.relative_to(chart).as_posix()}")
            about.size, about.mode, about.mtime = len(content), 0o644, int(os.environ["SOURCE_DATE_EPOCH"])
            files.addfile(about, io.BytesIO(content))


def chart_files(chart: Path) -> Iterator[Path]:
    """Chart.yaml comes first: Helm then need not read the whole archive to know the chart."""
    first = chart / "Chart.yaml"
    lines = (chart / ".helmignore").read_text().split()
    patterns = [line.rstrip("/") for line in lines if not line.startswith("#")]
    yield first
    for path in sorted(chart.rglob("*")):
        parts = path.relative_to(chart).parts
        is_ignored = any(fnmatch(part, pattern) for part in parts for pattern in patterns)
        if path.is_file() and path != first and not is_ignored:
            yield path


def write_checksums(output: Path) -> None:
    """In the form of `sha256sum --check SHA256SUMS`."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(output.iterdir())]
    (output / "SHA256SUMS").write_text("".join(lines))


def build_images() -> int:
    done = subprocess.run([ROOT / "deploy/build_image.sh"], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == _NO_ENGINE:
        sys.stdout.write(f"left out, the images: {done.stderr.strip()}\n")
        return 0
    sys.stderr.write(done.stderr)
    return done.returncode


def run(*command: str, folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
