import dataclasses
import json
import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.data.records import (
    BadLine,
    Problem,
    RecordError,
    SubQuestion,
    load_jsonl,
    parse_record,
    to_record,
    write_jsonl,
)

GOOD = {"id": "a", "problem": "What is 1 + 1?", "answer": "2"}

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
steps = st.builds(SubQuestion, texts, texts)
problem_lists = st.lists(
    st.builds(
        Problem, texts, texts, texts, st.just("") | texts, st.none() | texts, st.lists(steps, max_size=3).map(tuple)
    ),
    max_size=4,
    unique_by=lambda problem: problem.id,
)


def write(tmp_path, content):
    path = tmp_path / "problems.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


@settings(max_examples=60, deadline=None)
@given(problem_lists)
def test_writing_and_loading_gives_the_same_problems(tmp_path_factory, problems):
    path = tmp_path_factory.mktemp("round_trip") / "problems.jsonl"
    write_jsonl(path, problems)
    assert load_jsonl(path) == (problems, [])


def test_optional_fields_may_be_absent_or_null():
    assert parse_record(GOOD, "here") == Problem("a", "What is 1 + 1?", "2", "", None, ())
    assert parse_record(GOOD | {"source": None, "level": None, "scaffold": None}, "here") == parse_record(GOOD, "here")
    assert parse_record(GOOD | {"level": "", "scaffold": []}, "here") == parse_record(GOOD, "here")


def test_whole_numbers_are_taken_as_text():
    row = GOOD | {"id": 7, "answer": -2, "level": 3, "scaffold": [{"question": "q", "answer": 10**30}]}
    expected = Problem("7", "What is 1 + 1?", "-2", "", "3", (SubQuestion("q", str(10**30)),))
    assert parse_record(row, "here") == expected


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"answer": 2.50}, "answer", "as a string"),
        ({"answer": True}, "answer", "true or false"),
        ({"answer": None}, "answer", "null"),
        ({"answer": "  "}, "answer", "empty"),
        ({"answer": ["2"]}, "answer", "a list"),
        ({"problem": 5}, "problem", "a number"),
        ({"problem": "\ud83d"}, "problem", "surrogate"),
        ({"source": 0}, "source", "a number"),
        ({"level": 1.5}, "level", "as a string"),
        ({"scaffold": {"question": "q", "answer": "1"}}, "scaffold", "an object"),
        ({"scaffold": ["q"]}, "scaffold[0]", "a string"),
        ({"scaffold": [{"question": "q", "answer": "1"}, {"question": "q"}]}, "scaffold[1].answer", "missing"),
        ({"scaffold": [{"question": "q", "answer": 0.1}]}, "scaffold[0].answer", "as a string"),
        ({"scaffold": [{"question": "q", "anwser": "1"}]}, "scaffold[0].anwser", "did you mean 'answer'"),
        ({"scafold": []}, "scafold", "did you mean 'scaffold'"),
        ({"zzz": 1}, "zzz", "known fields: id, problem, answer, source, level, scaffold"),
    ],
)
def test_a_bad_field_is_named_with_its_reason(change, field, reason):
    with pytest.raises(RecordError) as caught:
        parse_record(GOOD | change, "file.jsonl:3")
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"file.jsonl:3: field {field!r} ")


@pytest.mark.parametrize("field", ["id", "problem", "answer"])
def test_a_missing_field_is_named(field):
    with pytest.raises(RecordError, match=f"'{field}' is missing"):
        parse_record({name: value for name, value in GOOD.items() if name != field}, "here")


def test_a_byte_order_mark_blank_lines_and_crlf_do_no_harm(tmp_path):
    rows = [json.dumps(GOOD | {"id": str(i)}) for i in range(3)]
    path = write(tmp_path, b"\xef\xbb\xbf" + f"{rows[0]}\r\n\r\n  \n{rows[1]}\n\n{rows[2]}".encode())
    problems, bad = load_jsonl(path)
    assert [problem.id for problem in problems] == ["0", "1", "2"]
    assert not bad


def test_only_a_newline_ends_a_line(tmp_path):
    text = "first\u2028second\u0085third\x0cfourth"
    problems, _ = load_jsonl(write(tmp_path, json.dumps(GOOD | {"problem": text}, ensure_ascii=False)))
    assert problems[0].problem == text


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        (b'{"id": "b", "problem"', "", "is not JSON"),
        (b'{"id": "b", "problem": "caf\xe9", "answer": "1"}', "", "is not UTF-8"),
        (b"[" * 100_000, "", "is not JSON"),
        (b'{"id": "b", "problem": "p", "answer": ' + b"9" * 5000 + b"}", "", "is not JSON"),
        (b'{"id": "b", "problem": "p", "answer": "1", "answer": "2"}', "answer", "stands twice"),
        (b'[{"id": "b"}]', "", "is a list; it must be an object"),
        (b'{"id": "a", "problem": "again", "answer": "1"}', "id", "which line 1 has already"),
        (b'{"id": "b", "problem": "p"}', "answer", "missing"),
    ],
)
def test_a_bad_line_stops_the_load_or_is_listed(tmp_path, line, field, reason):
    good = json.dumps(GOOD).encode()
    path = write(tmp_path, good + b"\n\n" + line + b"\n" + good.replace(b'"a"', b'"c"') + b"\n")
    with pytest.raises(RecordError) as caught:
        load_jsonl(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert reason in str(caught.value)
    problems, bad = load_jsonl(path, skip_bad=True)
    assert [problem.id for problem in problems] == ["a", "c"]
    assert [(one.line, one.field) for one in bad] == [(3, field)]
    assert str(bad[0]) == str(caught.value)


def test_bad_lines_read_well():
    assert str(BadLine("p.jsonl", 4, "answer", "is missing")) == "p.jsonl:4: field 'answer' is missing"
    assert str(BadLine("p.jsonl", 4, "", "is not JSON")) == "p.jsonl:4: is not JSON"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.jsonl"):
        load_jsonl(tmp_path / "nowhere.jsonl")


def test_an_unwritable_problem_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "problems.jsonl"
    good = parse_record(GOOD, "here")
    write_jsonl(path, [good])
    for second, reason in ((dataclasses.replace(good, id="b", answer=""), "empty"), (good, "unique")):
        with pytest.raises(RecordError, match=reason):
            write_jsonl(path, [good, second])
    assert load_jsonl(path) == ([good], [])
    assert os.listdir(tmp_path) == ["problems.jsonl"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_dies_halfway_leaves_the_old_file_alone(tmp_path, monkeypatch, call):
    path = tmp_path / "problems.jsonl"
    good = parse_record(GOOD, "here")
    write_jsonl(path, [good])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        write_jsonl(path, [dataclasses.replace(good, id="b")])
    assert load_jsonl(path) == ([good], [])
    assert os.listdir(tmp_path) == ["problems.jsonl"]


def test_a_written_file_has_ordinary_permissions(tmp_path):
    write_jsonl(tmp_path / "problems.jsonl", [parse_record(GOOD, "here")])
    (tmp_path / "plain").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("problems.jsonl", "plain")]
    assert modes[0] == modes[1]


def test_a_record_is_the_schema_in_order():
    assert list(to_record(parse_record(GOOD, "here"))) == ["id", "problem", "answer", "source", "level", "scaffold"]
