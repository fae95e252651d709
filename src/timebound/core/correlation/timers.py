"""One heap of timers whose memory is set aside before they are set.

A user acquires a timer once, sets and cancels it as often as needed, and releases it at the end. So a
handle can never mean another user's timer, and nothing is allocated while events flow: all timers are made
with the heap, or some at a time as they are acquired. Setting, cancelling and expiring cost O(log n). There
is no clock here: the caller passes the time, and wakes the heap at `next_due_ns`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# A timer that is not in the heap: acquired and idle, or free.
IDLE: Final = -1
FREE: Final = -2
# Enough for any program seen so far; at about 150 bytes a timer it bounds the memory to 150 MB.
CAPACITY_MAX: Final = 1_000_000
# Timers that `acquire` makes at once when all are taken: 64 take 3 us compiled (10 us as plain Python),
# 16,384 take 1.6 ms (3.8 ms).
MADE_AT_ONCE: Final = 64


class Timer:
    """One preallocated entry. `owner` and `tag` are the acquirer's; the heap never reads them."""

    __slots__ = ("_position", "_sequence", "due_ns", "owner", "tag")

    def __init__(self) -> None:
        self.due_ns: i64 = 0
        self.owner: object = None
        self.tag: i64 = 0
        self._sequence: i64 = 0
        self._position: i64 = FREE

    def is_set(self) -> bool:
        return self._position >= 0


class TimerHeap:
    """Timers ordered by due time; equal times expire in the order in which they were set."""

    __slots__ = ("_free", "_free_count", "_heap", "_sequence_next", "_size", "_timers", "capacity")

    def __init__(self, capacity: int = 1024, made: int | None = None) -> None:
        """Make the first `made` timers, by default all; the others are made as they are acquired."""
        if not 1 <= capacity <= CAPACITY_MAX:
            raise ValueError(f"timer capacity {capacity} is out of range (1 to {CAPACITY_MAX})")
        self.capacity: Final = capacity
        # All lists are as long as there are timers, and grow only when more are made.
        self._timers: list[Timer] = []
        self._heap: list[Timer] = []
        self._free: list[Timer] = []
        self._size: i64 = 0
        self._sequence_next: i64 = 0
        self._free_count: i64 = 0
        self._make(capacity if made is None else min(made, capacity))

    def __len__(self) -> int:
        """Return the number of timers that are set."""
        return int(self._size)

    def available(self) -> int:
        """Return the number of timers that can still be acquired."""
        return int(self._free_count) + self.capacity - len(self._timers)

    def acquire(self, owner: object, tag: int = 0) -> Timer | None:
        """Take an idle timer for `owner`, or None when all are taken."""
        if self._free_count == 0:
            self._make(min(MADE_AT_ONCE, self.capacity - len(self._timers)))
        if self._free_count == 0:
            return None
        self._free_count -= 1
        timer = self._free[self._free_count]
        assert timer._position == FREE
        timer.owner = owner
        timer.tag = tag
        timer._position = IDLE
        return timer

    def release(self, timer: Timer) -> None:
        """Release a timer, cancelling it first if it is set.

        Raises:
            ValueError: the timer was released before.
        """
        if timer._position == FREE:
            raise ValueError("timer was already released")
        self.cancel(timer)
        timer.owner = None
        timer._position = FREE
        self._free[self._free_count] = timer
        self._free_count += 1

    def set(self, timer: Timer, due_ns: int) -> None:
        """Make an acquired timer expire at `due_ns`, whether or not it was set before."""
        if timer._position == FREE:
            raise ValueError("timer was released and cannot be set; acquire one first")
        due: i64 = due_ns
        self._sequence_next += 1
        timer._sequence = self._sequence_next
        if timer._position < 0:
            timer.due_ns = due
            position = self._size
            self._size += 1
            self._sift_up(timer, position)
        elif due < timer.due_ns:
            timer.due_ns = due
            self._sift_up(timer, timer._position)
        else:
            timer.due_ns = due
            self._sift_down(timer, timer._position)

    def cancel(self, timer: Timer) -> bool:
        """Take a timer out of the heap; False when it was not set."""
        position = timer._position
        if position < 0:
            return False
        timer._position = IDLE
        self._size -= 1
        last = self._heap[self._size]
        if last is not timer:
            # The last entry fills the gap and may have to move either way.
            if self._is_before(last, timer):
                self._sift_up(last, position)
            else:
                self._sift_down(last, position)
        return True

    def next_due_ns(self) -> int | None:
        return int(self._heap[0].due_ns) if self._size > 0 else None

    def pop_expired(self, now_ns: int) -> Timer | None:
        """Take the first timer due at or before `now_ns`; it stays acquired, with its due time."""
        if self._size == 0:
            return None
        first = self._heap[0]
        now: i64 = now_ns
        if first.due_ns > now:
            return None
        self.cancel(first)
        return first

    def _make(self, count: int) -> None:
        """Add timers while none is free; the first of them is acquired first."""
        assert self._free_count == 0
        assert count >= 0
        new = [Timer() for _ in range(count)]
        self._timers.extend(new)
        self._heap.extend(new)
        self._free.extend(new)
        for index in range(count):
            self._free[count - 1 - index] = new[index]
        self._free_count = count

    def _is_before(self, left: Timer, right: Timer) -> bool:
        if left.due_ns != right.due_ns:
            return left.due_ns < right.due_ns
        return left._sequence < right._sequence

    def _sift_up(self, timer: Timer, position: i64) -> None:
        heap = self._heap
        while position > 0:
            above = (position - 1) >> 1
            parent = heap[above]
            if not self._is_before(timer, parent):
                break
            heap[position] = parent
            parent._position = position
            position = above
        heap[position] = timer
        timer._position = position

    def _sift_down(self, timer: Timer, position: i64) -> None:
        heap = self._heap
        size = self._size
        while True:
            below = 2 * position + 1
            if below >= size:
                break
            child = heap[below]
            if below + 1 < size and self._is_before(heap[below + 1], child):
                below += 1
                child = heap[below]
            if not self._is_before(child, timer):
                break
            heap[position] = child
            child._position = position
            position = below
        heap[position] = timer
        timer._position = position

    def _check(self) -> None:
        """Assert the heap's invariants; for tests."""
        assert 0 <= self._size <= len(self._timers) - self._free_count
        assert len(self._heap) == len(self._free) == len(self._timers) <= self.capacity
        assert all([timer._position == FREE for timer in self._free[: int(self._free_count)]])
        for position in range(int(self._size)):
            timer = self._heap[position]
            assert timer._position == position
            if position > 0:
                assert not self._is_before(timer, self._heap[(position - 1) >> 1])
        set_count = sum(timer.is_set() for timer in self._timers)
        assert set_count == self._size
