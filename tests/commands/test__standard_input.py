from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from timebound.commands._standard_input import read_all, read_lines


def piped(*pieces: bytes) -> int:
    """Return the reading end of a pipe that these pieces are written to, one by one."""
    reading, writing = os.pipe()

    def write() -> None:
        for piece in pieces:
            os.write(writing, piece)
        os.close(writing)

    threading.Thread(target=write, daemon=True).start()
    return reading


async def lines_of(descriptor: int) -> list[bytes]:
    try:
        async with asyncio.timeout(10):
            return [line async for line in read_lines(descriptor)]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b""], []),
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\nb"], [b"a", b"b"]),
        ([b"a\r\n\r\nb\r\n"], [b"a", b"", b"b"]),
        ([b"a", b"b\nc", b"\n", b"d"], [b"ab", b"c", b"d"]),
        ([b"x" * 200_000, b"y" * 200_000 + b"\n"], [b"x" * 200_000 + b"y" * 200_000]),
    ],
)
async def test_lines_are_those_of_the_input_however_it_is_cut(
    pieces: list[bytes], lines: list[bytes]
) -> None:
    assert await lines_of(piped(*pieces)) == lines


async def test_long_input_is_read_whole() -> None:
    descriptor = piped(*[bytes(range(256)) * 256] * 40)

    whole = await read_all(descriptor)

    os.close(descriptor)
    assert whole == bytes(range(256)) * 256 * 40


async def test_files_are_read_like_pipes(tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_bytes(b"a\nb\n")

    assert await lines_of(os.open(path, os.O_RDONLY)) == [b"a", b"b"]


async def test_input_that_cannot_be_read_raises(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)

    with pytest.raises(IsADirectoryError):
        await lines_of(descriptor)
