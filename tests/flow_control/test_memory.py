"""How much memory there is, and when it is short."""

from pathlib import Path

import psutil
import pytest

from flow_control.memory import MemoryAlarm, limit_bytes, memory_bytes

TOTAL = psutil.virtual_memory().total
MIB = 1024 * 1024


def test_the_alarm_ends_a_good_way_under_its_limit():
    alarm = MemoryAlarm(1000)
    readings = [999, 1001, 999, 901, 899, 1000, 1001]
    assert [alarm.update(used) for used in readings] == [
        *(False, True, False, False, True, False, True)
    ]
    assert alarm.on


CASES = {
    "no control groups": ("", {}, TOTAL),
    "version 2, the root": ("0::/", {"memory.max": 9 * MIB}, 9 * MIB),
    "version 2, its own group": ("0::/app", {"app/memory.max": 9 * MIB}, 9 * MIB),
    "version 2, a group around it": (
        "0::/machine/pod/app",
        {"machine/memory.max": 7 * MIB, "machine/pod/app/memory.max": "max"},
        7 * MIB,
    ),
    "version 2, the tightest of all": (
        "0::/pod/app",
        {"memory.max": 30 * MIB, "pod/memory.max": 20 * MIB, "pod/app/memory.max": 25 * MIB},
        20 * MIB,
    ),
    "version 2, another group": ("0::/app", {"other/memory.max": 9 * MIB}, TOTAL),
    "version 2, where it is slowed down": ("0::/app", {"app/memory.high": 8 * MIB}, 8 * MIB),
    "version 2 beside version 1": (
        "5:cpu:/\n0::/app",
        {"unified/app/memory.max": 9 * MIB},
        9 * MIB,
    ),
    "version 1": (
        "7:cpu,memory:/app/x\n1:name=systemd:/y",
        {"memory/app/memory.limit_in_bytes": 9 * MIB, "memory/y/memory.limit_in_bytes": MIB},
        9 * MIB,
    ),
    "version 1, seen from inside a container": (
        "7:memory:/docker/0123",
        {"memory/memory.limit_in_bytes": 9 * MIB},
        9 * MIB,
    ),
    "version 1, without a limit": (
        "7:memory:/app",
        {"memory/app/memory.limit_in_bytes": 9223372036854771712},
        TOTAL,
    ),
    "a group that cannot be seen": ("0::/../other", {"memory.max": 9 * MIB}, 9 * MIB),
}


@pytest.mark.parametrize(("groups", "files", "expected"), CASES.values(), ids=CASES)
def test_a_process_has_the_memory_that_its_control_groups_leave_it(
    tmp_path, groups, files, expected
):
    if groups:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert memory_bytes(tmp_path) == expected


def test_a_limit_is_a_share_of_it_or_a_number_of_bytes():
    assert limit_bytes(123_456_789) == 123_456_789
    assert limit_bytes(0.5) == int(memory_bytes() * 0.5)
    assert memory_bytes(Path("/")) <= TOTAL
