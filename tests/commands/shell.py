"""Commands as a shell runs them: the exit code, and what is written where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 20.0


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def said(self) -> str:
        """What it wrote to standard error, without frames and line breaks."""
        return " ".join(self.stderr.decode().replace("│", " ").split())


Run = Callable[..., Done]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "timebound", *map(str, words)]


def spawn(*words: str | Path, given: bytes = b"") -> Done:
    """Run a command in a process of its own, with this standard input."""
    done = subprocess.run(command(*words), input=given, capture_output=True, timeout=LIMIT_S, check=False)
    return Done(done.returncode, done.stdout, done.stderr)
