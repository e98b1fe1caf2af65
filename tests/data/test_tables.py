import json

import pyarrow
import pyarrow.parquet
import pytest

from scope_jax.data.records import RecordError
from scope_jax.data.tables import read_rows

ROWS = [{"a": "1", "b": 'two, "2"\nlines'}, {"a": "\u00e9\u6570", "b": ""}]


def values(path):
    return [row.value for row in read_rows(path)]


def test_every_format_gives_the_same_rows(tmp_path):
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    (tmp_path / "lines.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    (tmp_path / "array.JSON").write_text("\ufeff\n " + json.dumps(ROWS, indent=1), encoding="utf-8")
    (tmp_path / "r.csv").write_text(
        '\ufeffa,b\r\n1,"two, ""2""\nlines"\r\n\r\n\u00e9\u6570,\r\n', encoding="utf-8", newline=""
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "r.parquet")
    for path in sorted(tmp_path.iterdir()):
        assert values(path) == ROWS, path


def test_rows_know_the_line_they_start_on_or_their_place(tmp_path):
    (tmp_path / "r.jsonl").write_text('\n{"a": 1}\n{\n{"a": 2, "a": 3}\n')
    rows = list(read_rows(tmp_path / "r.jsonl"))
    assert [row.number for row in rows] == [2, 3, 4] and [isinstance(row.value, RecordError) for row in rows] == [
        False,
        True,
        True,
    ]
    (tmp_path / "r.csv").write_text('a,b\n"x\ny",1\n\n2,3,4\n5,6\n')
    rows = list(read_rows(tmp_path / "r.csv"))
    assert [(row.number, row.where) for row in rows] == [(n, f"{tmp_path / 'r.csv'}:{n}") for n in (2, 5, 6)]
    assert str(rows[1].value).endswith("r.csv:5: has 3 values for 2 columns")
    (tmp_path / "r.json").write_text('[{"a": 1}, 2]')
    assert [(row.number, row.where) for row in read_rows(tmp_path / "r.json")][1] == (
        2,
        f"{tmp_path / 'r.json'}: row 2",
    )
    table = pyarrow.Table.from_pylist([{"a": i} for i in range(2500)])
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet", row_group_size=700)
    rows = list(read_rows(tmp_path / "r.parquet"))
    assert [(row.number, row.value["a"]) for row in rows] == [(i + 1, i) for i in range(2500)]
    assert rows[-1].where == f"{tmp_path / 'r.parquet'}: row 2500"


def test_long_cells_are_read(tmp_path):
    (tmp_path / "r.csv").write_text("a\n" + "x" * 300_000 + "\n")
    assert values(tmp_path / "r.csv") == [{"a": "x" * 300_000}]


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("r.txt", b"{}", "has a name in none of .jsonl, .json, .csv, .parquet; unpack or rename it"),
        ("r.jsonl.gz", b"{}", "has a name in none of"),
        ("r.json", b"[1, 2", "r.json: is not JSON"),
        ("r.json", b'[{"a": 1, "a": 2}]', "field 'a' stands twice in one object"),
        ("r.csv", b"a,b\n1,\xff\n", "r.csv:2: is not UTF-8"),
        ("r.csv", b"a,a\n1,2\n", "r.csv:1: names a column twice"),
        ("r.csv", b'a,b\n1,2\n"3"x,4\n', "r.csv:3: is no CSV row .*repair its quotes"),
        ("r.csv", b'a,b\n1,2\n"3,4\n5,6\n', "r.csv:3: is no CSV row"),
        ("r.parquet", b"PAR1 but not really", "r.parquet: cannot be read as parquet after row 0"),
        ("r.parquet", b"", "cannot be read as parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_cure(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(RecordError, match=message):
        list(read_rows(tmp_path / name))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.csv: no such file; expected rows in .jsonl"):
        list(read_rows(tmp_path / "nowhere.csv"))
