"""The files and imports of this repository, for the tests of its structure."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "lua"


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files that git knows. In an unpacked archive, which git does not know, all files."""
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
    """`routebook.model.broker` for service/routebook/model/broker.py, the package for an `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules(folder: str = "service") -> dict[str, ast.Module]:
    """The modules below `folder` (`service` or `pipeline`), parsed, by their dotted names."""
    return {module_name(path): ast.parse(path.read_text(), str(path)) for path in python_files(folder)}


def imports_of(module: str, folder: str = "service") -> Iterator[tuple[str, int]]:
    """Every module imported anywhere in the text of `module`, inside functions too, with the line."""
    known = modules(folder)
    is_package = any(other.startswith(module + ".") for other in known)
    for node in ast.walk(known[module]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node, is_package=is_package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield (inner if inner in known else base), node.lineno


def import_cycle(folder: str) -> str | None:
    """The first import cycle among the modules below `folder`."""
    known = modules(folder)
    return find_cycle(
        {
            module: sorted({name for name, _ in imports_of(module, folder) if name in known} - {module})
            for module in known
        }
    )


def find_cycle(edges: dict[str, list[str]]) -> str | None:
    """The first cycle found, as "a → b → a"."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> str | None:
        if module in path:
            return " → ".join([*path[path.index(module) :], module])
        if module in done:
            return None
        for imported in edges[module]:
            cycle = walk(imported, [*path, module])
            if cycle:
                return cycle
        done.add(module)
        return None

    return next((cycle for cycle in (walk(module, []) for module in sorted(edges)) if cycle), None)


def _absolute(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    up = node.level - 1 if is_package else node.level
    parts = module.split(".")
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])
