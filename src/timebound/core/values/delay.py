"""Link and path delay, and the probability of arriving on time.

The time to send one KB over a link is taken as normal, N(μ, σ²); a path adds means and
variances (docs/model.md, section 2). Public values are seconds and KB = 1,024 bytes, as in
the model. The strategies call `phi` thousands of times a second: it is less precise than
`normal_cdf`, but never decreases, which the exact choice in a queue relies on.
"""

from __future__ import annotations

import math
from typing import Final

KILOBYTE: Final = 1_024
NS_PER_S: Final = 1_000_000_000

_SQRT_HALF: Final = 0.7071067811865476
# Beyond this many deviations `phi` is 0 or 1; the error of 6e-9 affects no decision.
SATURATED: Final = 5.7
# 1.5 · 2^26: adding and subtracting it rounds a float to a multiple of 2^-26. One such step changes the
# true Φ by at least 5e-16 inside ±SATURATED, more than the rounding of the fraction below (about 2e-16),
# so `phi` never decreases: z1 <= z2 gives phi(z1) <= phi(z2) exactly, in floats.
_GRID: Final = 100_663_296.0

# A link before anything was measured: 10 Mbit/s, with a deviation of half the mean.
START_MEAN_S_PER_KB: Final = 8_192.0 / 10_000_000.0
START_VARIATION: Final = 0.5
# 1 TB/s: a higher speed means that the clock did not advance.
MEAN_FLOOR_S_PER_KB: Final = 1e-9
# The measured deviation is at least this share of the mean: the kernel accepts data in bursts.
VARIATION_FLOOR: Final = 0.05
# Busy time after which a sample has the weight 1/e: a rate that changed 4× is followed in about 2 s.
MEMORY_NS: Final = 500_000_000
# On a slow link one sample may last longer than the memory; it never replaces more than this share.
SAMPLE_SHARE_MAX: Final = 0.25
# The start value has the weight of this many KB.
START_WEIGHT_KB: Final = 4.0


class LinkDelay:
    """Seconds to send one KB over one link: mean μ and variance σ².

    `jitter_s` is a deviation independent of the size, for buffers and hosts behind the link. The larger
    of it and size·σ counts.
    """

    __slots__ = ("jitter_s", "mean_s_per_kb", "variance")

    def __init__(self, mean_s_per_kb: float, variance: float, jitter_s: float = 0.0) -> None:
        if not (
            0.0 <= mean_s_per_kb < math.inf and 0.0 <= variance < math.inf and 0.0 <= jitter_s < math.inf
        ):
            raise ValueError(
                f"link delay is out of range (mean_s_per_kb={mean_s_per_kb}, variance={variance}, "
                f"jitter_s={jitter_s}); all must be finite and not negative"
            )
        self.mean_s_per_kb = mean_s_per_kb
        self.variance = variance
        self.jitter_s = jitter_s


class Path:
    """The path from the far end of a link to a subscriber; empty for one connected directly.

    `brokers` (NN) counts the brokers still to come, `last_mile_ns` (SBD) is the delay of the
    subscriber's own connection where it is not part of the link.
    """

    __slots__ = ("brokers", "last_mile_ns", "mean_s_per_kb", "variance")

    def __init__(
        self, mean_s_per_kb: float = 0.0, variance: float = 0.0, brokers: int = 0, last_mile_ns: int = 0
    ) -> None:
        if not (0.0 <= mean_s_per_kb < math.inf and 0.0 <= variance < math.inf):
            raise ValueError(
                f"path delay is out of range (mean_s_per_kb={mean_s_per_kb}, variance={variance}); "
                "both must be finite and not negative"
            )
        if brokers < 0 or last_mile_ns < 0:
            raise ValueError(
                f"path has brokers={brokers}, last_mile_ns={last_mile_ns}; neither may be negative"
            )
        self.mean_s_per_kb = mean_s_per_kb
        self.variance = variance
        self.brokers = brokers
        self.last_mile_ns = last_mile_ns

    def behind(self, link: LinkDelay) -> Path:
        """Return the path as seen from one broker earlier: means, variances and brokers add up."""
        return Path(
            self.mean_s_per_kb + link.mean_s_per_kb,
            self.variance + link.variance,
            self.brokers + 1,
            self.last_mile_ns,
        )


def link_of_rate(rate_bytes_per_s: float, variation: float = VARIATION_FLOOR) -> LinkDelay:
    """Return the delay of a link with a known rate; `variation` is σ/μ."""
    if not 0.0 < rate_bytes_per_s < math.inf:
        raise ValueError(f"link rate {rate_bytes_per_s} bytes/s is not a positive number")
    mean = KILOBYTE / rate_bytes_per_s
    return LinkDelay(mean, (variation * mean) ** 2)


def normal_cdf(z: float) -> float:
    """Return Φ(z) with a relative error of about 1e-15."""
    return 0.5 * math.erfc(-z * _SQRT_HALF)


def normal_quantile(probability: float) -> float:
    """Return the z with Φ(z) = probability, for 0 < probability < 1; by bisection, as it is rarely called."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability {probability} is not between 0 and 1")
    low = -39.0
    high = 9.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        if normal_cdf(middle) < probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def phi(z: float) -> float:
    """Return Φ(z) within 7e-9, never decreasing in z, exactly 0 or 1 beyond ±SATURATED.

    Hart's rational form of the tail (Computer Approximations, 1968, no. 5666): 16 ns compiled where
    a call of math.erfc costs 64 ns.
    """
    if z >= SATURATED:
        return 1.0
    if z <= -SATURATED:
        return 0.0
    x = z if z >= 0.0 else -z
    x = (x + _GRID) - _GRID
    above = 0.0352624965998911 * x + 0.700383064443688
    above = above * x + 6.37396220353165
    above = above * x + 33.912866078383
    above = above * x + 112.079291497871
    above = above * x + 221.213596169931
    above = above * x + 220.206867912376
    below = 0.0883883476483184 * x + 1.75566716318264
    below = below * x + 16.064177579207
    below = below * x + 86.7807322029461
    below = below * x + 296.564248779674
    below = below * x + 637.333633378831
    below = below * x + 793.826512519948
    below = below * x + 440.413735824752
    tail = math.exp(-0.5 * x * x) * above / below
    return tail if z < 0.0 else 1.0 - tail


def success(slack_s: float, size_kb: float, mean_s_per_kb: float, deviation_s_per_kb: float) -> float:
    """Return the probability that `size_kb` arrive within `slack_s` on a path of this mean and deviation.

    Without a deviation it is 0 or 1.
    """
    spare = slack_s - size_kb * mean_s_per_kb
    scale = size_kb * deviation_s_per_kb
    if scale <= 0.0:
        return 1.0 if spare >= 0.0 else 0.0
    return normal_cdf(spare / scale)


class DelayEstimator:
    """Mean and variance of the seconds per KB of one link, estimated from what was sent.

    Samples are weighted by their bytes and decay with busy time: mean = time / bytes over about
    the last `memory_ns` of sending, so an idle link keeps its estimate. The variance is that of
    the samples around the running mean, with the same weights (West's update with decaying weights).
    """

    __slots__ = ("_deviations", "_floor", "_mean", "_memory_ns", "_variation_floor", "_weight_kb", "samples")

    def __init__(
        self,
        start: LinkDelay | None = None,
        *,
        mean_floor_s_per_kb: float = MEAN_FLOOR_S_PER_KB,
        variation_floor: float = VARIATION_FLOOR,
        memory_ns: int = MEMORY_NS,
    ) -> None:
        if memory_ns <= 0:
            raise ValueError(f"memory_ns={memory_ns} is not positive")
        if start is None:
            start = LinkDelay(START_MEAN_S_PER_KB, (START_VARIATION * START_MEAN_S_PER_KB) ** 2)
        self._floor = mean_floor_s_per_kb
        self._variation_floor = variation_floor
        self._memory_ns = float(memory_ns)
        self._mean = start.mean_s_per_kb
        self._weight_kb = START_WEIGHT_KB
        self._deviations = start.variance * START_WEIGHT_KB
        self.samples = 0

    def add(self, size_bytes: int, duration_ns: int) -> None:
        """Add a sample: `size_bytes` took `duration_ns` to be sent and acknowledged.

        Samples without bytes or without time are ignored.
        """
        if size_bytes <= 0 or duration_ns <= 0:
            return
        size_kb = size_bytes / KILOBYTE
        sample = duration_ns / NS_PER_S / size_kb
        keep = math.exp(-float(duration_ns) / self._memory_ns)
        if keep < 1.0 - SAMPLE_SHARE_MAX:
            # Limit the share of one sample, so that the variance is based on several.
            keep = 1.0 - SAMPLE_SHARE_MAX
        weight = keep * self._weight_kb + size_kb
        step = sample - self._mean
        self._mean += step * size_kb / weight
        self._deviations = keep * self._deviations + size_kb * step * (sample - self._mean)
        self._weight_kb = weight
        self.samples += 1

    def mean_s_per_kb(self) -> float:
        """Return μ, not below its floor."""
        return self._mean if self._mean > self._floor else self._floor

    def variance(self) -> float:
        """Return σ², not below the square of the floor, which is a share of the mean."""
        least = self._variation_floor * self.mean_s_per_kb()
        return max(self._deviations / self._weight_kb, least * least)

    def rate_bytes_per_s(self) -> float:
        return KILOBYTE / self.mean_s_per_kb()

    def link_delay(self) -> LinkDelay:
        """Return the estimate as a value, for the queue when `has_moved`."""
        return LinkDelay(self.mean_s_per_kb(), self.variance())

    def has_moved(self, since: LinkDelay, share: float = 0.1) -> bool:
        """Whether mean or deviation differ from `since` by more than `share` of its mean.

        A queue recomputes all drop times when its link changes, so small changes are not applied.
        """
        limit = share * since.mean_s_per_kb
        if abs(self.mean_s_per_kb() - since.mean_s_per_kb) > limit:
            return True
        return abs(math.sqrt(self.variance()) - math.sqrt(since.variance)) > limit
