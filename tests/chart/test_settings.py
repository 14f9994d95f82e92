"""The settings that the chart passes to workers are valid and have the intended effect."""

import base64
from pathlib import Path
from typing import Any

import pytest

from routebook.http_api.middleware import is_own_host, own_names
from routebook.settings import catalogue, load
from routebook.store.connection.url import StoreUrl
from tests.chart.objects import (
    Object,
    main_container,
    of_kind,
    pod_templates,
    read,
    settings_of,
    single,
    worker_template,
)
from tests.chart.rendering import CHART, VALUE_SETS, merged, render, run, value_set
from tests.chart.tools import HELMS

STORE = "redis://store:6379"


def environment(objects: list[Object], container: Object) -> dict[str, str]:
    """The environment that the kubelet would create, with a stand-in for what is in Secrets."""
    found = settings_of(objects, container)
    address = found.get("ROUTEBOOK_REDIS_URL", "")
    return found | {"ROUTEBOOK_REDIS_URL": address.replace("$(STORE_PASSWORD)", "secret") or STORE}


def loaded(values: dict[str, Any]) -> Any:
    objects = render(values)
    return load({}, environment(objects, main_container(objects)), None, profile="serve").settings


@pytest.mark.parametrize("path", VALUE_SETS, ids=lambda path: path.stem)
def test_every_variable_is_a_setting_with_an_allowed_value(path: Path) -> None:
    """`load` refuses unknown variables, values out of range, and settings that do not fit each other."""
    objects = render(value_set(path))
    known = {setting.variable for setting in catalogue.all_settings().values()}
    for template in pod_templates(objects):
        for container in template.containers:
            names = settings_of(objects, container).keys() - {"ROUTEBOOK_LAKE"}
            assert names <= known, template.owner
    load({}, environment(objects, main_container(objects)), None, profile="serve")


def test_an_unknown_setting_is_found() -> None:
    with pytest.raises(Exception, match="ROUTEBOOK_BROKER_TIMEOUT"):
        load({}, {"ROUTEBOOK_BROKER_TIMEOUT": "1", "ROUTEBOOK_REDIS_URL": STORE}, None, profile="serve")


def test_the_charts_defaults_reach_the_settings() -> None:
    settings = loaded({})
    assert settings.warm_up_ms == 45_000
    assert settings.drain_ms == 35_000
    assert (settings.admin_host, settings.admin_port) == ("0.0.0.0", 8081)
    assert settings.bind_address == "0.0.0.0"
    assert settings.log_format == "json"
    assert settings.workers == 1
    assert settings.redis_url == "redis://rb-routebook-store:6379"


def test_container_ports_match_the_ports_the_worker_listens_on() -> None:
    for values in ({}, {"admin": {"port": 9090}}):
        settings = loaded(values)
        ports = {port["name"]: port["containerPort"] for port in worker_template(render(values)).ports}
        assert ports == {
            "remoting": settings.remoting_port,
            "http": settings.http_port,
            "admin": settings.admin_port,
        }


@pytest.mark.parametrize("number", [33_554_432, 268_435_456, 2_000_000])
def test_large_numbers_are_written_as_integers(number: int) -> None:
    assert loaded({"settings": {"history_max_bytes": number}}).history_max_bytes == number


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_numbers_from_the_command_line_work(helm: Path) -> None:
    """Helm parses `--set` values differently from those of a file."""
    given = "settings.history_max_bytes=33554432,replicas=4,drain.seconds=20,service.type=NodePort"
    result = run(helm, "template", "rb", str(CHART), "--set", given)
    assert result.code == 0, result.errors
    objects = read(result.text)
    assert settings_of(objects, main_container(objects))["ROUTEBOOK_HISTORY_MAX_BYTES"] == "33554432"
    assert single(objects, "Deployment")["spec"]["replicas"] == 4
    assert worker_template(objects).spec["terminationGracePeriodSeconds"] == 50
    (public,) = [found for found in objects if found.get("spec", {}).get("type") == "NodePort"]
    assert not any("nodePort" in port for port in public["spec"]["ports"])


def test_the_pipeline_reads_the_workers_namespace() -> None:
    objects = render({"settings": {"namespace": "orders"}, "pipeline": {"enabled": True}})
    (pipeline,) = [found for found in pod_templates(objects) if found.kind == "CronJob"]
    assert settings_of(objects, pipeline.containers[0])["ROUTEBOOK_NAMESPACE"] == "orders"
    assert settings_of(objects, main_container(objects))["ROUTEBOOK_NAMESPACE"] == "orders"


def test_settings_of_all_types_are_passed_on() -> None:
    given = {"support_acting_master": True, "namespace": "orders", "hold_percent": 20, "tls_client_enable": False}
    settings = loaded({"settings": given})
    assert {name: getattr(settings, name) for name in given} == given


def test_certificates_from_secrets_are_used() -> None:
    settings = loaded(value_set(next(path for path in VALUE_SETS if path.stem == "tls")))
    assert (settings.tls_test_mode, settings.tls_mode) == (False, "enforcing")
    mounts = {mount["mountPath"]: mount["name"] for mount in main_container(render(TLS))["volumeMounts"]}
    assert mounts[str(Path(settings.tls_key_path).parent)] == "tls"
    assert mounts[str(Path(settings.tls_cert_path).parent)] == "tls"
    assert mounts[str(Path(settings.tls_trust_path).parent)] == "trust"
    assert (settings.tls_auth_client, settings.tls_need_client_auth) == (True, "require")


TLS = value_set(next(path for path in VALUE_SETS if path.stem == "tls"))


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ({"url": "sentinels://u:p@a:26379,b:26379/main/2"}, "Secret"),
        ({"existingSecret": "store-address"}, None),
    ],
)
def test_the_url_of_an_external_store_is_only_in_a_secret(store: dict[str, str], kind: str | None) -> None:
    objects = render({"store": {"builtin": {"enabled": False}, "external": store}})
    if "url" in store:
        assert [found["kind"] for found in objects if store["url"] in str(found)] == [kind]
    (variable,) = [it for it in main_container(objects)["env"] if it["name"] == "ROUTEBOOK_REDIS_URL"]
    source = variable["valueFrom"]["secretKeyRef"]
    if kind:
        assert single(objects, "Secret", source["name"])["stringData"][source["key"]] == store["url"]
    else:
        assert source == {"name": "store-address", "key": "url"}


def test_all_pods_that_use_an_external_store_mount_its_authority() -> None:
    objects = render(value_set(CHART / "ci" / "external-url.yaml"))
    secret = single(objects, "Secret", "rb-routebook-store")
    tls = StoreUrl.parse(secret["stringData"]["url"]).tls
    assert tls
    folder = Path(tls.ca_certs or "").parent
    users = [
        template
        for template in pod_templates(objects)
        for container in template.containers
        if "ROUTEBOOK_REDIS_URL" in settings_of(objects, container)
    ]
    assert [template.kind for template in users] == ["Deployment", "CronJob"]
    for template in users:
        (mount,) = [it for it in template.containers[0]["volumeMounts"] if it["mountPath"] == str(folder)]
        (volume,) = [it for it in template.spec["volumes"] if it["name"] == mount["name"]]
        assert volume["secret"] == {"secretName": "store-ca"}


def test_only_a_changed_setting_or_store_url_restarts_the_pods() -> None:
    def pod_template(values: dict[str, Any]) -> Any:
        (found,) = [it for it in render(values) if it["kind"] == "Deployment"]
        return found["spec"]["template"]

    external = {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://one:6379"}}}
    other_url = merged(external, {"store": {"external": {"url": "redis://two:6379"}}})
    assert pod_template({"settings": {"hold_percent": 20}}) != pod_template({})
    assert pod_template(external) != pod_template(other_url)
    assert pod_template({"replicas": 5, "service": {"type": "NodePort"}, "pdb": {"enabled": False}}) == pod_template({})


def test_the_host_names_of_the_service_are_accepted() -> None:
    settings = loaded({"settings": {"http_host_names": "names.example,*.corp.example"}})
    names = own_names(settings)
    service = "rb-routebook"
    in_cluster = (service, f"{service}.fleet", f"{service}.fleet.svc", f"{service}.fleet.svc.cluster.local")
    for host in (*in_cluster, "names.example", "a.corp.example", "127.0.0.1", "localhost"):
        assert is_own_host(host, names), host
    assert not is_own_host("other.fleet.svc", names)


def test_the_admin_token_comes_from_the_charts_secret_and_a_secret_of_the_user_wins() -> None:
    objects = render({"existingSecret": "mine"})
    secret = single(objects, "Secret", "rb-routebook-admin-token")
    assert len(base64.b64decode(secret["data"]["ROUTEBOOK_ADMIN_TOKEN"])) == 48
    sources = [source["secretRef"]["name"] for source in main_container(objects)["envFrom"] if "secretRef" in source]
    # Kubernetes: the last source of a variable takes precedence.
    assert sources == ["rb-routebook-admin-token", "mine"]
    off = render({"adminToken": {"create": False}})
    assert of_kind(off, "Secret") == []
    assert not any("secretRef" in source for source in main_container(off)["envFrom"])
