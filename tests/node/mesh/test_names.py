"""One name for a message at every broker that it passes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from tests.node.mesh.live_mesh import Mesh, read, wait_wanted

from timebound.commands._message_records import find_records
from timebound.records import parse_message_name


def tops(folder: Path) -> dict[str, str]:
    return {name: f'[trace]\nenabled = true\npath = "{folder / name}"\n' for name in "abc"}


def test_hops_of_a_message_are_joined_by_its_name(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path, {("a", "b"): "", ("b", "c"): ""}, tops=tops(tmp_path / "trace"))
    try:
        with mesh.join("a", "p") as publisher, mesh.join("a", "near") as near, mesh.join("c", "far") as far:
            far.subscribe("t")
            wait_wanted(publisher, "t")
            near.subscribe("t")
            for number in range(3):
                publisher.publish("t", b"%d" % number)
            assert sorted(one.payload for one in read(far, 3)) == [b"0", b"1", b"2"]
            assert [one.payload for one in read(near, 3)] == [b"0", b"1", b"2"]
        for broker in mesh.brokers.values():
            assert broker.stop() == 0
    finally:
        mesh.end()

    names = [row["name"] for row in named_rows(tmp_path / "trace" / "c") if row["subscriber"] == "far"]
    latest = max(names, key=lambda name: parse_message_name(name)[2])
    last = find_records(latest, [tmp_path / "trace" / "a", tmp_path / "trace" / "c"])

    assert all(name.startswith("a:") for name in names)
    assert len(set(names)) == len(names)
    # A copy that came just before its link failed may count as dropped, too (docs/mesh.md, "The account").
    delivered = [row for row in last.records if row["outcome"] != "dropped"]
    assert [(row["node"], row["hop"], row["subscriber"]) for row in delivered] == [
        ("a", 0, "near"),
        ("c", 2, "far"),
    ]


def named_rows(folder: Path) -> list[dict[str, str]]:
    rows = []
    for file in sorted(folder.glob("date=*/node=*/*.parquet")):
        for row in pq.ParquetFile(file).read().to_pylist():
            rows.append(row | {"name": f"{row['origin']}:{row['started_ns']}.{row['number']}"})
    return rows
