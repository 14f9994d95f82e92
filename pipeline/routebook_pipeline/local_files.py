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
    """Where to write what shall be at `out`: beside it, and put there in one step when all went well. A reader never
    sees half of it, and after a failure the old one stands. Its folder is made.
    """
    if out.exists() and not out.is_file():
        # A terminal, a pipe or /dev/null is written to, and never replaced. A folder refuses.
        yield out
        return
    # A link stays one: what it leads to is replaced.
    out = Path(os.path.realpath(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    # Others may be making the same at this moment.
    fresh = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(out)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Ours below the user's cache; made when needed."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "routebook"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


PROGRAM: Final = Path(__file__).with_name("submit.py")
"""What `spark-submit` runs."""

_UNCHANGING: Final = (1980, 1, 1, 0, 0, 0)
"""Zip's own beginning of time: equal sources make an equal file."""


def zip_own_package() -> Path:
    """Named by its contents, so that two versions at work at once do not disturb each other."""
    package = Path(__file__).parent
    files = {
        f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*.py"))
    }
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    made = cache_folder() / f"{package.name}-{digest}.zip"
    if not made.exists():
        with replace_atomically(made) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, _UNCHANGING), text)
    return made
