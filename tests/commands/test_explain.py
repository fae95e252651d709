"""`timebound explain`: what became of one message, over several brokers, and names that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.shell import Run
from tests.pipeline.traces import MS, START, dropped, row, write_file

from timebound.commands import explain

NAME = "n1:1.7"


def two_brokers(folder: Path) -> tuple[Path, Path]:
    """Traces of n1, where message 7 was published, and of n2, where it is message 2."""
    own = [row(7), dropped(7, reason="hopeless", subscriber="far", link="n2"), row(8)]
    write_file(folder / "one", own)
    passed_on = {"origin": "n1", "started_ns": 1, "number": 7, "hop": 1, "published_ns": START}
    other = [row(2, **passed_on, subscriber="near"), row(7, origin="n2"), row(7, started_ns=2)]
    write_file(folder / "two", other, node="n2")
    return folder / "one", folder / "two"


def test_records_of_all_brokers_are_joined_by_the_name(run: Run, tmp_path: Path) -> None:
    one, two = two_brokers(tmp_path)

    done = run("explain", NAME, "--trace", one, "--trace", two, "--json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["name"] == NAME
    keys = ("node", "hop", "subscriber", "outcome", "reason")
    assert [tuple(record[key] for key in keys) for record in answer["records"]] == [
        ("n1", 0, "far", "dropped", "hopeless"),
        ("n1", 0, "s", "in_time", ""),
        ("n2", 1, "near", "in_time", ""),
    ]
    assert answer["records"][2]["age_ns"] == 3 * MS


def test_people_get_a_table(run: Run, tmp_path: Path) -> None:
    one, two = two_brokers(tmp_path)

    done = run("explain", NAME, "--trace", one, "--trace", two)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "n1:1.7: 't/1' from 'p', 1024 bytes"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["n1", "0", "far"],
        ["n1", "0", "s"],
        ["n2", "1", "near"],
    ]
    assert "hopeless" in lines[2]
    assert "3.000 ms" in lines[3]


def test_names_are_printed_whole_where_the_output_is_a_file(run: Run, tmp_path: Path) -> None:
    subscriber = "auto-40ff9ab11c77d3723fcd" + 9 * "-at-the-desk"
    write_file(tmp_path / "one", [dropped(7, reason="session_expired", subscriber=subscriber)])

    done = run("explain", NAME, "--trace", tmp_path / "one")

    assert subscriber in done.stdout.decode()


def test_a_wrong_name_is_a_wrong_call_and_shows_the_right_form(run: Run, tmp_path: Path) -> None:
    two_brokers(tmp_path)

    done = run("explain", "n1/7", "--trace", tmp_path / "one")

    assert done.returncode == 2
    assert "the name of a message (<broker>:<start>.<number>, such as" in done.said


def test_a_name_that_no_record_has_fails(run: Run, tmp_path: Path) -> None:
    two_brokers(tmp_path)

    done = run("explain", "n1:1.99", "--trace", tmp_path / "one")

    assert done.returncode == 1
    assert "no record of n1:1.99 in 1 trace files" in done.said


def test_a_folder_without_a_trace_is_a_wrong_call(run: Run, tmp_path: Path) -> None:
    done = run("explain", NAME, "--trace", tmp_path)

    assert done.returncode == 2
    assert "no trace files in" in done.said


def test_files_of_older_versions_and_broken_ones_are_skipped_with_a_notice(run: Run, tmp_path: Path) -> None:
    write_file(tmp_path, [row(7)])
    write_file(tmp_path, [row(7)], name="part-0-000001.parquet", version=2)
    write_file(tmp_path, [row(7)], name="part-2-000001.parquet").write_bytes(b"PAR1")

    done = run("explain", NAME, "--trace", tmp_path, "--json")

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["records"]) == 1
    assert "1 of 3 files are older than names of messages" in done.said
    assert "1 of 3 files cannot be read" in done.said


def test_help_shows_its_examples(run: Run) -> None:
    assert explain.EXAMPLES.split("  ")[1].encode()[:40] in run("explain", "--help").stdout
