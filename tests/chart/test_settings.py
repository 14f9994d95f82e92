"""What the chart tells workers is what workers understand."""

from pathlib import Path
from typing import Any

import pytest

from routebook.settings import catalogue, load
from routebook.store.url import StoreUrl
from tests.chart.objects import Object, main_container, of_kind, one, read, settings_of, templates, worker
from tests.chart.rendering import CHART, VALUE_SETS, merged, render, run, value_set
from tests.chart.tools import HELMS

STORE = "redis://store:6379"


def environment(objects: list[Object], container: Object) -> dict[str, str]:
    """As the kubelet would make it; the store's address may be in a Secret, or need one."""
    found = settings_of(objects, container)
    address = found.get("ROUTEBOOK_REDIS_URL", "")
    return found | {"ROUTEBOOK_REDIS_URL": address.replace("$(STORE_PASSWORD)", "secret") or STORE}


def loaded(values: dict[str, Any]) -> Any:
    objects = render(values)
    return load({}, environment(objects, main_container(objects)), None, profile="serve").settings


@pytest.mark.parametrize("path", VALUE_SETS, ids=lambda path: path.stem)
def test_every_variable_is_a_setting_and_its_value_allowed(path: Path) -> None:
    """`load` refuses an unknown variable, a value out of range, and settings that do not fit each other."""
    objects = render(value_set(path))
    known = {setting.variable for setting in catalogue.all_settings().values()}
    for template in templates(objects):
        for container in template.containers:
            names = settings_of(objects, container).keys() - {"ROUTEBOOK_LAKE"}
            assert names <= known, template.owner
    load({}, environment(objects, main_container(objects)), None, profile="serve")


def test_a_setting_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(Exception, match="ROUTEBOOK_BROKER_TIMEOUT"):
        load({}, {"ROUTEBOOK_BROKER_TIMEOUT": "1", "ROUTEBOOK_REDIS_URL": STORE}, None, profile="serve")


def test_the_defaults_are_those_of_a_service_in_a_cluster() -> None:
    settings = loaded({})
    assert settings.warm_up_ms == 45_000
    assert settings.drain_ms == 35_000
    assert (settings.admin_host, settings.admin_port) == ("0.0.0.0", 8081)
    assert settings.bind_address == "0.0.0.0"
    assert settings.log_format == "json"
    assert settings.workers == 1
    assert settings.redis_url == "redis://rb-routebook-store:6379"


def test_ports_of_the_pod_are_those_that_the_worker_listens_on() -> None:
    for values in ({}, {"admin": {"port": 9090}}):
        settings = loaded(values)
        ports = {port["name"]: port["containerPort"] for port in worker(render(values)).ports}
        assert ports == {
            "remoting": settings.remoting_port,
            "http": settings.http_port,
            "admin": settings.admin_port,
        }


@pytest.mark.parametrize("number", [33_554_432, 268_435_456, 2_000_000])
def test_large_numbers_stay_whole_numbers(number: int) -> None:
    assert loaded({"settings": {"history_max_bytes": number}}).history_max_bytes == number


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
def test_numbers_given_on_the_command_line_are_numbers_too(helm: Path) -> None:
    """Helm reads those in another way than a file's."""
    given = "settings.history_max_bytes=33554432,replicas=4,drain.seconds=20,service.type=NodePort"
    said = run(helm, "template", "rb", str(CHART), "--set", given)
    assert said.code == 0, said.errors
    objects = read(said.text)
    assert settings_of(objects, main_container(objects))["ROUTEBOOK_HISTORY_MAX_BYTES"] == "33554432"
    assert one(objects, "Deployment")["spec"]["replicas"] == 4
    assert worker(objects).spec["terminationGracePeriodSeconds"] == 50
    (public,) = [found for found in objects if found.get("spec", {}).get("type") == "NodePort"]
    assert not any("nodePort" in port for port in public["spec"]["ports"])


def test_the_pipeline_reads_the_name_space_of_the_workers() -> None:
    objects = render({"settings": {"namespace": "orders"}, "pipeline": {"enabled": True}})
    (pipeline,) = [found for found in templates(objects) if found.kind == "CronJob"]
    assert settings_of(objects, pipeline.containers[0])["ROUTEBOOK_NAMESPACE"] == "orders"
    assert settings_of(objects, main_container(objects))["ROUTEBOOK_NAMESPACE"] == "orders"


def test_settings_of_any_kind_arrive() -> None:
    given = {"support_acting_master": True, "namespace": "orders", "hold_percent": 20, "tls_client_enable": False}
    settings = loaded({"settings": given})
    assert {name: getattr(settings, name) for name in given} == given


def test_certificates_of_ones_own_are_used() -> None:
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
def test_the_address_of_a_store_elsewhere_is_only_in_a_secret(store: dict[str, str], kind: str | None) -> None:
    objects = render({"store": {"builtin": {"enabled": False}, "external": store}})
    if "url" in store:
        assert [found["kind"] for found in objects if store["url"] in str(found)] == [kind]
    (variable,) = [it for it in main_container(objects)["env"] if it["name"] == "ROUTEBOOK_REDIS_URL"]
    source = variable["valueFrom"]["secretKeyRef"]
    if kind:
        assert one(objects, "Secret", source["name"])["stringData"][source["key"]] == store["url"]
    else:
        assert source == {"name": "store-address", "key": "url"}


def test_who_speaks_to_a_store_elsewhere_has_the_authority_that_its_address_names() -> None:
    objects = render(value_set(CHART / "ci" / "external-url.yaml"))
    (secret,) = of_kind(objects, "Secret")
    tls = StoreUrl.parse(secret["stringData"]["url"]).tls
    assert tls
    folder = Path(tls.ca_certs or "").parent
    callers = [
        template
        for template in templates(objects)
        for container in template.containers
        if "ROUTEBOOK_REDIS_URL" in settings_of(objects, container)
    ]
    assert [template.kind for template in callers] == ["Deployment", "CronJob"]
    for template in callers:
        (mount,) = [it for it in template.containers[0]["volumeMounts"] if it["mountPath"] == str(folder)]
        (volume,) = [it for it in template.spec["volumes"] if it["name"] == mount["name"]]
        assert volume["secret"] == {"secretName": "store-ca"}


def test_a_new_address_or_setting_makes_new_pods_and_nothing_else_does() -> None:
    def stamp(values: dict[str, Any]) -> Any:
        (found,) = [it for it in render(values) if it["kind"] == "Deployment"]
        return found["spec"]["template"]

    external = {"store": {"builtin": {"enabled": False}, "external": {"url": "redis://one:6379"}}}
    elsewhere = merged(external, {"store": {"external": {"url": "redis://two:6379"}}})
    assert stamp({"settings": {"hold_percent": 20}}) != stamp({})
    assert stamp(external) != stamp(elsewhere)
    assert stamp({"replicas": 5, "service": {"type": "NodePort"}, "pdb": {"enabled": False}}) == stamp({})
