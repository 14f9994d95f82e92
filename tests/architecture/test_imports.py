"""Layers import only layers below them, without cycles, and each library is imported in its own layer only."""

import pytest

from tests.architecture.sources import find_cycle, import_cycle, imports_of, modules

BELOW = {
    "errors": set(),
    "model": {"errors"},
    "protocol": {"errors", "model"},
    "settings": {"errors", "model"},
    "observability": {"errors", "model", "settings"},
    "store": {"errors", "model", "settings", "observability"},
    "replica": {"errors", "model", "protocol", "settings", "observability", "store"},
    "registry": {"errors", "model", "settings", "observability", "store", "replica"},
    "background": {"errors", "model", "settings", "observability", "store", "replica", "registry"},
    "listeners": {"errors", "model", "protocol", "settings", "observability"},
    "http_api": {
        "errors",
        "model",
        "settings",
        "observability",
        "store",
        "replica",
        "registry",
        "listeners",
        "snapshots",
        "console",
    },
    "console": {"errors", "model", "settings", "observability", "store", "replica", "registry"},
    "remoting": {
        "errors",
        "model",
        "protocol",
        "settings",
        "observability",
        "store",
        "replica",
        "registry",
        "listeners",
        "remoting_client",
    },
    "remoting_client": {"errors", "model", "protocol"},
    "compare": {"errors", "model", "protocol", "remoting_client"},
    "simulate": {"errors", "model", "protocol", "remoting_client", "compare"},
    "snapshots": {"errors", "model", "replica", "registry", "compare"},
    "client": set(),  # a distribution of its own contains only this package
}
"""The layers that each layer may import besides itself. The two ports do not import each other."""

ABOVE_ALL = {"runtime", "cli", "__main__"}
ONLY_IN = {
    "redis": {"store"},
    "fastapi": {"http_api"},
    "jinja2": {"console"},
    "click": {"cli"},
    "prometheus_client": {"observability"},
}
WITHOUT_IO = {"model", "protocol"}
IO_LIBRARIES = {"asyncio", "redis", "socket", "httpx", "uvloop"}


def layer_of(module: str) -> str:
    """The first name below the package; the package's own `__init__` is a layer without a name."""
    return module.split(".")[1] if "." in module else ""


def inner_imports(module: str) -> list[tuple[str, int]]:
    return [(name, line) for name, line in imports_of(module) if name.split(".")[0] == "routebook"]


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(module) for module in modules()} <= set(BELOW) | ABOVE_ALL | {""}


@pytest.mark.parametrize("layer", sorted(BELOW))
def test_a_layer_imports_only_what_is_below_it(layer: str) -> None:
    wrong = [
        f"{module}:{line} imports {name}"
        for module in modules()
        if layer_of(module) == layer
        for name, line in inner_imports(module)
        if layer_of(name) not in BELOW[layer] | {layer, ""}
    ]
    assert wrong == []


def test_only_the_command_line_imports_runtime() -> None:
    importers = {layer_of(m) for m in modules() for name, _ in inner_imports(m) if layer_of(name) == "runtime"}
    assert importers <= {"runtime", "cli"}


def test_only_the_entry_point_imports_the_command_line() -> None:
    importers = {layer_of(m) for m in modules() for name, _ in inner_imports(m) if layer_of(name) == "cli"}
    assert importers <= {"cli", "__main__"}


def test_a_library_is_imported_in_its_layer_only() -> None:
    wrong = [
        f"{module}:{line} imports {name}"
        for module in modules()
        for name, line in imports_of(module)
        if layer_of(module) not in ONLY_IN.get(name.split(".")[0], {layer_of(module)})
    ]
    assert wrong == []


def test_model_and_protocol_do_no_input_or_output() -> None:
    wrong = [
        f"{module}:{line} imports {name}"
        for module in modules()
        if layer_of(module) in WITHOUT_IO
        for name, line in imports_of(module)
        if name.split(".")[0] in IO_LIBRARIES
    ]
    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    assert import_cycle("service") is None


def test_an_import_cycle_is_found() -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == "b → c → b"
