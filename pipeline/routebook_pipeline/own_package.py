"""This package as a file, for executors on other machines."""

import hashlib
import zipfile
from pathlib import Path

from routebook_pipeline.java import cache_folder

_UNCHANGING = (1980, 1, 1, 0, 0, 0)
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
        fresh = made.with_suffix(".new")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, _UNCHANGING), text)
        fresh.replace(made)
    return made
