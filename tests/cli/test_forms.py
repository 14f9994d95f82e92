"""`-o`: the same answer as table, JSON, YAML, names or picked values."""

import json

import pytest

from routebook.cli.forms import JsonPath, yaml_text
from routebook.cli.main import run
from routebook.errors import InvalidInputError
from routebook.runtime.exits import AnswerIsNoError
from tests.cli.conftest import CommandLine

ANSWER = {
    "version": 7,
    "leader": {"worker": "a", "token": None},
    "workers": [{"worker": "a", "pid": 1}, {"worker": "b c", "pid": 20}],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (".version", "7"),
        ("{.version}", "7"),
        ("$.leader.worker", "a"),
        ("version", "7"),
        (".workers[*].worker", "a\nb c"),
        (".workers[-1].pid", "20"),
        (".workers[0]['worker']", "a"),
        ("{.workers[?(@.pid > 10)].worker}", "b c"),
        ("{.workers[?(@.worker=='a')].pid}", "1"),
        ('{.workers[?(@.worker != "a")].pid}', "20"),
        ("v={.version}{'\\t'}{.leader.worker}", "v=7\ta"),
        (".leader", '{"worker": "a", "token": null}'),
        (".leader.*", "a\nnull"),
    ],
)
def test_a_path_picks_values(template: str, text: str) -> None:
    assert JsonPath(template).text(ANSWER) == text


@pytest.mark.parametrize(
    "template", ["{.a", ".workers[", ".workers[x]", "{range .workers[*]}", ".a..b", "{.a}{[?(@.b)]}"]
)
def test_a_path_with_a_mistake_is_refused_before_the_request(template: str) -> None:
    with pytest.raises(InvalidInputError):
        JsonPath(template)


def test_a_path_that_finds_nothing_says_what_there_is() -> None:
    with pytest.raises(AnswerIsNoError, match=r"\.version, \.leader, \.workers"):
        JsonPath(".versoin").text(ANSWER)


def test_yaml_is_in_block_style_and_quotes_what_it_could_misread() -> None:
    value = {
        "name": "broker-a",
        "empty": {},
        "texts": ["yes", "1.5", "a: b", "", "%RETRY%g"],
        "nested": [{"a": 1, "b": [True, None]}, [1, 2]],
    }
    assert yaml_text(value) == (
        "name: broker-a\n"
        "empty: {}\n"
        "texts:\n"
        '- "yes"\n'
        '- "1.5"\n'
        '- "a: b"\n'
        '- ""\n'
        '- "%RETRY%g"\n'
        "nested:\n"
        "- a: 1\n"
        "  b:\n"
        "  - true\n"
        "  - null\n"
        "- - 1\n"
        "  - 2"
    )


def test_all_forms_print_the_same_answer(routebook: CommandLine) -> None:
    routebook("kv", "put", "forms", "a-key", "on")
    assert routebook("kv", "list", "forms", "-o", "json").json == {"a-key": "on"}
    assert routebook("kv", "list", "forms", "--json").json == {"a-key": "on"}
    assert routebook("kv", "list", "forms", "-o", "yaml").out == 'a-key: "on"\n'
    assert routebook("kv", "list", "forms", "-o", "name").out == "a-key\n"
    assert routebook("kv", "list", "forms", "-o", "jsonpath={.a-key}").out == "on\n"
    assert routebook("kv", "list", "forms", "--no-headers").out == "a-key  on\n"
    settings = routebook("settings", "list", "-o", "jsonpath={[?(@.key=='lease_ms')].value}")
    assert settings.out == "10000\n"


@pytest.mark.parametrize("path", ["{.brokers[*]}", "{.brokers[*].name}", "{.brokers[?(@.name=='x')]}"])
def test_a_list_of_which_nothing_is_selected_is_an_answer(path: str, routebook: CommandLine) -> None:
    nothing = routebook("expiry", "status", "-o", f"jsonpath={path}")
    assert (nothing.code, nothing.out.strip()) == (0, "")


@pytest.mark.parametrize("path", ["{.no-such}", "{.no-such[*]}", "{.held[*]}", "{.brokers[0]}"])
def test_what_is_not_in_an_answer_is_an_error(path: str, routebook: CommandLine) -> None:
    missing = routebook("expiry", "status", "-o", f"jsonpath={path}")
    assert missing.code == 1
    assert "is not in the answer" in missing.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "xml"], "is not a form"),
        (["-o", "jsonpath"], "is not a form"),
        (["-o", "json=x"], "is not a form"),
        (["-o", "jsonpath=.a["], "jsonpath is"),
        (["-o", "yaml", "--json"], "Only one form"),
        (["-o", "name"], "has no names"),
    ],
)
def test_a_wrong_form_is_refused_before_the_request(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kv", "put", "a", "b", "c", "--url", "http://127.0.0.1:1", *words]) == 2
    assert message in capsys.readouterr().err


def test_json_stays_what_it_was(routebook: CommandLine) -> None:
    shown = routebook("status", "--json")
    assert json.loads(shown.out)["complete"] is True
    assert shown.out.startswith("{\n  ")
