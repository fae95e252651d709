"""What is new in a trace, and what has to be computed again for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.errors import ConfigError
from timebound.pipeline.manifest import Manifest, Partition, load_manifest

ONE, TWO = Partition("2027-01-15", "n1"), Partition("2027-01-16", "n1")


def planned(
    manifest: Manifest, present: dict[Partition, list[str]]
) -> list[tuple[Partition, int, list[str]]]:
    return [(work.partition, work.increment.number, work.increment.files) for work in manifest.plan(present)]


def test_all_is_new_at_first_and_nothing_the_second_time() -> None:
    manifest = Manifest()
    present = {TWO: ["c"], ONE: ["a", "b"]}

    assert planned(manifest, present) == [(ONE, 1, ["a", "b"]), (TWO, 1, ["c"])]

    manifest.done(manifest.plan(present))
    assert planned(manifest, present) == []


def test_a_new_file_has_its_day_computed_again_and_no_other() -> None:
    manifest = Manifest()
    manifest.done(manifest.plan({ONE: ["a"], TWO: ["c"]}))

    assert planned(manifest, {ONE: ["a"], TWO: ["c", "d"]}) == [(TWO, 1, ["c", "d"])]


def test_what_was_added_up_of_removed_files_is_kept() -> None:
    manifest = Manifest()
    manifest.done(manifest.plan({ONE: ["a", "b"]}))

    work = manifest.plan({ONE: ["b", "c"]})

    assert [(one.increment.number, one.increment.files) for one in work] == [(2, ["c"])]
    manifest.done(work)
    assert [part.files for part in manifest.increments[ONE]] == [["a", "b"], ["c"]]
    assert planned(manifest, {ONE: ["c", "d"]}) == [(ONE, 2, ["c", "d"])]
    assert planned(manifest, {}) == []


def test_bad_files_are_not_tried_again() -> None:
    assert planned(Manifest(bad_files={"a": "unreadable"}), {ONE: ["a"]}) == []


def test_a_manifest_is_read_as_it_was_saved(tmp_path: Path) -> None:
    manifest = Manifest(bad_files={"x": "unreadable: short"})
    manifest.done(manifest.plan({ONE: ["a", "b"], TWO: ["c"]}))
    manifest.save(tmp_path)

    assert load_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_no_manifest_is_an_empty_one(tmp_path: Path) -> None:
    assert load_manifest(tmp_path) == Manifest()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": 9}', "has version 9, not 1"),
        ('{"version": 1, "bad_files": {}, "parts": [{"date": "d"}]}', "cannot be read: 'node'"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_path(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "manifest.json").write_text(text)

    with pytest.raises(ConfigError, match=words) as caught:
        load_manifest(tmp_path)

    assert "manifest.json" in str(caught.value)
