"""Examples of docs/pipeline-commands.md."""

import json
import re
from typing import Any

from tests.architecture.sources import ROOT


def example_with(key: str) -> dict[str, Any]:
    """The JSON example that has this key."""
    text = (ROOT / "docs" / "pipeline-commands.md").read_text()
    objects = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    example: dict[str, Any]
    (example,) = [one for one in objects if key in one]
    return example
