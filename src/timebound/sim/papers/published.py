"""Numbers printed in the two papers, to compare with simulated ones.

Their figures have no printed points, so only numbers from their texts are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from timebound.sim.papers.grid import GridRow


@dataclass(frozen=True, slots=True)
class Published:
    """One printed number: `measure` of `strategy`, or its ratio to that of `versus`."""

    paper: str
    figure: int
    scenario: str
    rate: float
    measure: str  # delivery_rate, earning or traffic
    strategy: str
    value: float
    versus: str = ""


PUBLISHED: Final = (
    Published("002", 5, "ssd", 15.0, "earning", "eb", 5.0, "fifo"),
    Published("002", 5, "ssd", 15.0, "earning", "eb", 10.0, "rl"),
    Published("002", 5, "ssd", 15.0, "traffic", "eb", 1.23, "fifo"),
    Published("002", 5, "ssd", 15.0, "traffic", "eb", 1.64, "rl"),
    Published("002", 6, "psd", 15.0, "delivery_rate", "eb", 0.401),
    Published("002", 6, "psd", 15.0, "delivery_rate", "fifo", 0.225),
    Published("002", 6, "psd", 15.0, "delivery_rate", "rl", 0.116),
    Published("002", 6, "psd", 15.0, "traffic", "eb", 1.17, "fifo"),
    Published("002", 6, "psd", 15.0, "traffic", "eb", 1.60, "rl"),
    Published("001", 7, "net", 1.0, "earning", "mtep", 1.47, "fix"),
    Published("001", 7, "net", 1.0, "earning", "mtep", 3.16, "lrt"),
    Published("001", 7, "net", 1.0, "earning", "mtep", 2.84, "fcfs"),
    Published("001", 7, "net", 1.0, "delivery_rate", "mtep", 1.33, "fix"),
    Published("001", 7, "net", 1.0, "delivery_rate", "mtep", 2.26, "lrt"),
    Published("001", 7, "net", 1.0, "delivery_rate", "mtep", 1.97, "fcfs"),
    Published("001", 9, "net", 1.0, "delivery_rate", "mtep", 0.9084),
    Published("001", 9, "net", 1.0, "earning", "mtep", 348_287.2),
)
# Where only a range is printed: by figure, scenario and measure.
RANGES: Final = {
    (9, "net", "delivery_rate"): (0.8885, 0.9084),
    (9, "net", "earning"): (332_928.0, 348_287.2),
}


@dataclass(frozen=True, slots=True)
class PointSummary:
    """Mean and standard deviation over the seeds of one point of a figure."""

    paper: str
    figure: int
    scenario: str
    rate: float
    strategy: str
    weight: float
    reading: str
    seeds: int
    delivery_rate: float
    delivery_rate_deviation: float
    earning: float
    earning_deviation: float
    traffic: float
    traffic_deviation: float


def summarise(rows: list[GridRow]) -> list[PointSummary]:
    """Summarise each point over its seeds, in order of first appearance."""
    points: dict[tuple[str, int, str, float, str, float, str], list[GridRow]] = {}
    for row in rows:
        key = (row.paper, row.figure, row.scenario, row.rate, row.strategy, row.weight, row.reading)
        points.setdefault(key, []).append(row)
    return [_summary(members) for members in points.values()]


def _summary(rows: list[GridRow]) -> PointSummary:
    first = rows[0]
    rates = [row.delivery_rate for row in rows]
    earnings = [row.earning for row in rows]
    traffic = [float(row.traffic) for row in rows]
    return PointSummary(
        paper=first.paper,
        figure=first.figure,
        scenario=first.scenario,
        rate=first.rate,
        strategy=first.strategy,
        weight=first.weight,
        reading=first.reading,
        seeds=len(rows),
        delivery_rate=mean(rates),
        delivery_rate_deviation=deviation(rates),
        earning=mean(earnings),
        earning_deviation=deviation(earnings),
        traffic=mean(traffic),
        traffic_deviation=deviation(traffic),
    )


def compare(summaries: list[PointSummary]) -> list[tuple[Published, float]]:
    """Return every printed number that these runs cover, with the simulated value."""
    compared = []
    for printed in PUBLISHED:
        own = _value(summaries, printed, printed.strategy)
        versus = _value(summaries, printed, printed.versus) if printed.versus else 1.0
        if own is not None and versus:
            compared.append((printed, own / versus))
    return compared


def _value(summaries: list[PointSummary], printed: Published, strategy: str) -> float | None:
    found = []
    for summary in summaries:
        if (summary.paper, summary.scenario, summary.rate, summary.strategy) == (
            printed.paper,
            printed.scenario,
            printed.rate,
            strategy,
        ) and summary.figure == printed.figure:
            found.append(float(getattr(summary, printed.measure)))
    # Where the weight was varied, the papers print the best result.
    return max(found) if found else None


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def deviation(numbers: list[float]) -> float:
    """Return the standard deviation of a sample; 0 for a single number."""
    if len(numbers) < 2:
        return 0.0
    centre = mean(numbers)
    return float((sum((number - centre) ** 2 for number in numbers) / (len(numbers) - 1)) ** 0.5)
