"""An installation with the chart's defaults, except for the images, which have no registry here."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import Cluster, CommandError
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import Release, lines
from tests.kubernetes.scenarios import assert_change_is_unnoticed
from tests.kubernetes.verdicts import assert_no_lookup_failed

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def defaults(cluster: Cluster) -> Iterator[Release]:
    release = Release(cluster, "defaults")
    release.remove()
    seconds = release.install()
    figures.record("install", {"helm install --wait with the defaults, including the store, s": seconds})
    yield release
    release.remove()


def test_the_defaults_run_three_workers_on_three_nodes_and_a_store(defaults: Release) -> None:
    workers = defaults.ready_workers()

    assert len(workers) == 3
    assert {pod.node for pod in workers} == {"node1", "node2", "node3"}
    assert defaults.store().ready
    assert {pod.restarts for pod in workers} == {0}


def test_helm_test_registers_and_looks_up(defaults: Release) -> None:
    start = time.monotonic()

    output = defaults.test()

    assert "Phase:          Succeeded" in output
    figures.record("install", {"helm test, s": time.monotonic() - start})


def test_all_pods_are_admitted_at_the_restricted_security_level(defaults: Release) -> None:
    containers = [{"name": "any", "image": "any"}]
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": {"containers": containers}}

    with pytest.raises(CommandError, match="violates PodSecurity"):
        defaults.kubectl("apply", "-f", "-", stdin=json.dumps(loose))

    assert len(defaults.ready_workers()) == 3


def test_brokers_and_clients_can_connect_through_every_node(defaults: Release) -> None:
    cluster = defaults.cluster
    every_node = [defaults.remoting_address(node) for node in cluster.addresses.numbers]

    with Fleet(cluster.addresses.host, every_node, brokers=3, clients_of_each_kind=3) as fleet:
        open_window = fleet.open_window()
        time.sleep(8)
        window = open_window.close()

    assert_no_lookup_failed(window)


def test_a_restart_with_the_charts_default_drain_is_unnoticed(defaults: Release) -> None:
    """Each worker drains for up to 45 s; the rollout does not wait for that."""
    defaults.wait_until_consistent()
    with Fleet(defaults.cluster.addresses.host, [defaults.remoting_address()]) as fleet:
        assert_change_is_unnoticed("rollout restart, default drain", defaults, fleet, defaults.restart)


def test_the_admin_port_is_not_in_the_service(defaults: Release) -> None:
    assert set(defaults.ports()) == {"remoting", "http"}
    assert all("routebook_lookups_total" in defaults.metrics(pod) for pod in defaults.ready_workers())


def test_uninstall_leaves_only_claims(defaults: Release) -> None:
    """Must be the last test of this file, since it removes the release."""
    defaults.uninstall()
    # helm does not wait for the workers' drain.
    defaults.cluster.wait(lambda: defaults.cluster.get("pods", defaults.name) == [], "the pods' end", 90)

    kinds = (
        "all,configmaps,secrets,serviceaccounts,poddisruptionbudgets,networkpolicies,cronjobs,jobs,roles,rolebindings"
    )
    left = set(lines(defaults.kubectl("get", kinds, "-o", "name")))
    assert left == {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    assert len(lines(defaults.kubectl("get", "persistentvolumeclaims", "-o", "name"))) == 1
