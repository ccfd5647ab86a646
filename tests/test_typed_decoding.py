"""Decoders of typed values: what they give, and that many threads may be the first to ask for one."""

import subprocess
import sys

import msgspec
import pytest

from headwater.typed_decoding import from_json, from_msgpack, from_values, json_decoder, msgpack_decoder


class Point(msgspec.Struct):
    x: int
    y: int = 2


def test_values_of_a_type() -> None:
    assert from_json(b'{"x": 1}', Point) == from_json('{"x": 1}', Point) == Point(1)
    assert from_json(b'[{"x": 1}]', list[Point]) == [Point(1)]
    assert from_msgpack(msgspec.msgpack.encode({"x": 1}), Point) == Point(1)
    assert from_values({"x": 1}, Point) == from_values({"x": "1"}, Point, strict=False) == Point(1)
    assert json_decoder(Point) is json_decoder(Point)
    assert msgpack_decoder(Point) is msgpack_decoder(Point)


@pytest.mark.parametrize("octets", [b'{"x": "1"}', b'{"y": 1}', b"{", b"1"])
def test_what_is_of_another_type_is_refused(octets: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        from_json(octets, Point)
    with pytest.raises(msgspec.ValidationError):
        from_values({"x": "1"}, Point)


_THREADS = '''
import sys, threading, types
import msgspec
from headwater import typed_decoding

sys.setswitchinterval(1e-6)
MODULE = """
from __future__ import annotations
import msgspec
class Inner(msgspec.Struct):
    x: int | None = None
    y: list[str] = []
class Outer(msgspec.Struct):
    a: int
    b: str | None = None
    c: list[Inner] = []
    d: dict[str, Inner] = {}
    e: tuple[int, ...] = ()
"""
VALUE = {"a": 1, "b": "x", "c": [{"x": 1}], "d": {"k": {"y": ["z"]}}, "e": [1]}
WAYS = (
    lambda kind: typed_decoding.from_json(msgspec.json.encode(VALUE), kind),
    lambda kind: typed_decoding.from_msgpack(msgspec.msgpack.encode(VALUE), kind),
    lambda kind: typed_decoding.from_values(VALUE, kind),
)
found = []
for number in range(300):
    module = sys.modules[f"m{number}"] = types.ModuleType(f"m{number}")
    exec(MODULE, module.__dict__)
    begin = threading.Barrier(6)

    def first(way):
        begin.wait()
        found.append(way(module.Outer).c[0].x)

    threads = [threading.Thread(target=first, args=(way,)) for way in WAYS * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(sum(found))
'''


def test_several_threads_may_be_the_first_to_decode_a_struct() -> None:
    """msgspec itself ends the process by SIGSEGV here, within some hundred types."""
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "1800"), done.stderr
