"""`routebook snapshot`: export to a file, import from one, and export of other name servers."""

import json
import secrets
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from routebook.cli import snapshot
from tests.cli.conftest import CommandLine
from tests.remoting_client.canned_server import broker_data, one_broker, queue_data, route, serving
from tests.runtime.running import Running


@pytest.fixture
def broker(service: Running) -> str:
    name = f"broker-{secrets.token_hex(4)}"
    service.register(name, f"Topic-{name}", f"%RETRY%{name}/x")
    return name


def exported(routebook: CommandLine, file: Path) -> dict[str, Any]:
    assert routebook("snapshot", "export", str(file)).code == 0
    document: dict[str, Any] = json.loads(file.read_bytes())
    return document


def written(file: Path, **changes: Any) -> str:
    empty = {"snapshot": 1, "taken": {}, "left_out": [], "settings": {}, "key_values": {}, "groups": []}
    file.write_text(json.dumps({**empty, **changes}))
    return str(file)


def test_an_export_is_private_to_its_owner_with_one_group_per_line(
    routebook: CommandLine, broker: str, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.json"
    document = exported(routebook, file)
    assert broker in [group["name"] for group in document["groups"]]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
    (line,) = [line for line in file.read_text().splitlines() if f'"{broker}"' in line]
    assert json.loads(line.rstrip(","))["topics"].keys() == {f"Topic-{broker}", f"%RETRY%{broker}/x"}


def test_importing_the_same_again_changes_nothing(routebook: CommandLine, broker: str, tmp_path: Path) -> None:
    exported(routebook, tmp_path / "fleet.json")
    ended = routebook("snapshot", "import", str(tmp_path / "fleet.json"))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Written: nothing; ")


def test_a_dry_run_shows_what_the_import_does(routebook: CommandLine, tmp_path: Path) -> None:
    name = f"broker-{secrets.token_hex(4)}"
    group = {
        "name": name,
        "cluster": "demo",
        "members": [{"id": 0, "address": "127.0.0.77:10911"}],
        "topics": {f"Topic-{name}": {"read_queues": 4, "write_queues": 4, "perm": 6}},
    }
    file = written(tmp_path / "new.json", groups=[group], key_values={f"N-{name}": {"k": "v"}})
    dry = routebook("snapshot", "import", file, "--dry-run")
    assert dry.code == 0
    rows = [line.split() for line in dry.out.splitlines()]
    assert ["create", "key-value", f"N-{name}/k", "-", "-", "-"] in rows
    assert ["create", "broker", f"demo/{name}/0", "-", "-", "-"] in rows
    assert dry.out.splitlines()[-1].startswith("Would write: 0 settings, 1 key-values, 1 groups, 1 brokers, 1 topics")
    assert routebook("route", f"Topic-{name}").code == 1
    assert routebook("snapshot", "import", file, "--json").json["counts"]["broker"]["create"] == 1
    assert routebook("route", f"Topic-{name}").code == 0


def test_differing_values_are_kept_with_exit_code_1_unless_replaced(
    routebook: CommandLine, broker: str, tmp_path: Path
) -> None:
    document = exported(routebook, tmp_path / "fleet.json")
    (group,) = [group for group in document["groups"] if group["name"] == broker]
    group["topics"][f"Topic-{broker}"]["perm"] = 4
    file = written(tmp_path / "changed.json", groups=[group])
    kept = routebook("snapshot", "import", file)
    assert kept.code == 1
    assert kept.out.splitlines()[1].split() == ["keep", "topic", f"Topic-{broker}", "@", broker, "perm", "6", "4"]
    assert "1 differ and remain unchanged (--replace)" in kept.out
    assert routebook("snapshot", "import", file, "--replace").code == 0
    assert routebook("route", f"Topic-{broker}").out.splitlines()[1].split()[-1] == "r-"


def test_a_mistake_in_the_last_part_prevents_the_whole_import(
    routebook: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PART_TOPICS", 1)
    name = f"broker-{secrets.token_hex(4)}"
    groups = [
        {"name": f"{name}-{number}", "cluster": "demo", "members": [{"id": 0, "address": address}]}
        for number, address in enumerate(["127.0.0.78:1", "127.0.0.79:1", "nonsense"])
    ]
    ended = routebook("snapshot", "import", written(tmp_path / "wrong.json", groups=groups))
    assert ended.code == 2
    assert "'nonsense'" in ended.err
    assert name not in routebook("brokers").out
    assert routebook("snapshot", "import", written(tmp_path / "right.json", groups=groups[:2])).code == 0
    assert routebook("brokers").out.count(name) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"snapshot":1}', "not json"])
def test_a_file_that_is_not_a_snapshot_is_wrong_usage(nowhere: CommandLine, tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert nowhere("snapshot", "import", str(tmp_path / "file")).code == 2


def test_an_unknown_key_is_wrong_usage(nowhere: CommandLine, tmp_path: Path) -> None:
    ended = nowhere("snapshot", "import", written(tmp_path / "file", surprise=1))
    assert ended.code == 2
    assert "'surprise'" in ended.err


def test_unusable_files_are_reported(nowhere: CommandLine, tmp_path: Path) -> None:
    assert "cannot be read" in nowhere("snapshot", "import", str(tmp_path / "nothing")).err
    assert "cannot be written" in nowhere("snapshot", "export", str(tmp_path / "no" / "folder")).err


def test_an_export_that_fails_leaves_no_file(nowhere: CommandLine, tmp_path: Path) -> None:
    assert nowhere("snapshot", "export", str(tmp_path / "fleet.json")).code == 3
    assert list(tmp_path.iterdir()) == []


def test_another_name_server_is_exported_and_imported(routebook: CommandLine, tmp_path: Path) -> None:
    name = f"broker-{secrets.token_hex(4)}"
    group = broker_data(name, '{0:"127.0.0.88:10911",1:"127.0.0.89:10911"}', ',"zoneName":"az-1"')
    server = one_broker(
        cluster_info=f'{{"brokerAddrTable":{{"{name}":{group}}},"clusterAddrTable":{{"DefaultCluster":["{name}"]}}}}',
        routes={f"Topic-{name}": route([group], [queue_data(name, read=4)])},
        key_values={"ORDER_TOPIC_CONFIG": {f"Topic-{name}": f"{name}:4"}},
    )
    file = tmp_path / "apache.json"
    with serving(server) as address:
        assert routebook("snapshot", "export", str(file), "--from", address).code == 0
    assert routebook("snapshot", "import", str(file)).code == 0
    shown = routebook("route", f"Topic-{name}", "--json").json
    assert shown["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.88:10911", "1": "127.0.0.89:10911"}
    assert shown["brokerDatas"][0]["zoneName"] == "az-1"
    assert shown["queueDatas"][0]["readQueueNums"] == 4
    assert routebook("kv", "get", "ORDER_TOPIC_CONFIG", f"Topic-{name}").out == f"{name}:4\n"
    assert routebook("snapshot", "import", str(file)).out.startswith("Written: nothing")


def test_an_unreachable_name_server_is_named(nowhere: CommandLine, tmp_path: Path) -> None:
    ended = nowhere("snapshot", "export", str(tmp_path / "file"), "--from", "127.0.0.1:1")
    assert ended.code == 3
    assert "127.0.0.1:1 is unavailable" in ended.err


def test_both_ports_export_the_same_snapshot(
    routebook: CommandLine, service: Running, broker: str, tmp_path: Path
) -> None:
    known = exported(routebook, tmp_path / "http.json")
    address = f"127.0.0.1:{service.remoting.rpartition(':')[2]}"
    assert routebook("snapshot", "export", str(tmp_path / "remoting.json"), "--from", address).code == 0
    over_remoting = json.loads((tmp_path / "remoting.json").read_bytes())
    assert broker in [group["name"] for group in over_remoting["groups"]]
    # Groups of other tests have the same addresses, and filter servers are not reported by group.
    seats = Counter(member["address"] for group in known["groups"] for member in group["members"])
    shared = {address for address, times in seats.items() if times > 1}
    assert [without_unreported_parts(group, shared) for group in over_remoting["groups"]] == [
        without_unreported_parts(group, shared) for group in known["groups"]
    ]


def without_unreported_parts(group: dict[str, Any], shared: set[str]) -> dict[str, Any]:
    members = {
        (member["id"], member["address"], () if member["address"] in shared else tuple(member["filters"]))
        for member in group["members"]
    }
    topics = {topic: {**queues, "by_request": None} for topic, queues in group["topics"].items()}
    return {**group, "members": members, "topics": topics}
