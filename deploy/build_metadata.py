"""Computed metadata of the packages: the links of the project, and the long description, which is a page of this
repository whose relative links and images become absolute. `project-url` in pyproject.toml is their only source.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def project_url() -> str:
    """The public address of the project, from the pyproject.toml of the repository."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        document = tomllib.load(file)
    return str(document["tool"]["hatch"]["metadata"]["hooks"]["custom"]["project-url"])


def version(root: Path = ROOT) -> str:
    found = _VERSION.search((root / "service/routebook/__init__.py").read_text())
    if found is None:
        raise ValueError("service/routebook/__init__.py has no line __version__ = ...")
    return found["version"]


def page_url(path: str, revision: str = "main") -> str:
    """Where people read a document of the repository."""
    return f"{project_url()}/blob/{revision}/{path}"


def project_urls(documentation: str = "docs/README.md") -> dict[str, str]:
    release = f"v{version()}"
    return {
        "Homepage": project_url(),
        "Source": project_url(),
        "Documentation": page_url(documentation, release),
        "Changelog": page_url("CHANGELOG.md", release),
        "Issues": f"{project_url()}/issues",
    }


def with_absolute_links(page: Path) -> str:
    """A package index shows the description without the repository, so a relative target would lead nowhere. The links
    name the tag of the release: later changes of the repository must not break them.
    """
    folder = page.parent.relative_to(ROOT)
    release = f"v{version()}"

    def absolute(found: re.Match[str]) -> str:
        target = found["target"]
        if target.startswith(("#", "http://", "https://", "mailto:")):
            return found[0]
        path, hash_, anchor = target.partition("#")
        path = (ROOT / folder / path).resolve().relative_to(ROOT).as_posix()
        kind = "raw" if found["image"] else "blob"
        url = f"{project_url()}/{kind}/{release}/{path}{hash_}{anchor}"
        return f"{found['image']}[{found['text']}]({url})"

    parts = _FENCED.split(page.read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in parts)


class ProjectMetadata(MetadataHookInterface):
    """Hatchling finds and calls it: `[tool.hatch.metadata.hooks.custom]`."""

    def update(self, metadata: dict[str, Any]) -> None:
        page = Path(self.root, self.config["readme"]).resolve()
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(page)}
        metadata["urls"] = project_urls(self.config.get("documentation", "docs/README.md"))
