"""A cluster's certificates: one authority, and one certificate for each client of the API server."""

import base64
import subprocess
from pathlib import Path

from tests.kubernetes.cluster.addresses import Addresses

DAYS = "3650"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self.folder = folder
        self._addresses = addresses

    def make(self) -> None:
        self.folder.mkdir(mode=0o700)
        key, certificate = self.folder / "ca.key", self.folder / "ca.crt"
        subject = f"/CN={self._addresses.name}"
        _openssl(
            "req", "-x509", *NEW_KEY, "-days", DAYS, "-subj", subject, "-keyout", str(key), "-out", str(certificate)
        )
        accounts = str(self.folder / "accounts.key")
        _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", accounts)
        _openssl("ec", "-in", accounts, "-pubout", "-out", str(self.folder / "accounts.pub"))
        self._issue("apiserver", "/CN=kube-apiserver", f"subjectAltName={','.join(self._server_names())}")
        self.client("admin", "/O=system:masters/CN=admin")
        self.client("controller-manager", "/CN=system:kube-controller-manager")
        self.client("scheduler", "/CN=system:kube-scheduler")
        self.client("proxy", "/CN=system:kube-proxy")
        for number in self._addresses.numbers:
            self.client(f"node{number}", f"/O=system:nodes/CN=system:node:node{number}")

    def client(self, name: str, subject: str) -> None:
        """Issues a client certificate and writes a kubeconfig that uses it."""
        self._issue(name, subject, "extendedKeyUsage=clientAuth")
        cluster, server = self._addresses.name, f"https://{self._addresses.node(1)}:6443"
        config = self.folder / f"{name}.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"""apiVersion: v1
kind: Config
current-context: {cluster}
clusters: [{{name: {cluster}, cluster: {{server: "{server}", certificate-authority-data: {self._base64("ca.crt")}}}}}]
users:
- name: {name}
  user: {{client-certificate-data: {self._base64(f"{name}.crt")}, client-key-data: {self._base64(f"{name}.key")}}}
contexts: [{{name: {cluster}, context: {{cluster: {cluster}, user: {name}}}}}]
"""
        )

    def _server_names(self) -> list[str]:
        service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        numbers = (self._addresses.node(1), "127.0.0.1", self._addresses.api_service)
        return [f"DNS:{name}" for name in service] + [f"IP:{number}" for number in numbers]

    def _issue(self, name: str, subject: str, extension: str) -> None:
        _openssl(
            *("req", "-x509", *NEW_KEY, "-days", DAYS, "-subj", subject),
            *("-CA", str(self.folder / "ca.crt"), "-CAkey", str(self.folder / "ca.key")),
            *("-addext", "basicConstraints=critical,CA:FALSE", "-addext", extension),
            *("-keyout", str(self.folder / f"{name}.key"), "-out", str(self.folder / f"{name}.crt")),
        )

    def _base64(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
