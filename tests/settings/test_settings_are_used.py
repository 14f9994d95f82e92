"""Every setting is used by the code."""

import re

from routebook.settings.catalogue import all_settings
from tests.architecture.sources import ROOT, python_files

READ_WHILE_LOADING = {"tls_config_file"}


def test_every_setting_is_used_by_the_code() -> None:
    settings = ROOT / "service" / "routebook" / "settings"
    readers = [path for path in python_files("service") if settings not in path.parents]
    words = {word for path in readers for word in re.findall(r"\w+", path.read_text())}
    assert all_settings().keys() - words - READ_WHILE_LOADING == set()
