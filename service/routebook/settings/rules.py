"""Settings that depend on each other. Each error names both, their values, and what to change."""

from importlib.util import find_spec

from routebook.errors import SettingsError
from routebook.settings.fields import Settings


def check_together(settings: Settings) -> None:
    """Raises on the first conflict."""
    _check_below(
        settings,
        "scan_not_active_broker_interval_ms",
        "broker_timeout_ms",
        "a dead broker would remain for one more scan",
    )
    _check_below(settings, "store_timeout_ms", "lease_ms", "one slow answer would cost the leader its lease")
    _check_below(settings, "min_version_wait_ms", "request_timeout_ms", "the request would end before the wait")
    _check_below(settings, "store_timeout_ms", "store_cut_off_ms", "one slow answer would move all brokers")
    _check_below(settings, "history_min_entries", "history_hard_limit", "less would be kept than is asked for")
    _check_below(settings, "max_header_bytes", "max_frame_bytes", "a header is part of a frame")
    _check_below(settings, "max_frame_bytes", "max_queued_bytes", "the largest request could never wait")
    _check_water_marks(settings)
    _check_cluster_test(settings)
    _check_tls(settings)
    _check_ports(settings)


def doubts(settings: Settings) -> list[str]:
    """Warnings about combinations that work but are probably a mistake. Logged once at the start."""
    found = []
    if settings.tls_test_mode and (settings.tls_key_path or settings.tls_cert_path):
        found.append(
            "tls_test_mode (tls.test.mode.enable) is true, as by default: the certificate is made at the start, and "
            "tls_key_path and tls_cert_path are ignored. Set it to false to use them."
        )
    return found


def _check_below(settings: Settings, lower: str, upper: str, reason: str) -> None:
    low, high = getattr(settings, lower), getattr(settings, upper)
    if low >= high:
        raise SettingsError(f"{lower} is {low} and {upper} is {high}: {reason}.", advice=f"Set {lower} below {upper}.")


def _check_ports(settings: Settings) -> None:
    taken: dict[int, str] = {}
    for name in ("remoting_port", "http_port", "admin_port"):
        port = getattr(settings, name)
        if port and port in taken:
            raise SettingsError(f"{taken[port]} and {name} are both {port}.", advice="Give each port its own number.")
        taken[port] = name


def _check_water_marks(settings: Settings) -> None:
    low, high = settings.write_buffer_low_water_mark, settings.write_buffer_high_water_mark
    if low and high and low > high:
        raise SettingsError(
            f"write_buffer_low_water_mark is {low} and write_buffer_high_water_mark is {high}: reading never resumes.",
            advice="Set the low one to at most the high one, or one of them to 0 for the event loop's own.",
        )


def _check_cluster_test(settings: Settings) -> None:
    if settings.cluster_test and not settings.cluster_test_upstream:
        raise SettingsError(
            "cluster_test (clusterTest) is true and cluster_test_upstream is not set: lookups of unknown topics are "
            "forwarded to other name servers, and none is named.",
            advice="Set cluster_test_upstream to host:port;host:port, or cluster_test to false.",
        )


def _check_tls(settings: Settings) -> None:
    if settings.tls_mode == "disabled":
        return
    if settings.tls_test_mode:
        if settings.tls_mode == "enforcing" and find_spec("cryptography") is None:
            raise SettingsError(
                "tls_mode is 'enforcing', tls_test_mode is true and the package that makes its certificate is not "
                "installed: no client could connect.",
                advice="Run pip install 'routebook[tls]', or set tls_test_mode to false and use certificate files "
                "(tls_key_path, tls_cert_path).",
            )
        return
    if bool(settings.tls_key_path) != bool(settings.tls_cert_path):
        raise SettingsError(
            f"tls_key_path is {settings.tls_key_path!r}, tls_cert_path is {settings.tls_cert_path!r}: set both.",
            advice="Set both (one PEM file may hold key and chain), or tls_mode to disabled.",
        )
    if settings.tls_mode == "enforcing" and not settings.tls_key_path:
        raise SettingsError(
            "tls_mode is 'enforcing', tls_test_mode is false and tls_key_path is not set: no client could connect.",
            advice="Set tls_key_path and tls_cert_path, or another tls_mode.",
        )
    if settings.tls_auth_client and not settings.tls_trust_path:
        raise SettingsError(
            "tls_auth_client is true and tls_trust_path is not set: there is nothing to check certificates against.",
            advice="Set tls_trust_path to a PEM file, or tls_auth_client to false.",
        )
