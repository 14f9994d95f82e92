"""`ROUTEBOOK_*` variables: all of them must be settings, save those named here."""

import re
from collections.abc import Mapping

from routebook.settings import catalogue

EXEMPT = {
    "ROUTEBOOK_REDIS_SERVER": "which server binary the embedded store starts",
    "ROUTEBOOK_URL": "which service the command line asks",
}
EXEMPT_PREFIXES = {"ROUTEBOOK_TEST_": "the test suite's own"}

ROCKETMQ_VARIABLES = {"ROCKETMQ_SERIALIZE_TYPE": "serialize_type"}
"""Those that Apache's name server reads too. Weaker than a file, as there: its property is asked first."""

# Kubernetes puts the address of every Service into every pod: one called routebook gives
# ROUTEBOOK_PORT=tcp://10.0.0.1:8080, one called routebook-http even gives ROUTEBOOK_HTTP_PORT.
# Nobody wrote those, so nobody is to blame for them.
_SERVICE_LINK_NAME = re.compile(r"ROUTEBOOK_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_.+)?)")
_SERVICE_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://[^ ]+:[0-9]+")


def read_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our name -> text. An unknown variable stops the start: a typing error must not be a silent default."""
    found: dict[str, str] = {}
    for variable, value in environ.items():
        if not variable.startswith(catalogue.VARIABLE_PREFIX) or _is_exempt(variable, value):
            continue
        key = variable.removeprefix(catalogue.VARIABLE_PREFIX).lower()
        catalogue.find(key, variable, value)
        found[key] = value
    return found


def read_rocketmq_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our name -> text. A blank one counts as none, as in Apache's."""
    return {name: environ[key] for key, name in ROCKETMQ_VARIABLES.items() if environ.get(key, "").strip()}


def _is_exempt(variable: str, value: str) -> bool:
    return (
        variable in EXEMPT
        or variable.startswith(tuple(EXEMPT_PREFIXES))
        or _SERVICE_LINK_NAME.fullmatch(variable) is not None
        or (variable.endswith("_PORT") and _SERVICE_LINK_VALUE.fullmatch(value) is not None)
    )
