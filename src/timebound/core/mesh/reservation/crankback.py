"""Reserving paths with a map and crankback: one broker's part, as a machine without clock or sockets.

The subscriber's broker finds the path of least latency on the static map and sends a Hold along it towards
the publisher. Each broker checks its link back, and holds. The first broker that has the flow already, or the
publisher's own, answers with a Commit, which makes what was held permanent. A full link is reported back with
its place; the subscriber's broker excludes it and tries the next path. Who subscribes no longer is pruned.

A broker has one parent for a flow. A Commit that comes over a second way is answered with a Prune, so the
paths of a flow are always a tree. Links deliver in order, or fail: then both ends release what was on them.
What is reserved for a flow on a link grows with what is asked for, and ends when nobody behind it wants it.
"""

from __future__ import annotations

from typing import Final

from timebound.core.mesh.reservation.messages import (
    DETOUR,
    DOWN,
    FULL,
    Commit,
    Demand,
    Hold,
    Lost,
    Obstacle,
    Prune,
    Refuse,
    ReservationMessage,
    Resolution,
)
from timebound.core.mesh.reservation.network_map import Link, NetworkMap
from timebound.core.mesh.reservation.resources import NEVER_NS, LinkResources

TRIES_MAX: Final = 8
# A flow that comes by a way of up to this many times the least latency is taken where it is met.
STRETCH: Final = 1.2
# After so many longer ones were met, one of them is taken: others lie beyond them.
DETOURS_MAX: Final = 2
HOLD_NS: Final = 5_000_000_000


class FlowBranch:
    """A neighbour to which a flow is passed on: the request of the last Commit sent there."""

    __slots__ = ("request",)

    def __init__(self, request: str) -> None:
        self.request = request


class FlowState:
    """One flow at one broker: whence it comes, where it goes, and who wants it here."""

    __slots__ = ("amount", "branches", "commit", "is_here", "latency_ns", "locals", "parent")

    def __init__(self) -> None:
        self.amount = 0  # reserved on the way here
        self.parent = ""  # the neighbour it comes from; empty at the publisher's own
        self.is_here = False
        self.latency_ns = 0  # from the publisher's broker
        self.commit = ""  # request of the last Commit from the parent
        self.branches: dict[str, FlowBranch] = {}  # by neighbour
        self.locals: set[str] = set()  # requests of this broker's subscribers

    def is_wanted(self) -> bool:
        return len(self.branches) > 0 or len(self.locals) > 0


class Pending:
    """A Hold that was passed on: who sent it, and to whom it went."""

    __slots__ = ("child", "hold", "upstream")

    def __init__(self, child: str, hold: Hold, upstream: str) -> None:
        self.child = child
        self.hold = hold
        self.upstream = upstream


class Search:
    """A request of one of this broker's subscribers, while paths are tried."""

    __slots__ = ("attempt", "demand", "is_relaxed", "obstacles", "request", "tries", "upstream")

    def __init__(self, request: str, demand: Demand) -> None:
        self.request = request
        self.demand = demand
        self.is_relaxed = False  # any way of the flow is taken, however long
        self.obstacles: dict[Link, Obstacle] = {}
        self.tries = 0
        self.attempt = ""  # the name under which the present try is known to others
        self.upstream = ""

    def detours(self) -> list[Link]:
        """Return the links at which the flow was met, by a way that takes long."""
        return [link for link, obstacle in self.obstacles.items() if obstacle.reason == DETOUR]


class Reserver:
    """One broker's reservations; `send` and `answers` are what the driver has to carry out."""

    __slots__ = (
        "_attempts",
        "_flows",
        "_map",
        "_pending",
        "_room_back",
        "_searches",
        "answers",
        "links",
        "lost",
        "name",
        "sends",
    )

    def __init__(self, name: str, network: NetworkMap) -> None:
        self.name = name
        self._map = network
        self.links: dict[str, LinkResources] = {}  # to neighbours
        # What the links back have left, as what comes over them shows: no neighbour need be asked for more.
        self._room_back: dict[str, int] = {}
        self._flows: dict[str, FlowState] = {}
        self._pending: dict[str, Pending] = {}  # by attempt
        self._searches: dict[str, Search] = {}  # by request
        self._attempts: dict[str, Search] = {}
        self.sends: list[tuple[str, ReservationMessage]] = []
        self.answers: list[Resolution] = []
        self.lost: list[str] = []  # requests that were granted, and whose flow comes no more

    # --- what the driver reports -------------------------------------------------------

    def set_link(self, neighbour: str, capacity: int, capacity_back: int = 0) -> None:
        """Add a link to a neighbour, with what may be reserved on it, and on the one back; 0 = the same."""
        self.links[neighbour] = LinkResources(capacity)
        self._room_back[neighbour] = capacity_back or capacity

    def request(self, request: str, demand: Demand, now_ns: int = 0) -> None:
        """Look for a path; the answer comes in `answers`, perhaps at once."""
        search = Search(request, demand)
        self._searches[request] = search
        self._try(search, now_ns)

    def cancel(self, request: str, flow: str) -> None:
        """End a reservation, or a search for one."""
        search = self._searches.pop(request, None)
        if search is not None:
            self._attempts.pop(search.attempt, None)  # what comes for it is sent back
        state = self._flows.get(flow)
        if state is not None and request in state.locals:
            state.locals.discard(request)
            self._release_unwanted(flow, state)

    def receive(self, sender: str, message: ReservationMessage, now_ns: int = 0) -> None:
        """Handle what a neighbour says."""
        if isinstance(message, Hold):
            self._on_hold(sender, message, now_ns)
        elif isinstance(message, Commit):
            self._on_commit(sender, message, now_ns)
        elif isinstance(message, Refuse):
            self._on_refuse(sender, message, now_ns)
        elif isinstance(message, Prune):
            self._on_prune(sender, message)
        else:
            self._on_lost(sender, message.flow)

    def link_down(self, neighbour: str, now_ns: int = 0) -> None:
        """Release everything that concerned the link to a neighbour; the map must know of it already."""
        self.links.pop(neighbour, None)
        self._room_back.pop(neighbour, None)
        for attempt, pending in list(self._pending.items()):
            if pending.child == neighbour:
                del self._pending[attempt]
            elif pending.upstream == neighbour:
                down = Obstacle((neighbour, self.name), DOWN)
                self._refuse_pending(attempt, pending, (down,))
        for flow, state in list(self._flows.items()):
            if state.branches.pop(neighbour, None) is not None:
                self._release_unwanted(flow, state)
            if state.is_here and state.parent == neighbour:
                self._on_lost(neighbour, flow)
        for search in list(self._searches.values()):
            if search.upstream == neighbour:
                search.obstacles[(neighbour, self.name)] = Obstacle((neighbour, self.name), DOWN)
                self._try(search, now_ns)

    def expire(self, now_ns: int) -> None:
        """Release what was held for too long: its Commit was lost, or comes too late."""
        for resources in self.links.values():
            for _, attempt in resources.expire(now_ns):
                self._pending.pop(attempt, None)

    # --- what is so ----------------------------------------------------------------------

    def parent(self, flow: str) -> str:
        state = self._flows.get(flow)
        return "" if state is None else state.parent

    def branches(self, flow: str) -> list[str]:
        """Return the neighbours to which a flow is passed on."""
        state = self._flows.get(flow)
        return [] if state is None else sorted(state.branches)

    def is_quiet(self) -> bool:
        """Whether nothing is under way here."""
        return not self._pending and not self._searches

    # --- searching: at the subscriber's broker ------------------------------------------

    def _limit_ns(self, search: Search, path: list[str]) -> int:
        """Return how long the way may take: as the path does, or a little more than the best."""
        demand = search.demand
        if search.is_relaxed:
            return demand.latency_max_ns
        least_ns = self._map.distance_ns(demand.root, self.name)
        limit_ns = max(int(STRETCH * least_ns), self._length_ns(path))
        return min(demand.latency_max_ns, limit_ns) if demand.latency_max_ns else limit_ns

    def _length_ns(self, path: list[str]) -> int:
        length_ns = 0
        for index in range(len(path) - 1):
            length_ns += self._map.latency_ns(path[index], path[index + 1])
        return length_ns

    def _try(self, search: Search, now_ns: int) -> None:
        """Send a Hold along the best path that is left, or answer."""
        self._attempts.pop(search.attempt, None)
        demand = search.demand
        if self._is_at_hand(demand):
            self._grant(search)
            return
        for obstacle in self._full_back(demand):
            search.obstacles[obstacle.link] = obstacle
        if len(search.detours()) >= DETOURS_MAX:
            self._relax(search)
        while search.tries < TRIES_MAX and not self._comes_late(demand):
            path = self._map.path(demand.root, self.name, frozenset(search.obstacles))
            if path and self._suits(path, demand):
                self._begin(search, path)
                return
            if not self._relax(search):
                break
        del self._searches[search.request]
        obstacles = tuple(search.obstacles.values())
        self.answers.append(Resolution(search.request, False, 0, obstacles, search.tries))

    def _begin(self, search: Search, path: list[str]) -> None:
        search.tries += 1
        search.attempt = f"{search.request}.{search.tries}"
        search.upstream = path[-2]
        self._attempts[search.attempt] = search
        way = tuple(reversed(path[:-2]))
        state = self._flows.get(search.demand.flow)
        if state is not None and state.is_here and state.parent in self.links:
            search.upstream, way = state.parent, ()  # for more of it, or a shorter way behind its parent
        latency_ns = self._map.latency_ns(search.upstream, self.name)
        hold = Hold(search.attempt, search.demand, way, latency_ns, self._limit_ns(search, path))
        self.sends.append((search.upstream, hold))

    def _is_at_hand(self, demand: Demand) -> bool:
        """Whether the flow is here already, soon enough; also at the publisher's own broker."""
        if demand.root == self.name:
            self._at_root(demand.flow)
            return True
        state = self._flows.get(demand.flow)
        if state is None or not state.is_here or state.amount < demand.amount:
            return False
        return not demand.latency_max_ns or state.latency_ns <= demand.latency_max_ns

    def _comes_late(self, demand: Demand) -> bool:
        """Whether the flow is here by a way that takes too long: a broker has one way for a flow."""
        state = self._flows.get(demand.flow)
        return state is not None and state.is_here and 0 < demand.latency_max_ns < state.latency_ns

    def _at_root(self, flow: str) -> FlowState:
        """Return the flow at the broker of its publisher, where it always is."""
        state = self._flows.setdefault(flow, FlowState())
        state.is_here = True
        state.amount = NEVER_NS
        return state

    def _suits(self, path: list[str], demand: Demand) -> bool:
        return not demand.latency_max_ns or self._length_ns(path) <= demand.latency_max_ns

    def _relax(self, search: Search) -> bool:
        """Use detours, as nothing else is left; return False if none was excluded."""
        detours = search.detours()
        if not detours or search.is_relaxed:
            return False
        for link in detours:
            del search.obstacles[link]
        search.is_relaxed = True
        return True

    def _grant(self, search: Search) -> None:
        state = self._flows[search.demand.flow]
        state.locals.add(search.request)
        del self._searches[search.request]
        self._attempts.pop(search.attempt, None)
        self.answers.append(Resolution(search.request, True, state.latency_ns, (), max(search.tries, 1)))

    # --- passing on: at every broker on the way -----------------------------------------

    def _on_hold(self, sender: str, hold: Hold, now_ns: int) -> None:
        flow, amount = hold.demand.flow, hold.demand.amount
        resources = self.links.get(sender)
        if resources is None:
            return  # it has failed, and so has the attempt
        link = (self.name, sender)
        if not resources.hold(flow, hold.request, amount, now_ns + HOLD_NS):
            self._refuse(sender, hold, Obstacle(link, FULL, resources.free))
            return
        state = self._at_root(flow) if self.name == hold.demand.root else self._flows.get(flow)
        if state is not None and state.is_here:
            if hold.limit_ns and state.latency_ns + hold.latency_ns > hold.limit_ns:
                resources.release_held(flow, hold.request)
                self._refuse(sender, hold, Obstacle(link, DETOUR, resources.free))
                return
            if state.amount >= amount:
                self._pass_commit(sender, hold, state)
                return
        self._pass_hold(sender, hold, resources, "" if state is None else state.parent)

    def _pass_hold(self, sender: str, hold: Hold, resources: LinkResources, parent: str) -> None:
        """Pass a Hold on: along its way, or, where the flow comes with less, to where it comes from."""
        upstream = parent or (hold.way[0] if hold.way else "")
        if upstream not in self.links:
            resources.release_held(hold.demand.flow, hold.request)
            self._refuse(sender, hold, Obstacle((upstream, self.name), DOWN))
            return
        latency_ns = hold.latency_ns + self._map.latency_ns(upstream, self.name)
        self._pending[hold.request] = Pending(sender, hold, upstream)
        self.sends.append(
            (upstream, Hold(hold.request, hold.demand, hold.way[1:], latency_ns, hold.limit_ns))
        )

    def _refuse(self, child: str, hold: Hold, *obstacles: Obstacle) -> None:
        known = {one.link: one for one in [*obstacles, *self._full_links(hold.demand)]}
        self.sends.append((child, Refuse(hold.request, hold.demand.flow, tuple(known.values()))))

    def _full_links(self, demand: Demand) -> list[Obstacle]:
        """Return this broker's links without room for a demand: the next path need not try them."""
        there = [
            Obstacle((self.name, neighbour), FULL, resources.free)
            for neighbour, resources in self.links.items()
            if not resources.has_room(demand.flow, demand.amount)
        ]
        return there + self._full_back(demand)

    def _full_back(self, demand: Demand) -> list[Obstacle]:
        """Return the neighbours' links to this broker that have no room for a demand."""
        state = self._flows.get(demand.flow)
        if state is not None and state.is_here:
            return []
        return [
            Obstacle((neighbour, self.name), FULL, room)
            for neighbour, room in self._room_back.items()
            if room < demand.amount
        ]

    def _receive_from(self, state: FlowState, parent: str, amount: int) -> None:
        """Note that a flow comes from a neighbour, with this amount."""
        if parent in self._room_back:
            self._room_back[parent] -= amount - state.amount
        state.parent = parent
        state.amount = amount

    def _receive_no_more(self, state: FlowState) -> None:
        if state.parent in self._room_back:
            self._room_back[state.parent] += state.amount
        state.amount = 0

    def _pass_commit(self, child: str, hold: Hold, state: FlowState) -> None:
        """Give a neighbour the flow that comes here."""
        flow = hold.demand.flow
        resources = self.links[child]
        if not resources.commit(flow, hold.request, hold.demand.amount):
            self._refuse(child, hold, Obstacle((self.name, child), FULL, resources.free))
            return
        branch = state.branches.get(child)
        if branch is None:
            state.branches[child] = FlowBranch(hold.request)
        else:
            branch.request = hold.request
        latency_ns = state.latency_ns + self._map.latency_ns(self.name, child)
        self.sends.append((child, Commit(hold.request, flow, latency_ns)))

    def _on_commit(self, sender: str, commit: Commit, now_ns: int) -> None:
        flow = commit.flow
        pending = self._pending.pop(commit.request, None)
        search = self._attempts.pop(commit.request, None)
        state = self._flows.setdefault(flow, FlowState())
        is_wanted = pending is not None or search is not None
        is_second_way = state.is_here and state.parent != sender
        if not is_second_way and (is_wanted or state.is_here):
            state.is_here = True
            state.latency_ns = commit.latency_ns
            state.commit = commit.request
            amounts = [state.amount]
            if pending is not None:
                amounts.append(pending.hold.demand.amount)
            if search is not None:
                amounts.append(search.demand.amount)
            self._receive_from(state, sender, max(amounts))
        else:
            self.sends.append((sender, Prune(flow, commit.request)))
        if pending is not None:
            self._answer_pending(pending, state)
        if search is not None:
            self._answer_search(search, now_ns)
        self._release_unwanted(flow, state)

    def _answer_pending(self, pending: Pending, state: FlowState) -> None:
        hold = pending.hold
        if hold.limit_ns and state.latency_ns + hold.latency_ns > hold.limit_ns:
            link = (self.name, pending.child)
            self.links[pending.child].release_held(hold.demand.flow, hold.request)
            self._refuse(pending.child, hold, Obstacle(link, DETOUR, self.links[pending.child].free))
        else:
            self._pass_commit(pending.child, hold, state)

    def _answer_search(self, search: Search, now_ns: int) -> None:
        if self._is_at_hand(search.demand):
            self._grant(search)
        else:
            self._try(search, now_ns)

    def _on_refuse(self, sender: str, refuse: Refuse, now_ns: int) -> None:
        pending = self._pending.get(refuse.request)
        if pending is not None and pending.upstream == sender:
            self._refuse_pending(refuse.request, pending, refuse.obstacles)
            return
        search = self._attempts.get(refuse.request)
        if search is not None and search.upstream == sender:
            for obstacle in refuse.obstacles:
                search.obstacles[obstacle.link] = obstacle
            self._try(search, now_ns)

    def _refuse_pending(self, attempt: str, pending: Pending, obstacles: tuple[Obstacle, ...]) -> None:
        del self._pending[attempt]
        self.links[pending.child].release_held(pending.hold.demand.flow, attempt)
        self._refuse(pending.child, pending.hold, *obstacles)

    # --- ending --------------------------------------------------------------------------

    def _on_prune(self, sender: str, prune: Prune) -> None:
        state = self._flows.get(prune.flow)
        branch = None if state is None else state.branches.get(sender)
        if state is None or branch is None or branch.request != prune.request:
            return  # a newer Commit is under way
        del state.branches[sender]
        self.links[sender].release(prune.flow)
        self._release_unwanted(prune.flow, state)

    def _on_lost(self, sender: str, flow: str) -> None:
        """Pass on that a flow comes no more; the subscribers' brokers look for another path."""
        state = self._flows.get(flow)
        if state is None or not state.is_here or state.parent != sender:
            return
        for child in state.branches:
            self.links[child].release(flow)
            self.sends.append((child, Lost(flow)))
        self.lost += sorted(state.locals)
        self._receive_no_more(state)
        del self._flows[flow]

    def _release_unwanted(self, flow: str, state: FlowState) -> None:
        """Leave the tree of a flow that nobody here or behind wants."""
        if state.is_wanted():
            return
        if state.is_here and state.parent:
            self.sends.append((state.parent, Prune(flow, state.commit)))
            self._receive_no_more(state)
        self._flows.pop(flow, None)
