"""What is generated of the chart: values.schema.json, the table in README.md, the snapshot of the default rendering.

`python -m tests.chart.generate` writes them; test_generated.py compares them.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.chart.declared import schema, table
from tests.chart.rendering import CHART, NEWEST, template

SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
SNAPSHOT = Path(__file__).parent / "snapshot.yaml"
BEGIN, END = "<!-- values: written by make chart-values -->", "<!-- end of values -->"


def schema_text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def readme_text() -> str:
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def snapshot_text() -> str:
    said = template(helm=NEWEST)
    assert said.code == 0, said.errors
    text = re.sub(r"\n{2,}", "\n", said.text)
    # A program of a hundred lines as one, and some thousand of a dashboard: their tests are others.
    text = re.sub(r'^( *- )"\\"\\"\\".*$', r"\1(files/register_and_look_up.py)", text, flags=re.MULTILINE)
    return re.sub(r"^( +\S+\.json: )\|\n    \{\n(?:    .*\n)*", r"\1(files/dashboard.json)\n", text, flags=re.MULTILINE)


GENERATED: dict[Path, Callable[[], str]] = {SCHEMA: schema_text, README: readme_text, SNAPSHOT: snapshot_text}


def main() -> None:
    for path, text in GENERATED.items():
        path.write_text(text())
        print(path)


if __name__ == "__main__":
    main()
