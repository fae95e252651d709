"""Links under virtual time: the transmission time of each message, drawn from the link's own stream."""

from __future__ import annotations

from random import Random
from typing import Final

from timebound.core.values.delay import KILOBYTE, LinkDelay

_NS_PER_MS: Final = 1_000_000.0
# Lower end of clipped draws, as a share of the mean: sending always takes time.
_CLIP: Final = 0.02


class SimLink:
    """One directed link. Times per KB are in milliseconds, as in the papers.

    `per_kilobyte` draws a rate for every KB, so the time of a message varies less; otherwise one
    draw is used for the whole message. Draws that are not positive are repeated, or clipped.
    """

    __slots__ = (
        "clips",
        "deviation_ms",
        "factor",
        "latency_ns",
        "loss",
        "mean_ms",
        "per_kilobyte",
        "random",
        "source",
        "target",
        "term",
    )

    def __init__(
        self,
        source: str,
        target: str,
        mean_ms: float,
        deviation_ms: float,
        random: Random,
        *,
        latency_ns: int = 0,
        loss: float = 0.0,
        per_kilobyte: bool = False,
        clips: bool = False,
    ) -> None:
        self.source = source
        self.target = target
        self.mean_ms = mean_ms
        self.deviation_ms = deviation_ms
        self.random = random
        self.latency_ns = latency_ns
        self.loss = loss
        self.per_kilobyte = per_kilobyte
        self.clips = clips
        self.factor = 1.0  # slowdown by a fault
        self.term = 0  # number of failures; what was sent in an earlier term does not arrive

    def delay(self) -> LinkDelay:
        """Return its true delay, as a perfect measurement would find it."""
        mean = self.mean_ms * self.factor / 1_000.0
        deviation = self.deviation_ms * self.factor / 1_000.0
        return LinkDelay(mean, deviation * deviation)

    def duration_ns(self, size_bytes: int) -> int:
        """Draw the time it takes to send one message, repetitions included."""
        duration_ms = self._once_ms(size_bytes / KILOBYTE)
        while self.loss > 0.0 and self.random.random() < self.loss:
            duration_ms += self._once_ms(size_bytes / KILOBYTE)
        return int(duration_ms * self.factor * _NS_PER_MS)

    def _once_ms(self, size_kb: float) -> float:
        deviation = self.deviation_ms
        if self.per_kilobyte and size_kb > 0.0:
            deviation /= float(size_kb**0.5)
        per_kb = self.random.gauss(self.mean_ms, deviation)
        if self.clips:
            least = _CLIP * self.mean_ms
            return size_kb * (per_kb if per_kb > least else least)
        while per_kb <= 0.0:
            per_kb = self.random.gauss(self.mean_ms, deviation)
        return size_kb * per_kb
