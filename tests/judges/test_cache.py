"""Judgements on disk: shared, whole, and never the end of a run."""

import sqlite3
import threading

import pytest

from scope_jax.judges.cache import LabelCache


def test_what_is_kept_is_there_for_the_next_one(tmp_path):
    first = LabelCache(tmp_path / "a" / "b")
    first.put("k", ["useful", "error"])
    first.put("other", [])
    first.close()
    second = LabelCache(tmp_path / "a" / "b")
    assert second.get("k") == ["useful", "error"] and second.get("other") == [] and second.get("none") is None


def test_many_may_write_at_once_and_see_each_other(tmp_path):
    caches = [LabelCache(tmp_path) for _ in range(3)]
    errors = []

    def write(cache, name):
        try:
            for i in range(10):
                cache.put(f"{name}-{i}", [name])
                cache.put(f"shared-{i}", ["useful"])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(caches[i % 3], f"t{i}")) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and not any(cache._warned for cache in caches)
    for cache in caches:
        assert all(cache.get(f"t{t}-{i}") == [f"t{t}"] for t in range(6) for i in range(10))
        assert all(cache.get(f"shared-{i}") == ["useful"] for i in range(10))


@pytest.mark.parametrize("damage", ["file in the way", "not a database"])
def test_a_folder_that_cannot_be_used_is_refused_with_what_to_do(tmp_path, damage):
    if damage == "file in the way":
        (tmp_path / "cache").write_text("x")
    else:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "labels.sqlite").write_bytes(b"not a database " * 200)
    with pytest.raises(ValueError, match="labels.sqlite: cannot be used.*config.judge.cache"):
        LabelCache(tmp_path / "cache")


def test_a_disk_that_fails_later_costs_money_not_the_run(tmp_path, caplog):
    cache = LabelCache(tmp_path)
    other = sqlite3.connect(tmp_path / "labels.sqlite")
    other.execute("DROP TABLE labels")
    other.commit()
    cache.put("k", ["useful"])
    assert cache.get("k") is None
    assert [record.getMessage().count("may be paid for again") for record in caplog.records] == [1]  # said once


def test_an_entry_that_is_no_list_is_no_judgement(tmp_path):
    cache = LabelCache(tmp_path)
    cache._file.execute("INSERT INTO labels VALUES ('k', '{broken')")
    assert cache.get("k") is None
