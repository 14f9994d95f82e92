"""Each script has one Python function, and that gives it as many arguments as its header documents."""

import pytest
from tests.architecture.lua_scripts import LuaScript, scripts
from tests.architecture.script_callers import ScriptCall, script_calls

CALLS = script_calls()


def test_only_scripts_that_exist_are_run() -> None:
    assert {call.script for call in CALLS} <= set(scripts())


@pytest.mark.parametrize("script", scripts().values(), ids=lambda script: script.name)
def test_a_script_is_run_from_one_place(script: LuaScript) -> None:
    """Nobody else knows the order of its arguments."""
    assert len([call for call in CALLS if call.script == script.name]) == 1


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.script)
def test_a_script_is_given_the_arguments_it_documents(call: ScriptCall) -> None:
    script = scripts()[call.script]
    assert call.arguments == len(script.documented_arguments), call.where
    assert call.has_tail == (script.documented_tail is not None), call.where
