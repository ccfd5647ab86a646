"""JSON Patch (RFC 6902): what we make gives the new octets, and means the same to another library."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.patches import DEEPEST, LARGEST, MOST_OPERATIONS, MOST_VALUES, PatchRefused
from headwater.patches.json_patch import apply, make

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-99, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5)
)
STYLES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"indent": 2},
        {"indent": "\t", "ensure_ascii": False},
        {"separators": (",", ":")},
        {"indent": 4, "sort_keys": True},
    ]
)


@st.composite
def edited(draw: st.DrawFn, value: object) -> object:
    """A value with one thing in it changed, added, removed or put elsewhere."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        items, name = list(value.items()), draw(st.sampled_from(list(value)))
        match draw(st.sampled_from(["in", "in", "out", "new", "move"])):
            case "in":
                return {**value, name: draw(edited(value[name]))}
            case "out":
                return {key: one for key, one in items if key != name}
            case "move":
                return {key: one for key, one in items if key != name} | {name: value[name]}
        items.insert(draw(st.integers(0, len(items))), (draw(st.text(max_size=4)), draw(JSON)))
        return dict(items)
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        between: list[object] = draw(
            st.sampled_from([[], [draw(JSON)], [draw(edited(value[place]))], [value[place], draw(JSON)]])
        )
        return [*value[:place], *between, *value[place + 1 :]]
    return draw(JSON)


@st.composite
def histories(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two states of one file, written by one program."""
    filler = {"filler": ["so that a patch is smaller than the file"] * 20}
    before = {"not in order": 1, "data": draw(JSON), **filler}
    after = {**before, "data": draw(edited(draw(edited(before["data"]))))}
    style, end = draw(STYLES), draw(st.sampled_from(["", "\n", "\r\n"]))
    old, new = ((json.dumps(one, **style) + end).encode() for one in (before, after))
    return old, new


@given(histories())
def test_what_is_made_gives_the_new_octets_and_means_it_to_another_library(history: tuple[bytes, bytes]) -> None:
    """RS-REL-04: applied by us, equal by octets; applied by a library, equal as JSON."""
    old, new = history
    patch = make(old, new)
    assert patch is not None or len(new) < 2_000
    if patch is not None:
        assert len(patch) < len(new)
        assert apply(old, patch) == new
        assert jsonpatch.JsonPatch.from_string(patch.decode()).apply(json.loads(old)) == json.loads(new)


@given(histories())
def test_what_another_library_makes_is_applied(history: tuple[bytes, bytes]) -> None:
    """The result means the new state; its octets are the new ones where values stand alone (the hash tells)."""
    old, new = history
    patch = jsonpatch.make_patch(json.loads(old), json.loads(new)).to_string().encode()
    assert json.loads(apply(old, patch)) == json.loads(new)


FILLER = b', "filler": "' + b"x" * 300 + b'"'
LINES = b',\n "filler": "' + b"x" * 300 + b'"\n}'
KEPT = [
    ("a byte order mark", b'\xef\xbb\xbf{"a": 1', b'\xef\xbb\xbf{"a": 2', FILLER + b"}\n"),
    ("another order", b'{"c": 1, "a": 2, "b": 3', b'{"a": 2, "c": 1, "b": 3', FILLER + b"}"),
    ("names in order", b'{"a": 1, "c": 3', b'{"a": 1, "b": 2, "c": 3', FILLER + b"}"),
    ("a new first name", b'{"c": 1, "a": 3', b'{"d": 2, "c": 1, "a": 3', FILLER + b"}"),
    ("a name with slash and tilde", b'{"a/b~c": [1]', b'{"a/b~c": [1, 2]', FILLER + b"}"),
    ("an emptied array", b'{"a": [1, 2]', b'{"a": []', FILLER + b"}"),
    ("a number of another type", b'{"a": [1, true]', b'{"a": [1.0, 1]', FILLER + b"}"),
    ("the first text that is not ASCII", b'{"a": "e"', b'{"a": "\xc3\xa9"', FILLER + b"}"),
    ("the first text that is escaped", b'{"a": "e"', b'{"a": "\\u00e9"', FILLER + b"}"),
    ("lines", b'{\n "a": [\n  1\n ]', b'{\n "a": [\n  1,\n  {}\n ]', LINES),
    ("half of a surrogate pair", b'{"a": "\\ud800"', b'{"a": ["\\ud800"]', FILLER + b"}"),
]


@pytest.mark.parametrize(("_name", "old", "new", "end"), KEPT, ids=[one[0] for one in KEPT])
def test_the_new_octets_come_out(_name: str, old: bytes, new: bytes, end: bytes) -> None:
    before, after = old + end, new + end
    patch = make(before, after)
    assert patch is not None
    assert apply(before, patch) == after


ODD = [
    ("floats in another form", b'{"a": 1.10, "b": 1', b'{"a": 1.10, "b": 2', FILLER + b"}"),
    ("a number beyond all floats", b'{"a": 1e999, "b": 1', b'{"a": 1e999, "b": 2', FILLER + b"}"),
    ("no number", b'{"a": NaN, "b": 1', b'{"a": NaN, "b": 2', FILLER + b"}"),
    ("a number with too many digits", b'{"a": ' + b"1" * 5_000 + b', "b": 1', b'{"b": 2', FILLER + b"}"),
    ("escapes that are not needed", b'{"a": "\\/", "b": 1', b'{"a": "\\/", "b": 2', FILLER + b"}"),
    (
        "some characters escaped, some not",
        b'{"a": "\\u00e9\xc3\xa9", "b": 1',
        b'{"a": "\\u00e9\xc3\xa9"',
        FILLER + b"}",
    ),
    ("lines that end with CR LF", b'{\r\n "a": 1', b'{\r\n "a": 2', LINES.replace(b"\n", b"\r\n")),
    ("a name that comes twice", b'{"x": {"a": 1, "a": 2}', b'{"x": {"a": 1, "a": 3}', FILLER + b"}"),
    ("mixed layout", b'{"a" :1 ,\n\n   "b":[ 1,2 , 3]', b'{"a" :1 ,\n\n   "b":[ 1,7 , 3]', FILLER + b"}"),
    ("another end", b'{"a": 1', b'{"a": 1', FILLER + b"} "),
    ("no JSON", b'{"a": 1', b'{"a": 2', FILLER),
    ("no UTF-8", b'{"a": "\xff"', b'{"a": "\xfe"', FILLER + b"}"),
]


@pytest.mark.parametrize(("_name", "old", "new", "end"), ODD, ids=[one[0] for one in ODD])
def test_a_text_that_is_written_oddly_has_no_patch(_name: str, old: bytes, new: bytes, end: bytes) -> None:
    """A serializer would write it anew: it is transferred whole."""
    assert make(old + end, new + end) is None
    with pytest.raises(PatchRefused):
        apply(old + end, b'[{"op":"add","path":"/b","value":2}]')


NO_PATCH = [
    ("another layout", b'{"a": 1' + FILLER + b"}", b'{\n "a": 1' + LINES),
    ("another end of line", b'{"a": 1' + FILLER + b"}", b'{"a": 1' + FILLER + b"}\n"),
    ("all is other", b"[%s]" % b",".join([b"1"] * 200), b"[%s]" % b",".join([b"2"] * 200)),
    ("a file that is too deep", b"[" * 500 + b"1" + b"]" * 500, b"[" * 500 + b"2" + b"]" * 500),
    ("a file that is far too deep", b"[" * 200_000 + b"]" * 200_000, b"[" * 200_000 + b"1" + b"]" * 200_000),
]


@pytest.mark.parametrize(("_name", "old", "new"), NO_PATCH, ids=[one[0] for one in NO_PATCH])
def test_what_no_patch_is_made_of(_name: str, old: bytes, new: bytes) -> None:
    assert make(old, new) is None


OLD = b'{"a": {"b": [1, 2, {"c": null}]}, "s": "x", "n": 1}'
APPLIED = [
    ('[{"op":"add","path":"/a/b/-","value":3}]', b'{"a": {"b": [1, 2, {"c": null}, 3]}, "s": "x", "n": 1}'),
    ('[{"op":"add","path":"/a/b/0","value":0}]', b'{"a": {"b": [0, 1, 2, {"c": null}]}, "s": "x", "n": 1}'),
    ('[{"op":"remove","path":"/a/b/0"}]', b'{"a": {"b": [2, {"c": null}]}, "s": "x", "n": 1}'),
    ('[{"op":"remove","path":"/a"}]', b'{"s": "x", "n": 1}'),
    ('[{"op":"move","from":"/n","path":"/m"}]', b'{"a": {"b": [1, 2, {"c": null}]}, "s": "x", "m": 1}'),
    ('[{"op":"move","from":"/s","path":"/s"}]', b'{"a": {"b": [1, 2, {"c": null}]}, "n": 1, "s": "x"}'),
    ('[{"op":"copy","from":"/n","path":"/a/b/1"}]', b'{"a": {"b": [1, 1, 2, {"c": null}]}, "s": "x", "n": 1}'),
    ('[{"op":"test","path":"/n","value":1.0},{"op":"replace","path":"","value":7}]', b"7"),
    ('[{"op":"add","path":"","value":{}},{"op":"copy","from":"","path":"/a"}]', b'{"a": {}}'),
    ('[{"op":"replace","path":"/a","value":"\u00e9"}]', '{"a": "\u00e9", "s": "x", "n": 1}'.encode()),
]


@pytest.mark.parametrize(("patch", "new"), APPLIED)
def test_operations(patch: str, new: bytes) -> None:
    assert apply(OLD, patch.encode()) == new


REFUSED = {
    "no array": "{}",
    "no JSON": "[",
    "no object": "[1]",
    "an unknown operation": '[{"op":"grow","path":"/n"}]',
    "no path": '[{"op":"remove"}]',
    "no value": '[{"op":"add","path":"/x"}]',
    "an operation named twice": '[{"op":"remove","op":"add","path":"/n","value":1}]',
    "nothing there": '[{"op":"remove","path":"/q"}]',
    "something else there": '[{"op":"remove","path":"/n/0"}]',
    "beyond the end": '[{"op":"add","path":"/a/b/9","value":1}]',
    "an index with a zero before it": '[{"op":"replace","path":"/a/b/01","value":1}]',
    "a huge index": '[{"op":"replace","path":"/a/b/999999999999","value":1}]',
    "a pointer without slash": '[{"op":"remove","path":"n"}]',
    "a wrong escape": '[{"op":"remove","path":"/n~2"}]',
    "a failed test": '[{"op":"test","path":"/n","value":true}]',
    "the whole removed": '[{"op":"remove","path":""}]',
    "a value moved into itself": '[{"op":"move","from":"/a","path":"/a/b/0"}]',
    "more operations than are taken": json.dumps([{"op": "test", "path": "/n", "value": 1}] * (MOST_OPERATIONS + 1)),
    "a copy that doubles": json.dumps(
        [{"op": "add", "path": "/d", "value": ["x" * 100]}]
        + [{"op": "copy", "from": "/d", "path": "/d/-"} for _ in range(60)]
    ),
    "a pointer too deep": '[{"op":"remove","path":"' + "/a" * 5_000 + '"}]',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with pytest.raises(PatchRefused):
        apply(OLD, REFUSED[name].encode())


def test_ten_thousand_operations_on_one_path_take_bounded_time() -> None:
    """At the front of a long array each moves all of it; each `test` of the whole ends where the two differ."""
    old = b"[" + b",".join([b"1"] * (MOST_VALUES - 1)) + b"]"
    first = json.dumps([{"op": "add", "path": "/0", "value": 1}] * MOST_OPERATIONS).encode()
    began = time.process_time()
    assert len(apply(old, first)) == len(old) + 2 * MOST_OPERATIONS
    moves = [{"op": "add", "path": "/a/0", "value": []}, {"op": "move", "from": "/a", "path": "/a"}] * 5_000
    assert len(json.loads(apply(b'{"a":[]}', json.dumps(moves).encode()))["a"]) == 5_000
    assert time.process_time() - began < 20


def test_a_value_that_is_put_into_another_again_and_again_is_refused() -> None:
    into = [{"op": "add", "path": "/b", "value": {}}, {"op": "move", "from": "/a", "path": "/b/a"}]
    nested = [*into, {"op": "move", "from": "/b", "path": "/a"}] * 3_000
    with pytest.raises(PatchRefused):
        apply(b'{"a":{}}', json.dumps(nested).encode())
    old = b"[" * DEEPEST + b"1" + b"]" * DEEPEST
    assert apply(old, json.dumps([{"op": "remove", "path": "/0" * DEEPEST}]).encode()) == old.replace(b"1", b"")
    with pytest.raises(PatchRefused):
        apply(b"[" + old + b"]", json.dumps([{"op": "remove", "path": "/0" * (DEEPEST + 1)}]).encode())


def test_a_long_string_takes_no_memory_for_each_character() -> None:
    old = b'{"a": "' + b"x" * (8 << 20) + rb"\n" * (2 << 20) + b'", "b": 1}'
    script = (
        "import resource, sys\n"
        "from headwater.patches.json_patch import apply\n"
        "resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))\n"
        """sys.stdout.buffer.write(apply(sys.stdin.buffer.read(), b'[{"op":"replace","path":"/b","value":2}]'))"""
    )
    done = subprocess.run([sys.executable, "-c", script], input=old, capture_output=True, check=True)
    assert done.stdout == old[:-2] + b"2}"


@pytest.mark.parametrize("value", ["1", "{}", '""'])
def test_more_values_than_are_held_are_refused(value: str) -> None:
    old = f"[{','.join([value] * (MOST_VALUES + 1))}]".encode()
    assert len(old) < LARGEST
    with pytest.raises(PatchRefused, match="too many values"):
        apply(old, b'[{"op":"remove","path":"/0"}]')
    with pytest.raises(PatchRefused, match="too many values"):
        apply(b"[1]", b'[{"op":"add","path":"/0","value":' + old + b"}]")


def test_of_a_text_that_is_mostly_indentation_no_more_is_made_than_it_may_have() -> None:
    deep = b"[" * 400 + b",".join([b"1"] * 100_000) + b"]" * 400
    with pytest.raises(PatchRefused, match="too large"):
        apply(b'{\n    "a": 1\n}', b'[{"op":"replace","path":"/a","value":' + deep + b"}]")


def test_deep_texts_are_compared_in_bounded_memory() -> None:
    """Not one text of all for each level that is descended into."""
    deep = [json.dumps(["x" * 50] * 100_000 + [one]) for one in (1, 2)]
    old, new = ("[" * 45 + one + "]" * 45 for one in deep)
    script = (
        "import resource, sys\n"
        "from headwater.patches.json_patch import make\n"
        "resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))\n"
        "sys.stdout.buffer.write(make(*sys.stdin.buffer.read().split(b'|')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=f"{old}|{new}".encode(), capture_output=True, check=True
    )
    assert apply(old.encode(), done.stdout) == new.encode()
