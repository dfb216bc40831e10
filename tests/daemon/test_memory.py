"""How much memory there is, in control groups that a test lays out in a directory."""

import psutil
import pytest

from superfluid.memory import memory


@pytest.fixture
def groups(tmp_path):
    """Makes a group of so much, of which so much is used, so much of that by files that can be dropped."""

    def make(path, limit, used, files=0):
        place = tmp_path / "groups" / path
        place.mkdir(parents=True, exist_ok=True)
        (place / "memory.max").write_text(f"{limit}\n")
        (place / "memory.current").write_text(f"{used}\n")
        (place / "memory.stat").write_text(f"anon 1\nactive_file {files // 2}\ninactive_file {files - files // 2}\n")

    return make


def read(tmp_path, ours):
    (tmp_path / "ours").write_text(ours)
    return memory(tmp_path / "groups", tmp_path / "ours")


def test_a_limit_of_a_group_counts_with_what_files_hold_of_it(tmp_path, groups):
    groups("service", 1000, 700, 300)
    found = read(tmp_path, "4:memory:/x\n0::/service\n")
    assert (found.total, found.free) == (1000, 600)


def test_the_limits_of_the_groups_around_count_too(tmp_path, groups):
    groups("", 5000, 4950)
    groups("slice", "max", 10)
    groups("slice/service", 1000, 100)
    found = read(tmp_path, "0::/slice/service\n")
    # 99 hundredths of the outer one are used, 10 of the inner one
    assert (found.total, found.free, found.used_percent) == (1000, 50, 99.0)


def test_a_group_past_its_limit_has_nothing_left(tmp_path, groups):
    groups("", 1000, 1300)
    found = read(tmp_path, "0::/\n")
    assert (found.total, found.free, found.used_percent) == (1000, 0, 100.0)


@pytest.mark.parametrize("ours", ["", "0::/nowhere\n", "4:memory:/limited\n", "0::/limited/odd\n"])
def test_without_a_limit_it_is_the_machine_s(tmp_path, groups, ours):
    groups("limited/odd", "soon", 1)
    assert read(tmp_path, ours).total == psutil.virtual_memory().total


def test_where_there_are_no_groups_it_is_the_machine_s(tmp_path):
    assert memory(tmp_path / "groups", tmp_path / "ours").total == psutil.virtual_memory().total
