"""Whom the command line trusts when it asks a service over TLS."""

import ssl


def trusted_authorities(url: str) -> ssl.SSLContext | bool:
    """Those of this machine, and of the variables SSL_CERT_FILE and SSL_CERT_DIR, as OpenSSL's own tools do: a fleet's
    authority is rarely one of the world's, which are all that httpx knows by itself. Nothing is loaded without need.
    """
    return ssl.create_default_context() if url.lower().startswith("https:") else False
