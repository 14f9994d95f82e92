"""Settings that must fit each other. Each rule says which two, their values, and what to change."""

from routebook.errors import SettingsError
from routebook.settings.fields import Settings


def check_together(settings: Settings) -> None:
    """Raises on the first pair that cannot work."""
    _check_below(
        settings,
        "scan_not_active_broker_interval_ms",
        "broker_timeout_ms",
        "a dead broker would stay a scan longer",
    )
    _check_below(settings, "store_timeout_ms", "lease_ms", "one slow answer would cost the leader its lease")
    _check_below(settings, "min_version_wait_ms", "request_timeout_ms", "the request would end before the wait")
    _check_ports(settings)


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
