"""An installation as a user makes it: with the chart's defaults, and what this machine cannot do otherwise (images)."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.announced import announce
from tests.kubernetes.cluster.cluster import Cluster, CommandError
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import Release, lines
from tests.kubernetes.verdicts import assert_lookups_go_on

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def defaults(cluster: Cluster) -> Iterator[Release]:
    release = Release(cluster, "defaults")
    release.remove()
    seconds = release.install()
    figures.tell("install", {"helm install --wait of the defaults, store included, s": seconds})
    yield release
    release.remove()


def test_the_defaults_are_three_workers_on_three_nodes_and_a_store(defaults: Release) -> None:
    workers = defaults.ready_workers()

    assert len(workers) == 3
    assert {pod.node for pod in workers} == {"node1", "node2", "node3"}
    assert defaults.store().ready
    assert {pod.restarts for pod in workers} == {0}


def test_helm_test_registers_and_looks_up(defaults: Release) -> None:
    began = time.monotonic()

    said = defaults.test()

    assert "Phase:          Succeeded" in said
    figures.tell("install", {"helm test, s": time.monotonic() - began})


def test_a_name_space_at_the_restricted_level_takes_every_pod_and_no_looser_one(defaults: Release) -> None:
    containers = [{"name": "any", "image": "any"}]
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": {"containers": containers}}

    with pytest.raises(CommandError, match="violates PodSecurity"):
        defaults.kubectl("apply", "-f", "-", given=json.dumps(loose))

    assert len(defaults.ready_workers()) == 3


def test_brokers_and_clients_outside_come_in_through_every_node(defaults: Release) -> None:
    cluster = defaults.cluster
    every_node = [defaults.remoting_address(node) for node in cluster.addresses.numbers]

    with Fleet(cluster.addresses.host, every_node, brokers=3, clients_of_each_kind=3) as fleet:
        stretch = fleet.stretch()
        time.sleep(8)
        seen = stretch.end()

    assert_lookups_go_on(seen)


def test_a_restart_with_the_chart_s_own_drain(defaults: Release) -> None:
    """Each worker takes its leave for 45 s at most; the next one does not wait for that."""
    defaults.settle()
    with Fleet(defaults.cluster.addresses.host, [defaults.remoting_address()]) as fleet:
        announce("rollout restart, drain of the defaults", defaults, fleet, defaults.restart)


def test_the_admin_port_is_not_in_the_service(defaults: Release) -> None:
    assert set(defaults.ports()) == {"remoting", "http"}
    assert all("routebook_lookups_total" in defaults.metrics(pod) for pod in defaults.ready_workers())


def test_uninstall_leaves_nothing_but_claims(defaults: Release) -> None:
    """The last of this file: there is nothing left to test afterwards."""
    defaults.uninstall()
    # Workers take leave of their peers first; nobody waits for that.
    defaults.cluster.wait(lambda: defaults.cluster.get("pods", defaults.name) == [], "the pods' end", 90)

    kinds = (
        "all,configmaps,secrets,serviceaccounts,poddisruptionbudgets,networkpolicies,cronjobs,jobs,roles,rolebindings"
    )
    left = set(lines(defaults.kubectl("get", kinds, "-o", "name")))
    assert left == {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    assert len(lines(defaults.kubectl("get", "persistentvolumeclaims", "-o", "name"))) == 1
