"""Files that the pipeline writes on this machine: atomically replaced ones, the cache, and its own package as a zip."""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final


@contextmanager
def replace_atomically(out: Path) -> Iterator[Path]:
    """Yields a temporary path beside `out`, and moves that file to `out` in one step if the block succeeds.

    A reader never sees an incomplete file, and after a failure the previous file is unchanged. Missing folders are
    created.
    """
    if out.exists() and not out.is_file():
        # A terminal, a pipe or /dev/null is written to directly. Writing to a folder fails, as it should.
        yield out
        return
    # A symbolic link is kept, and its target is replaced.
    out = Path(os.path.realpath(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    # The process id keeps concurrent writers of the same file apart.
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(out)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Our folder in the user's cache; created if it is missing."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "routebook"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


PROGRAM: Final = Path(__file__).with_name("submit.py")
"""The program that `spark-submit` runs."""

_TIME_STAMP: Final = (1980, 1, 1, 0, 0, 0)
"""The time stamp of every file in the zip, so that equal sources give an equal zip."""


def zip_own_package() -> Path:
    """Writes this package as a zip for executors on other machines, unless the cache has it already.

    The file's name contains a digest of the contents, so different versions can run at the same time.
    """
    package = Path(__file__).parent
    files = {
        f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*.py"))
    }
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    target = cache_folder() / f"{package.name}-{digest}.zip"
    if not target.exists():
        with replace_atomically(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME_STAMP), text)
    return target
