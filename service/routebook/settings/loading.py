"""Loads the settings: reads flags, `ROUTEBOOK_*` variables and files once, and records the origin of each value.

`check_together` checks settings that depend on each other. Each error names both, their values, and what to change.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from routebook.errors import InvalidInputError, SettingsError
from routebook.settings import catalogue
from routebook.settings.fields import Settings
from routebook.settings.files import FileContent, check_kept, inert_properties, read_file, read_tls_file
from routebook.settings.kinds import mask_unknown

EXEMPT = {
    "ROUTEBOOK_REDIS_SERVER": "which server binary the embedded store starts",
    "ROUTEBOOK_URL": "which service the command line uses",
    "ROUTEBOOK_TOKEN": "the token that the command line sends",
    "ROUTEBOOK_CACERT": "the authorities that the command line trusts",
    "ROUTEBOOK_CERT": "the client certificate that the command line presents",
    "ROUTEBOOK_KEY": "the key of that certificate",
    "ROUTEBOOK_CONTEXT": "which context the command line uses",
    "ROUTEBOOK_CONTEXTS": "the file of those contexts",
    "ROUTEBOOK_LAKE": "which lake the pipeline uses",
}
EXEMPT_PREFIXES = {"ROUTEBOOK_TEST_": "used by the test suite"}

ROCKETMQ_VARIABLES = {"ROCKETMQ_SERIALIZE_TYPE": "serialize_type"}
"""Variables that Apache's name server reads too. As there, a property in a file takes precedence."""

# Kubernetes puts the address of every Service into every pod: one called routebook gives
# ROUTEBOOK_PORT=tcp://10.0.0.1:8080, one called routebook-http even gives ROUTEBOOK_HTTP_PORT.
# Such variables are ignored, because no user set them.
_SERVICE_LINK_NAME = re.compile(r"ROUTEBOOK_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_.+)?)")
_SERVICE_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://[^ ]+:[0-9]+")


def read_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our name -> text. An unknown variable stops the start, so that a typing error cannot pass as a default."""
    found: dict[str, str] = {}
    for variable, value in environ.items():
        if not variable.startswith(catalogue.VARIABLE_PREFIX) or _is_exempt(variable, value):
            continue
        key = variable.removeprefix(catalogue.VARIABLE_PREFIX).lower()
        catalogue.find(key, variable, value)
        found[key] = value
    return found


def read_rocketmq_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our name -> text. A blank value counts as missing, as in Apache's."""
    return {name: environ[key] for key, name in ROCKETMQ_VARIABLES.items() if environ.get(key, "").strip()}


def _is_exempt(variable: str, value: str) -> bool:
    return (
        variable in EXEMPT
        or variable.startswith(tuple(EXEMPT_PREFIXES))
        or _SERVICE_LINK_NAME.fullmatch(variable) is not None
        or (variable.endswith("_PORT") and _SERVICE_LINK_VALUE.fullmatch(value) is not None)
    )


Profile = Literal["up", "serve"]

# The only differences between the two commands: `up` serves this machine, `serve` serves its network.
_PROFILE_DEFAULTS: dict[Profile, dict[str, Any]] = {
    "up": {"bind_address": "127.0.0.1", "enable_shutdown_gracefully": False},
    "serve": {"bind_address": "0.0.0.0"},  # noqa: S104 - the contract's default of `serve`
}


class Origin(StrEnum):
    """In order of precedence, strongest first."""

    FLAG = "flag"
    VARIABLE = "variable"
    RUN_TIME = "run time"
    FILE = "file"
    ROCKETMQ_VARIABLE = "RocketMQ's variable"
    DEFAULT = "default"
    EMBEDDED = "embedded"
    """Replaces a default: the store that `up` started itself."""


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, Origin]
    kept_properties: Mapping[str, str] = field(default_factory=dict)
    """Keys of a properties file that have no effect here; secrets are masked."""
    warnings: tuple[str, ...] = ()
    """Logged once at the start."""
    file: str = ""
    """The file given with `-c`."""


def default_of(one: catalogue.Setting, profile: Profile) -> Any:
    """The value of a setting that no source contains."""
    return _PROFILE_DEFAULTS[profile].get(one.name, one.default)


def load(
    flags: Mapping[str, str | None] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    profile: Profile = "up",
) -> Loaded:
    """`flags` by setting name (None: not given). SettingsError for unknown, out-of-range or conflicting values."""
    environ = environ or {}
    content = read_file(file) if file is not None else FileContent()
    stronger = (_variables(environ), _flags(flags or {}))
    tls_content = _tls_file(content, *stronger)
    sources = (
        _rocketmq_variables(environ),
        _Source(Origin.FILE, content.known, content.where),
        _Source(Origin.FILE, tls_content.known, tls_content.where),
        *stronger,
    )
    values: dict[str, Any] = dict(_PROFILE_DEFAULTS[profile])
    origins = dict.fromkeys(catalogue.all_settings(), Origin.DEFAULT)
    for source in sources:
        for name in source.texts:
            values[name] = source.parse(name)
            origins[name] = source.origin
    settings = Settings(**values)
    check_together(settings)
    kept = content.kept | tls_content.kept
    check_kept(kept, file)
    return Loaded(
        settings,
        origins,
        {key: mask_unknown(key, value) for key, value in kept.items()},
        (*_about_kept(kept, file), *doubts(settings)),
        str(file or ""),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    origin: Origin
    texts: Mapping[str, str]
    where: Mapping[str, str]
    """How the user names the place: a flag, a variable, a key of a file."""

    def parse(self, name: str) -> Any:
        try:
            return catalogue.find(name).parse(self.texts[name])
        except InvalidInputError as error:
            raise catalogue.refused(error, self.where[name]) from None


def _flags(flags: Mapping[str, str | None]) -> _Source:
    given = {name: text for name, text in flags.items() if text is not None}
    where = {name: catalogue.find(name, "--" + name.replace("_", "-"), text).flag for name, text in given.items()}
    return _Source(Origin.FLAG, given, where)


def _variables(environ: Mapping[str, str]) -> _Source:
    texts = read_variables(environ)
    return _Source(Origin.VARIABLE, texts, {name: catalogue.find(name).variable for name in texts})


def _rocketmq_variables(environ: Mapping[str, str]) -> _Source:
    texts = read_rocketmq_variables(environ)
    return _Source(Origin.ROCKETMQ_VARIABLE, texts, {name: key for key, name in ROCKETMQ_VARIABLES.items()})


def _tls_file(content: FileContent, *stronger: _Source) -> FileContent:
    """Apache's default location is used when a file exists there; a file named by the user must exist."""
    one = catalogue.find("tls_config_file")
    places = [texts[one.name].strip() for texts in (content.known, *(s.texts for s in stronger)) if one.name in texts]
    place = places[-1] if places else one.default
    if not place or (place == one.default and not Path(place).is_file()):
        return FileContent()
    return read_tls_file(Path(place))


def _about_kept(kept: Mapping[str, str], file: Path | None) -> tuple[str, ...]:
    without_effect = sorted(kept.keys() & inert_properties().keys())
    unknown = sorted(kept.keys() - inert_properties().keys())
    warnings = []
    if without_effect:
        warnings.append(f"Properties of {file} that have no effect here, kept and shown: {', '.join(without_effect)}.")
    if unknown:
        hints = ", ".join(map(_with_hint, unknown))
        warnings.append(f"Unknown keys of {file}, kept and shown, without effect: {hints}.")
    return tuple(warnings)


def _with_hint(key: str) -> str:
    near = catalogue.nearest(key, cutoff=0.85)
    return f"{key} (did you mean {catalogue.find(near).about.properties_name or near}?)" if near else key


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
