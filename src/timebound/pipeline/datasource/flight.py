"""Calls to brokers over Arrow Flight: find a journal, read a range of it, publish rows.

A refusal of a broker is an error at once. Calls to a broker that cannot be reached, or that fails in the
middle, are repeated until `retry_timeout_s` has passed; a range continues after the last row that was
received, since the row of an offset never changes.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from timebound.errors import JournalError, JournalGap
from timebound.pipeline.datasource.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

# For calls with a short answer.
CALL_TIMEOUT_S: Final = 20.0
# For publishing a batch: the broker allows its disk a minute per chunk.
PUBLISH_TIMEOUT_S: Final = 600.0
RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class JournalState:
    """The current state of a journal: offsets [first, next), and the name of its broker."""

    server: str
    journal: str
    identity: str
    first: int
    next: int
    node: str


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one journal, read by one task."""

    server: str
    journal: str
    identity: str
    start: int
    end: int
    node: str


class FlightClient:
    """Calls to the Flight service of one broker; a context manager."""

    def __init__(self, server: str, options: Options) -> None:
        import pyarrow.flight as fl

        self._server = server
        self._options = options
        scheme = "grpc+tls" if options.tls else "grpc"
        certificates = {}
        if options.ca_file:
            certificates["tls_root_certs"] = Path(options.ca_file).read_bytes()
        self._client = fl.connect(f"{scheme}://{server}", **certificates)

    def __enter__(self) -> FlightClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def find(self) -> JournalState:
        """Find the journal that the options mean, and its offsets."""
        options = self._options
        answer = self._act("find", {"journal": options.journal, "topic": options.topic, "kind": options.kind})
        return journal_state(self._server, answer)

    def read(
        self, wanted: Range, columns: list[str], comparisons: Iterable[tuple[str, str, Any]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range that match the options, with `offset` first and `gap` last.

        Raises:
            JournalError: the broker refuses, or cannot be reached.
        """
        import pyarrow.flight as fl

        request = {
            "journal": wanted.journal,
            "identity": wanted.identity,
            "end": wanted.end,
            "topic": self._options.topic if self._options.kind == "messages" else "",
            "where": self._options.where,
            "columns": columns,
            "comparisons": [list(one) for one in comparisons],
        }
        position = wanted.start
        patience = _Patience(self._options.retry_timeout_s)
        while position < wanted.end:
            ticket = fl.Ticket(json.dumps({**request, "start": position}).encode())
            try:
                for chunk in self._client.do_get(ticket, self._call(None)):
                    batch = chunk.data
                    yield batch
                    position = _behind(batch)
                    patience = _Patience(self._options.retry_timeout_s)
                return
            except Exception as error:
                patience.wait_or_raise(error, self._server)

    def stage(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
        """Stage rows to be published later; return their name."""
        import pyarrow.flight as fl

        name = uuid.uuid4().hex
        descriptor = fl.FlightDescriptor.for_command(json.dumps({"stage": name}).encode())
        try:
            writer, _ = self._client.do_put(descriptor, schema, self._call(None))
            with writer:
                for batch in batches:
                    writer.write_batch(batch)
        except fl.FlightError as error:
            raise JournalError(f"broker {self._server}: {plain_text(error)}") from error
        return name

    def publish(self, query: str, batch: int, staged: list[str]) -> dict[str, int]:
        """Publish staged rows, unless this batch of the query already was."""
        request = {"query": query, "batch": batch, "staged": staged}
        answer: dict[str, int] = self._act("publish", request, PUBLISH_TIMEOUT_S)
        return answer

    def discard(self, staged: list[str]) -> None:
        """Remove staged rows."""
        self._act("discard", {"staged": staged})

    def _act(self, kind: str, request: dict[str, Any], timeout_s: float = CALL_TIMEOUT_S) -> Any:
        import pyarrow.flight as fl

        action = fl.Action(kind, json.dumps(request).encode())

        def call() -> Any:
            [answer] = self._client.do_action(action, self._call(timeout_s))
            return json.loads(answer.body.to_pybytes())

        return self._patiently(call)

    def _patiently(self, call: Callable[[], T]) -> T:
        patience = _Patience(self._options.retry_timeout_s)
        while True:
            try:
                return call()
            except Exception as error:
                patience.wait_or_raise(error, self._server)

    def _call(self, timeout_s: float | None) -> Any:
        import pyarrow.flight as fl

        headers = []
        if self._options.user:
            login = f"{self._options.user}:{self._options.password}".encode()
            headers.append((b"authorization", b"Basic " + base64.b64encode(login)))
        return fl.FlightCallOptions(timeout=timeout_s, headers=headers)


def journal_state(server: str, answer: Mapping[str, Any]) -> JournalState:
    """Return the state of a journal from a broker's answer."""
    return JournalState(
        server,
        answer["journal"],
        answer["identity"],
        answer["first"],
        answer["next"],
        answer.get("node") or server,  # brokers of earlier versions do not send their name
    )


class _Patience:
    """Retries of calls to a broker that cannot be reached, within a time limit."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._end_s: float | None = None

    def wait_or_raise(self, error: Exception, server: str) -> None:
        """Wait before the next attempt, or raise if there is none.

        Raises:
            JournalError: the broker refused, or the time is over.
        """
        import pyarrow.flight as fl

        now_s = time.monotonic()
        if self._end_s is None:
            self._end_s = now_s + self._limit_s
        is_transient = isinstance(error, fl.FlightUnavailableError | fl.FlightInternalError)
        if is_transient and now_s < self._end_s:
            time.sleep(RETRY_S)
            return
        if not isinstance(error, fl.FlightError):
            raise error
        trouble = f" for {self._limit_s:g} s" if is_transient else ""
        raise JournalError(f"broker {server}{trouble}: {plain_text(error)}") from error


def check_gaps(batch: pa.RecordBatch, wanted: Range) -> None:
    """Check a batch for gap rows, which stand for rows that were removed.

    Raises:
        JournalGap: there is a gap; names the first one.
    """
    gaps = batch.column("gap")
    if gaps.null_count == batch.num_rows:
        return
    for offset, gap in zip(batch.column("offset").to_pylist(), gaps.to_pylist(), strict=True):
        if gap is not None:
            raise JournalGap(
                f"journal {wanted.journal!r} of {wanted.server} no longer holds {gap} rows"
                f" from offset {offset} on;"
                ' read later offsets, keep more (bytes_max, age_max), or set option gaps to "row"',
                offset=offset,
                count=gap,
            )


def plain_text(error: Exception) -> str:
    """Return the broker's own message, without what Flight and gRPC add to it."""
    text = str(error).split(". Detail: ")[0].split(". gRPC client debug context")[0]
    return text.removeprefix("Flight returned unavailable error, with message: ").strip()


def _behind(batch: pa.RecordBatch) -> int:
    """Return the offset after the last row of a batch."""
    last = batch.num_rows - 1
    gap = batch.column("gap")[last].as_py()
    return int(batch.column("offset")[last].as_py()) + (gap if gap is not None else 1)
