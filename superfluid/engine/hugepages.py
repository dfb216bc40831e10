"""Whether big blocks of memory of this process lie in huge pages.

Weights and KV are read whole for every token, and on a processor to look up small pages takes up to a tenth of that
time. The C library asks the kernel for huge ones where it is told so in the environment that a process starts with;
who starts the worker sees to that.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

_ASKED = re.compile(r"\bglibc\.malloc\.hugetlb=1\b")
_GRANTED = re.compile(r"\[(?:always|madvise)\]")
_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def in_huge_pages() -> bool:
    """Whether the C library asks for them, and the kernel gives them to who asks."""
    if platform.libc_ver()[0] != "glibc" or not _ASKED.search(os.environ.get("GLIBC_TUNABLES", "")):
        return False
    try:
        return _GRANTED.search(_MODE.read_text()) is not None
    except OSError:
        return False
