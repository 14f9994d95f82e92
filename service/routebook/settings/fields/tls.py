"""TLS, of the remoting port and of HTTP alike. Names and meaning are those of Apache's system properties."""

from typing import Annotated, Literal

from pydantic import Field

from routebook.settings.fields.about import About, Part
from routebook.settings.masking import Secret


class TlsSettings(Part):
    tls_mode: Annotated[
        Literal["permissive", "enforcing", "disabled"],
        About(
            "Who speaks TLS on the shared port: permissive takes both (as Apache's), enforcing closes plain ones, "
            "disabled closes TLS.",
            properties_name="tls.server.mode",
        ),
    ] = "permissive"
    tls_test_mode: Annotated[
        bool,
        About(
            "On as in Apache's: a certificate made at the start, signed by itself, and key and certificate files are "
            "not looked at. Turn it off to use yours.",
            properties_name="tls.test.mode.enable",
        ),
    ] = True
    tls_config_file: Annotated[
        str,
        About(
            "Properties that are read when this file exists, and are stronger than those of the file given with -c. "
            "Apache's place. A file named by you must exist.",
            properties_name="tls.config.file",
            allowed="a file",
        ),
    ] = "/etc/rocketmq/tls.properties"
    tls_key_path: Annotated[
        str,
        About(
            "Private key of the server, PEM (PKCS#8 or traditional). Read again when it changes together with "
            "tls_cert_path.",
            properties_name="tls.server.keyPath",
            allowed="a file",
        ),
    ] = ""
    tls_key_password: Annotated[
        str,
        About(
            "Password of the private key. Empty: it has none.",
            properties_name="tls.server.keyPassword",
            secret=Secret.WHOLE,
        ),
    ] = Field(default="", repr=False)
    tls_cert_path: Annotated[
        str,
        About(
            "Certificate chain of the server, PEM, its own certificate first.",
            properties_name="tls.server.certPath",
            allowed="a file",
        ),
    ] = ""
    tls_trust_path: Annotated[
        str,
        About(
            "Certificates that may sign a client's, PEM; used when tls_auth_client is on.",
            properties_name="tls.server.trustCertPath",
            allowed="a file",
        ),
    ] = ""
    tls_auth_client: Annotated[
        bool,
        About(
            "A client's certificate is checked against tls_trust_path. Off, as in Apache's: any is taken.",
            properties_name="tls.server.authClient",
        ),
    ] = False
    tls_need_client_auth: Annotated[
        Literal["none", "optional", "require"],
        About(
            "Whether a client is asked for a certificate, and turned away without one; none as in Apache's.",
            properties_name="tls.server.need.client.auth",
        ),
    ] = "none"
    tls_client_enable: Annotated[
        bool,
        About(
            "Connections that start here (905 to brokers, lookups upstream) speak TLS; off as in Apache's.",
            properties_name="tls.enable",
            weaker_properties=("useTLS",),
        ),
    ] = False
