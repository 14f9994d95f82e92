"""A client that is not in Java: the npm package `ali-ons`, which is pure JavaScript."""

import shutil
from pathlib import Path

import pytest

from tests.conformance.frames import addresses
from tests.conformance.jars import UnavailableError, node_modules
from tests.conformance.java_programs import Admin, Program
from tests.conformance.name_services import NameService, await_answers, wait_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.conformance, pytest.mark.usefixtures("brokers")]

PROGRAM = Path(__file__).parent / "node" / "messages.js"


def test_a_javascript_client_sends_and_receives(name_service: NameService, admin: Admin, tmp_path: Path) -> None:
    try:
        modules = node_modules("ali-ons", "3.12.0")
    except UnavailableError as error:
        pytest.skip(str(error))
    node = shutil.which("node")
    assert node
    # The client gives up at answer 17 and never looks up TBW102, so the topic is created beforehand.
    output = admin.run("updateTopic", "-n", name_service.address, "-c", "DefaultCluster", "-t", "by-node")
    assert "success" in output, output
    wait_everywhere(name_service, lambda address: len(addresses(address, "by-node")) == 2, "the topic")
    command = [node, str(PROGRAM), name_service.address]
    # It writes offsets and logs below its home folder.
    with Program(command, tmp_path, env={"NODE_PATH": str(modules), "HOME": str(tmp_path)}) as peer:
        assert peer.ask("subscribe by-node by-node") == "subscribed"
        assert peer.ask("send by-node 0 100") == "sent 100 failures 0"
        assert peer.ask("await by-node 100") == "got 100 messages"
    lookups = [frame for frame in name_service.log.requests(105) if frame.ext["topic"] == "by-node"]
    assert lookups
    # The answer to the last lookup may be missing, since the client was stopped.
    assert await_answers(name_service.log, lookups[:1])[0].code == 0
