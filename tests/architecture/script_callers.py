"""Reads from the source where the store package runs a script, and with how many arguments at least."""

import ast
from dataclasses import dataclass

from tests.architecture.sources import modules

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ScriptCall:
    script: str
    where: str
    arguments: int
    """The number of arguments that are always passed."""
    has_tail: bool
    """Whether any number of arguments may follow."""

    @property
    def module(self) -> str:
        """The name under which lua/README.md lists it."""
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
            count, tail = _ListCounter(tree, function).count_elements(node.args[1:])
            calls.append(ScriptCall(_text(node.args[:1]), where, count, tail))
        elif node.func.attr == "run_all" and _text(node.args[:1]):
            # Runs a script several times in one pipeline. The argument is a list of argument lists.
            count, tail = _ListCounter(tree, function).of_element(node.args[1])
            calls.append(ScriptCall(_text(node.args[:1]), where, count, tail))
    return calls


def _text(nodes: list[ast.expr]) -> str:
    """The first node if it is a string literal, else an empty string."""
    first = nodes[0] if nodes else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


@dataclass(frozen=True)
class _ListCounter:
    """Counts the elements at the beginning of a list. It follows variables and functions of the same module."""

    tree: ast.Module
    function: Function

    def count_elements(self, nodes: list[ast.expr]) -> tuple[int, bool]:
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
            return self.count_elements(node.elts)
        if isinstance(node, ast.IfExp):
            return _agreed_count([self.of_list(node.body), self.of_list(node.orelse)])
        if isinstance(node, ast.Name):
            return self._of_variable(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._of_returned(node.func.id)
        return 0, True

    def of_element(self, node: ast.expr) -> tuple[int, bool]:
        """The count for each list in a list of lists."""
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
        count, has_tail = _agreed_count(found)
        return count, has_tail or grows

    def _of_returned(self, name: str) -> tuple[int, bool]:
        for node in self.tree.body:
            if isinstance(node, Function) and node.name == name:
                inner = _ListCounter(self.tree, node)
                returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
                return _agreed_count([inner.of_list(value) for value in returned])
        return 0, True

    def _assignments(self) -> list[tuple[str, ast.expr]]:
        found: list[tuple[str, ast.expr]] = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.append((node.targets[0].id, node.value))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found.append((node.target.id, node.value))
        return found


def _agreed_count(found: list[tuple[int, bool]]) -> tuple[int, bool]:
    """The count that all branches have in common. If they differ, nothing is known."""
    counts = {count for count, _ in found}
    return (counts.pop(), any(tail for _, tail in found)) if len(counts) == 1 else (0, True)
