"""Published figures of the real-time event channel that this one is compared with.

Schmidt and O'Ryan, "Patterns and Performance of Distributed Real-time and Embedded Publisher/Subscriber
Architectures", 2002: tables 1 and 2 in microseconds, on one 300 MHz processor. Each cell is minimum,
maximum, average; keys are suppliers and consumers.
"""

from __future__ import annotations

from typing import Final

Cell = tuple[int, int, int]

SUPPLIERS: Final = (1, 2, 10)
CONSUMERS: Final = (1, 5, 10, 20)

# Table 1: the first and the last consumer of one process.
COLLOCATED: Final[dict[tuple[int, int], tuple[Cell, Cell]]] = {
    (1, 1): ((53, 93, 58), (53, 93, 58)),
    (1, 5): ((107, 189, 114), (197, 284, 206)),
    (1, 10): ((171, 230, 183), (379, 451, 393)),
    (1, 20): ((291, 340, 300), (741, 817, 760)),
    (2, 1): ((49, 67, 51), (49, 67, 51)),
    (2, 5): ((95, 124, 100), (180, 213, 187)),
    (2, 10): ((159, 281, 170), (360, 498, 374)),
    (2, 20): ((283, 333, 299), (758, 828, 781)),
    (10, 1): ((51, 303, 72), (51, 303, 72)),
    (10, 5): ((100, 211, 113), (187, 1210, 284)),
    (10, 10): ((167, 222, 176), (369, 2545, 576)),
    (10, 20): ((211, 310, 290), (741, 4895, 1137)),
}

# Table 2: events of the consumer's own process, and of the other one.
TWO_PROCESSES: Final[dict[tuple[int, int], tuple[Cell, Cell]]] = {
    (1, 1): ((57, 71, 63), (772, 1078, 820)),
    (1, 5): ((108, 207, 155), (765, 1995, 1283)),
    (1, 10): ((170, 598, 289), (795, 5853, 3544)),
    (1, 20): ((303, 819, 534), (756, 6047, 3084)),
    (2, 1): ((50, 95, 57), (1226, 2329, 1297)),
    (2, 5): ((101, 214, 152), (1274, 4577, 2330)),
    (2, 10): ((167, 421, 274), (1226, 6676, 3448)),
    (2, 20): ((280, 821, 519), (1225, 20727, 6038)),
    (10, 1): ((49, 218, 60), (1406, 3969, 3102)),
    (10, 5): ((100, 1170, 172), (1477, 12773, 6282)),
    (10, 10): ((158, 2379, 310), (1258, 19153, 7904)),
    (10, 20): ((209, 4900, 596), (1266, 65449, 24345)),
}

# Utilisation reached before the low-priority task missed a deadline, and the shortest event spacing.
UTILISATION_SINGLE: Final = 0.99
UTILISATION_FEDERATED: Final = 0.96
SPACING_NS: Final = 20_000_000
