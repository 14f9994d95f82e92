"""This package as a file, for executors on other machines."""

import hashlib
import zipfile
from pathlib import Path
from typing import Final

from routebook_pipeline.java import cache_folder
from routebook_pipeline.replacing import replacing

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
        with replacing(made) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, _UNCHANGING), text)
    return made
