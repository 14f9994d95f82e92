"""Where the store package runs a script, and how many arguments it surely gives: read from its text."""

import ast
from dataclasses import dataclass

from tests.architecture.sources import modules

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ScriptCall:
    script: str
    where: str
    arguments: int
    """So many come in every case."""
    has_tail: bool
    """And then any number."""

    @property
    def module(self) -> str:
        """As the guide to the scripts names it."""
        return self.where.split(":")[0].removeprefix("routebook.").replace(".", "/") + ".py"


def script_calls() -> list[ScriptCall]:
    return [
        call
        for module, tree in modules().items()
        if module.startswith("routebook.store.")
        for function in ast.walk(tree)
        if isinstance(function, Function)
        for call in _calls_in(module, tree, function)
    ]


def _calls_in(module: str, tree: ast.Module, function: Function) -> list[ScriptCall]:
    calls: list[ScriptCall] = []
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        where = f"{module}:{node.lineno}"
        if node.func.attr == "run" and _text(node.args[:1]):
            count, tail = _Reader(tree, function).leading(node.args[1:])
            calls.append(ScriptCall(_text(node.args[:1]), where, count, tail))
        elif node.func.attr == "run_all" and _text(node.args[:1]):
            # Many times in one pipeline: a list of argument lists.
            count, tail = _Reader(tree, function).of_element(node.args[1])
            calls.append(ScriptCall(_text(node.args[:1]), where, count, tail))
    return calls


def _text(nodes: list[ast.expr]) -> str:
    """The literal that stands there, else nothing."""
    first = nodes[0] if nodes else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


@dataclass(frozen=True)
class _Reader:
    """Counts what a list begins with, through variables and functions of the same module."""

    tree: ast.Module
    function: Function

    def leading(self, nodes: list[ast.expr]) -> tuple[int, bool]:
        total = 0
        for node in nodes:
            if not isinstance(node, ast.Starred):
                total += 1
                continue
            count, has_tail = self.of_list(node.value)
            total += count
            if has_tail:
                return total, True
        return total, False

    def of_list(self, node: ast.expr) -> tuple[int, bool]:
        if isinstance(node, ast.List):
            return self.leading(node.elts)
        if isinstance(node, ast.IfExp):
            return _agreeing([self.of_list(node.body), self.of_list(node.orelse)])
        if isinstance(node, ast.Name):
            return self._of_variable(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._of_returned(node.func.id)
        return 0, True

    def of_element(self, node: ast.expr) -> tuple[int, bool]:
        """Of each list in a list of lists."""
        if isinstance(node, ast.Name):
            found = [value for target, value in self._assignments() if target == node.id]
            return self.of_element(found[0]) if found else (0, True)
        return self.of_list(node.elt) if isinstance(node, ast.ListComp) else (0, True)

    def _of_variable(self, name: str) -> tuple[int, bool]:
        found = [self.of_list(value) for target, value in self._assignments() if target == name]
        grows = any(
            isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name
            for node in ast.walk(self.function)
        )
        count, has_tail = _agreeing(found)
        return count, has_tail or grows

    def _of_returned(self, name: str) -> tuple[int, bool]:
        for node in self.tree.body:
            if isinstance(node, Function) and node.name == name:
                inner = _Reader(self.tree, node)
                returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
                return _agreeing([inner.of_list(value) for value in returned])
        return 0, True

    def _assignments(self) -> list[tuple[str, ast.expr]]:
        found: list[tuple[str, ast.expr]] = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.append((node.targets[0].id, node.value))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found.append((node.target.id, node.value))
        return found


def _agreeing(found: list[tuple[int, bool]]) -> tuple[int, bool]:
    """Ways that end in the same place must begin with the same number."""
    counts = {count for count, _ in found}
    return (counts.pop(), any(tail for _, tail in found)) if len(counts) == 1 else (0, True)
