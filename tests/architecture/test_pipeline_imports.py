"""The pipeline and the service share no code, and each library is imported in its own folder only."""

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, import_cycle, python_files

PIPELINE = ROOT / "pipeline" / "routebook_pipeline"
ONLY_IN = {
    "redis": {"source"},
    "deltalake": {"lake"},
    "pyarrow": {"source", "lake", "answers"},
    "click": {"cli"},
    "rich": {"cli"},
}
"""Library -> folders (or modules) of the pipeline that may import it."""
TRANSFORMS_MAY_IMPORT = {"history", "schemas", "kinds", "transforms"}
"""A transform turns data frames into data frames and reads neither store nor lake."""


def part_of(path: Path) -> str:
    return path.relative_to(PIPELINE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            found.append((str(node.module), node.lineno))
    return found


FILES = python_files("pipeline")


def test_there_is_a_pipeline() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_service_is_not_imported(path: Path) -> None:
    assert [name for name, _ in imports(path) if name.split(".")[0] == "routebook"] == []


def test_the_service_does_not_import_the_pipeline() -> None:
    wrong = [
        f"{path}:{line}"
        for path in python_files("service")
        for name, line in imports(path)
        if name.split(".")[0] in {"routebook_pipeline", "pyspark", "deltalake"}
    ]
    assert wrong == []


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_a_library_is_imported_in_its_folder_only(library: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in FILES
        for name, line in imports(path)
        if name.split(".")[0] == library and part_of(path) not in ONLY_IN[library]
    ]
    assert wrong == []


def test_transforms_import_neither_store_nor_lake() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in FILES
        if part_of(path) == "transforms"
        for name, line in imports(path)
        if name.startswith("routebook_pipeline.") and name.split(".")[1] not in TRANSFORMS_MAY_IMPORT
    ]
    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    assert import_cycle("pipeline") is None
