"""The files of this repository, as the tests of its shape see them."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "service"
LUA = ROOT / "lua"


@cache
def tracked_files() -> tuple[Path, ...]:
    """What belongs to the repository; in an unpacked archive without git, everything that is there."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not {".venv", ".git", ".routebook"} & set(path.parts)]
    return tuple(sorted(path for path in found if path.is_file()))


def python_files(*folders: str) -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


def module_name(path: Path) -> str:
    """`routebook.model.topic` for service/routebook/model/topic.py, the package for an `__init__`."""
    parts = path.relative_to(SERVICE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {module_name(path): ast.parse(path.read_text(), str(path)) for path in python_files("service")}


def imports_of(module: str) -> Iterator[tuple[str, int]]:
    """Every module that one names anywhere in its text, with the line: inside functions too."""
    is_package = any(other.startswith(module + ".") for other in modules())
    for node in ast.walk(modules()[module]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node, is_package=is_package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield (inner if inner in modules() else base), node.lineno


def _absolute(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    up = node.level - 1 if is_package else node.level
    parts = module.split(".")
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])
