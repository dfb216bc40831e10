"""What llama.cpp found to compute with, and which build of it that is."""

from __future__ import annotations

import ctypes
from hashlib import blake2b

import llama_cpp.llama_cpp as c
from llama_cpp import __version__ as binding_version
from llama_cpp._ggml import libggml

_GPU_TYPES = (1, 2)
"""GGML_BACKEND_DEVICE_TYPE_GPU and _IGPU."""


def gpus() -> list[int]:
    """Handles of the devices that layers can go to."""
    kind = libggml.ggml_backend_dev_type
    kind.argtypes, kind.restype = [ctypes.c_void_p], ctypes.c_int
    return [device for device in _devices() if kind(device) in _GPU_TYPES]


def _devices() -> list[int]:
    count, get = libggml.ggml_backend_dev_count, libggml.ggml_backend_dev_get
    count.argtypes, count.restype = [], ctypes.c_size_t
    get.argtypes, get.restype = [ctypes.c_size_t], ctypes.c_void_p
    return [get(index) for index in range(count())]


def device_names() -> tuple[str, ...]:
    """ "CPU" for the processor, "CUDA0 (NVIDIA ...)" for others."""
    name, description = libggml.ggml_backend_dev_name, libggml.ggml_backend_dev_description
    for function in (name, description):
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    names = []
    for device in _devices():
        short = name(device).decode(errors="replace")
        long = (description(device) or b"").decode(errors="replace")
        names.append(short if short == "CPU" or not long else f"{short} ({long})")
    return tuple(names)


def build() -> str:
    """What must be equal for KV to be exchangeable: the binding, the library, and what it found in the processor."""
    system = c.llama_print_system_info()
    # Thread counts stand in front and do not matter.
    features = system.partition(b"|")[2]
    digest = blake2b(features, digest_size=4).hexdigest()
    return f"llama-cpp-python {binding_version}, llama.cpp {c.llama_version().decode()}, system {digest}"
