"""Each script is run by one Python function, with the arguments that its header documents."""

import re

import pytest

from tests.architecture.lua_scripts import LuaScript, scripts
from tests.architecture.script_callers import ScriptCall, script_calls
from tests.architecture.sources import LUA

CALLS = script_calls()
GUIDE = (LUA / "README.md").read_text()


def test_only_scripts_that_exist_are_run() -> None:
    assert {call.script for call in CALLS} <= set(scripts())


@pytest.mark.parametrize("script", scripts().values(), ids=lambda script: script.name)
def test_a_script_is_run_from_one_place(script: LuaScript) -> None:
    """So the order of its arguments is written down once."""
    assert len([call for call in CALLS if call.script == script.name]) == 1


def test_the_guide_names_each_script_and_where_it_is_run() -> None:
    rows = re.findall(r"^\|[^|]*\|(?P<scripts>[^|]*)\| `(?P<module>store/\w+\.py)` \|$", GUIDE, re.MULTILINE)
    named = {script: module for found, module in rows for script in re.findall(r"`(\w+)`", found)}
    assert named == {call.script: call.module for call in CALLS}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.script)
def test_a_script_is_given_the_arguments_it_documents(call: ScriptCall) -> None:
    script = scripts()[call.script]
    assert call.arguments == len(script.documented_arguments), call.where
    assert call.has_tail == (script.documented_tail is not None), call.where
