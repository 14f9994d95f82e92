"""Validates manifests strictly against the schemas of the Kubernetes API: an unknown field is an error.

The schemas are read directly from their wheel, because unpacked they are 17,000 files.
"""

import json
import re
import zipfile
from functools import cache
from typing import Any

from tests.chart import operator_kinds
from tests.chart.objects import Object
from tests.chart.tools import SCHEMAS

import jsonschema  # isort: skip
import referencing  # isort: skip
import referencing.jsonschema  # isort: skip

OPERATOR_API = "monitoring.coreos.com/v1"


def schema_errors(found: Object, version: str) -> list[str]:
    """`version` is a Kubernetes release such as 1.34."""
    if found["apiVersion"] == OPERATOR_API:
        validator = jsonschema.Draft7Validator(operator_kinds.SCHEMAS[found["kind"]])
    else:
        validator = _validator(found["kind"], found["apiVersion"], version)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(found)]


@cache
def _validator(kind: str, api_version: str, version: str) -> Any:
    # networking.k8s.io/v1 -> networking-v1
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = _schema(version, f"{kind.lower()}-{group}.json")
    return jsonschema.Draft7Validator(schema, registry=_registry(version))


@cache
def _registry(version: str) -> Any:
    definitions = referencing.Resource.from_contents(
        _schema(version, "_definitions.json"), default_specification=referencing.jsonschema.DRAFT202012
    )
    return referencing.Registry().with_resource("/api/_definitions.json", definitions).crawl()


def _schema(version: str, name: str) -> Any:
    return json.loads(_wheel().read(f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/{name}"))


@cache
def _wheel() -> zipfile.ZipFile:
    assert SCHEMAS is not None
    return zipfile.ZipFile(SCHEMAS)
