"""Queue of logins that wait for a password check: fair between addresses, and bounded.

A check costs a tenth of a second of processor time, so a client with many logins would delay all others.
Here addresses take turns, and within an address user names. After some wrong passwords an address has to
wait before its next check, longer each time, so guessing is slow and costs others little. Correct passwords
that were checked before need no check and never come here.

This module only decides; the threads are in `logins.py`.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

from timebound.units import MILLISECOND, MINUTE, SECOND

T = TypeVar("T")

# At most one login waits per connection. A gateway may have many legitimate clients.
WAITING_PER_ADDRESS_MAX: Final = 256
# Clients give up after 10 to 60 s; one that waited this long is told to try again.
WAIT_NS_MAX: Final = 30 * SECOND
# Free failures: people mistype, and a device with an old password should not delay its neighbours.
FAILURES_FREE: Final = 3
DELAY_NS_MIN: Final = 100 * MILLISECOND  # after the first failure that is not free; then doubled
DELAY_NS_MAX: Final = 5 * SECOND
FORGET_NS: Final = (
    1 * MINUTE
)  # without a failure; success does not count, or one correct password would hide guesses
# Addresses whose failures are remembered, 1 KB each; beyond, the oldest is forgotten.
ADDRESSES_MAX: Final = 10_000
# A host can use any address of its IPv6 network.
_NETWORK_BITS: Final = 64


class Login(Generic[T]):
    """One login that waits or is being checked; `item` is the caller's."""

    __slots__ = ("address", "is_waiting", "item", "name", "overdue_ns")

    def __init__(self, address: str, name: str, item: T, now_ns: int) -> None:
        self.address = source_of(address)
        self.name = name
        self.item = item
        self.is_waiting = False
        self.overdue_ns = now_ns + WAIT_NS_MAX


class _Source(Generic[T]):
    """One address: its waiting logins by user name, in the order of their turns, and its failures."""

    __slots__ = ("failures", "forget_ns", "free_ns", "names", "running", "waiting")

    def __init__(self) -> None:
        self.names: OrderedDict[str, deque[Login[T]]] = OrderedDict()
        self.waiting = 0
        self.running = 0
        self.failures = 0
        self.free_ns = 0  # no check starts before
        self.forget_ns = 0

    def is_free(self, now_ns: int) -> bool:
        # One at a time after a failure: parallel checks would escape the delay.
        return self.failures == 0 or (self.running == 0 and self.free_ns <= now_ns)

    def remove(self, login: Login[T]) -> None:
        login.is_waiting = False
        self.waiting -= 1
        queue = self.names[login.name]
        queue.remove(login)
        if not queue:
            del self.names[login.name]


class LoginQueue(Generic[T]):
    """Waiting logins, and which of them is checked next."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source[T]] = {}  # with state to remember
        self._turns: OrderedDict[str, _Source[T]] = OrderedDict()  # with logins that wait
        self._arrivals: deque[Login[T]] = deque()  # in order of arrival; some no longer wait

    def push(self, login: Login[T], now_ns: int) -> Login[T] | None:
        """Add a login; return the one that is refused, if any: this or another of the same address."""
        source = self._source(login.address, now_ns)
        crowded: Login[T] | None = None
        if source.waiting >= WAITING_PER_ADDRESS_MAX:
            # The name with most waiting logins loses one, so that guessing one user's password does not
            # lock out the others at the same address.
            largest = max(source.names.values(), key=len)
            if len(largest) <= len(source.names.get(login.name, ())) + 1:
                return login
            crowded = largest[-1]
            source.remove(crowded)
        source.names.setdefault(login.name, deque()).append(login)
        source.waiting += 1
        login.is_waiting = True
        self._turns[login.address] = source
        self._arrivals.append(login)
        return crowded

    def pop(self, now_ns: int) -> Login[T] | None:
        """Return the next login to check, None if there is none; the caller reports it by `done`."""
        for address, source in self._turns.items():
            if source.is_free(now_ns):
                login = next(iter(source.names.values()))[0]
                source.remove(login)
                source.running += 1
                if login.name in source.names:
                    source.names.move_to_end(login.name)
                self._end_turn(address, source)
                return login
        return None

    def done(self, login: Login[T], *, is_right: bool, now_ns: int) -> None:
        """Record the result of a check."""
        source = self._sources[login.address]
        source.running -= 1
        if not is_right:
            source.failures += 1
            source.forget_ns = now_ns + FORGET_NS
            doubled = source.failures - FAILURES_FREE - 1
            if doubled >= 0:
                source.free_ns = now_ns + min(DELAY_NS_MIN << min(doubled, 30), DELAY_NS_MAX)
        self._forget(login.address, source)

    def take_overdue(self, now_ns: int) -> list[Login[T]]:
        """Remove and return the logins that waited too long."""
        found: list[Login[T]] = []
        while self._arrivals and (not self._arrivals[0].is_waiting or self._arrivals[0].overdue_ns <= now_ns):
            login = self._arrivals.popleft()
            if login.is_waiting:
                source = self._sources[login.address]
                source.remove(login)
                self._end_turn(login.address, source)
                found.append(login)
        return found

    def next_ns(self) -> int:
        """Return when `pop` or `take_overdue` may return something without other events; 0 = never."""
        times = [source.free_ns for source in self._turns.values() if source.running == 0]
        if self._turns:
            times.append(self._arrivals[0].overdue_ns)
        return min(times, default=0)

    def addresses(self) -> int:
        """Return the number of remembered addresses."""
        return len(self._sources)

    def _source(self, address: str, now_ns: int) -> _Source[T]:
        source = self._sources.get(address)
        if source is None:
            source = self._sources[address] = _Source()
            if len(self._sources) > ADDRESSES_MAX:
                self._forget_oldest(address)
        elif source.failures and source.forget_ns <= now_ns:
            source.failures = 0
        return source

    def _end_turn(self, address: str, source: _Source[T]) -> None:
        if source.waiting:
            self._turns.move_to_end(address)
        else:
            del self._turns[address]
            self._forget(address, source)

    def _forget(self, address: str, source: _Source[T]) -> None:
        if source.failures == 0 and source.running == 0 and source.waiting == 0:
            del self._sources[address]

    def _forget_oldest(self, new: str) -> None:
        # Waiting logins have connections, whose number is limited.
        for address, source in self._sources.items():
            if source.running == 0 and source.waiting == 0 and address != new:
                del self._sources[address]
                return


def source_of(address: str) -> str:
    """Return the source to count for: an IPv4 address, the network of an IPv6 address, or any other name."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), _NETWORK_BITS), strict=False))
