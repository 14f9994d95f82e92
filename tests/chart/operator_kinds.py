"""Strict schemas for the Prometheus operator's kinds, limited to the fields that the chart uses.

They are strict because an API server silently drops an unknown field; then metrics are not scraped or alerts not sent,
without an error. They follow the operator's own definitions (v0.85), which are not part of Kubernetes and thousands of
lines long. When the chart begins to use another field, add it here.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$", "minLength": 2}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": [*required], "properties": properties, "additionalProperties": False}


def _list(of: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": of}


def _kind(name: str, spec: Schema) -> Schema:
    metadata = _object({"name": TEXT, "labels": TEXTS})
    constants = {"apiVersion": {"const": "monitoring.coreos.com/v1"}, "kind": {"const": name}}
    return _object({**constants, "metadata": metadata, "spec": spec})


_SELECTOR = _object({"matchLabels": {**TEXTS, "minProperties": 1}})
_ENDPOINT = _object({"port": TEXT, "path": {"type": "string", "pattern": "^/"}, "interval": DURATION})
_RULE = _object({"alert": TEXT, "expr": TEXT, "for": DURATION, "labels": TEXTS, "annotations": TEXTS})
_GROUP = _object({"name": TEXT, "rules": _list(_RULE)})

SCHEMAS: dict[str, Schema] = {
    "PodMonitor": _kind("PodMonitor", _object({"selector": _SELECTOR, "podMetricsEndpoints": _list(_ENDPOINT)})),
    "ServiceMonitor": _kind("ServiceMonitor", _object({"selector": _SELECTOR, "endpoints": _list(_ENDPOINT)})),
    "PrometheusRule": _kind("PrometheusRule", _object({"groups": _list(_GROUP)})),
}
