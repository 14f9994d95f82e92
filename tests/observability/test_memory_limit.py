"""The memory limit of the control group, in the forms of different systems."""

from pathlib import Path

import pytest

from routebook.observability.probes import NO_LIMIT, memory_limit_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, NO_LIMIT),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{256 * MIB}\n"}, 256 * MIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, NO_LIMIT),
        (
            {
                "proc/self/cgroup": "0::/system.slice/routebook.service\n",
                "sys/fs/cgroup/system.slice/routebook.service/memory.max": f"{512 * MIB}\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{300 * MIB}\n",
            },
            300 * MIB,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{64 * MIB}\n",
            },
            64 * MIB,
        ),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{128 * MIB}\n"}, 128 * MIB),
    ],
)
def test_the_lowest_limit_applies(tmp_path: Path, files: dict[str, str], limit: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit_bytes(tmp_path) == limit


def test_the_limit_of_this_machine_can_be_read() -> None:
    assert memory_limit_bytes() >= 0
