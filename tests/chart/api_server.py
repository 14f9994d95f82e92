"""A fake Kubernetes API server that answers what Helm asks while it renders: version, kinds, existing objects.

`helm template` asks no cluster, so only this server shows how templates use `lookup` and the cluster's kinds. It is
read-only. Whether Kubernetes accepts the objects is tested on the real cluster of tests/kubernetes.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.chart.objects import Object, read
from tests.chart.rendering import CHART, NAMESPACE, HelmResult, run

_KINDS = {
    "v1": {"ConfigMap", "Namespace", "Pod", "Secret", "Service", "ServiceAccount"},
    "apps/v1": {"Deployment", "StatefulSet"},
    "autoscaling/v2": {"HorizontalPodAutoscaler"},
    "networking.k8s.io/v1": {"NetworkPolicy"},
    "policy/v1": {"PodDisruptionBudget"},
}
OPERATOR = {"monitoring.coreos.com/v1": {"PodMonitor", "PrometheusRule", "ServiceMonitor"}}


class ApiServer:
    """`with ApiServer.running(folder, objects, kinds) as server: server.install(helm, values)`"""

    def __init__(self, objects: list[Object], kinds: dict[str, set[str]]) -> None:
        self._answers = dict(_kinds({**_KINDS, **kinds}))
        for found in objects:
            self._answers[_path_of(found)] = found
        self.kubeconfig = Path()

    @classmethod
    @contextmanager
    def running(
        cls, folder: Path, objects: list[Object] | None = None, kinds: dict[str, set[str]] | None = None
    ) -> "Iterator[ApiServer]":
        api_server = cls(objects or [], kinds or {})
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api_server._answers))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            api_server.kubeconfig = folder / "kubeconfig"
            api_server.kubeconfig.write_text(json.dumps(_kubeconfig(server.server_port)))
            yield api_server
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def install(self, helm: Path, values: dict[str, Any]) -> HelmResult:
        """Renders an installation against this server, without creating anything."""
        arguments = ["install", "rb", str(CHART), "--dry-run=server", "--disable-openapi-validation"]
        arguments += ["--namespace", NAMESPACE, "--values", "-", "--kubeconfig", str(self.kubeconfig)]
        return run(helm, *arguments, values=json.dumps(values))

    def objects(self, helm: Path, values: dict[str, Any]) -> list[Object]:
        result = self.install(helm, values)
        assert result.code == 0, result.errors
        manifest, _, _ = result.text.partition("MANIFEST:")[2].partition("\nNOTES:")
        return read(manifest)


def next_commands(output: str) -> list[str]:
    """The commands that NOTES.txt suggests."""
    _, _, notes = output.partition("\nNext:\n")
    return [line.strip() for line in notes.splitlines() if line.startswith("  ")]


def _kinds(kinds: dict[str, set[str]]) -> Iterator[tuple[str, Any]]:
    yield "/version", {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
    yield "/api", {"kind": "APIVersions", "versions": ["v1"]}
    groups = []
    for version, names in kinds.items():
        resources = [{"name": _plural(kind), "namespaced": kind != "Namespace", "kind": kind} for kind in names]
        listed = [{**resource, "singularName": "", "verbs": ["get", "list"]} for resource in resources]
        yield _root(version), {"kind": "APIResourceList", "groupVersion": version, "resources": listed}
        group, slash, number = version.partition("/")
        if slash:
            group_version = {"groupVersion": version, "version": number}
            groups.append({"name": group, "versions": [group_version], "preferredVersion": group_version})
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _plural(kind: str) -> str:
    return kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")


def _path_of(found: Object) -> str:
    return f"{_root(found['apiVersion'])}/namespaces/{NAMESPACE}/{_plural(found['kind'])}/{found['metadata']['name']}"


def _kubeconfig(port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "anonymous"}}],
        "current-context": "here",
    }


def _handler(answers: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, _ = self.path.partition("?")
            if path.endswith("/secrets"):
                # Helm keeps its releases in Secrets; there are none yet.
                self._reply(200, {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []})
            elif path in answers:
                self._reply(200, answers[path])
            else:
                self._reply(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound"})

        def _reply(self, status: int, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
