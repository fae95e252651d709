"""Weights and contracts of the input: queues of publishers, and guarantees.

Three parts must agree at all times, and only this file changes them: the topics of the scheduler, the plan of
admission control, and the queues of each publisher. A weight filter, and the default, is a *background*
topic: its cell has a fixed length for any number of clients, so that a new client lengthens no delay bound.
An admitted flow has a topic of its own.

Whatever concerns all flows takes milliseconds, so it is done in steps (core/input/steps.py), one job after
the other (core/input/jobs.py): what a job has not finished is seen by no other. `now_ns` is the time of the
step.

A contract changes only while nothing of its client waits (the driver ensures that), so no message overtakes
another one of its topic because their queues differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from timebound.core.account.counters import Counters
from timebound.core.input.admission import AdmissionControl
from timebound.core.input.allowance import Allowance, Requesters
from timebound.core.input.bounds import UNBOUNDED, Bound
from timebound.core.input.contract import Contract, Decision, rate_of, refuse_full
from timebound.core.input.options import EntranceOptions
from timebound.core.input.policer import Gcra
from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.input.queues import InputQueue, InputTopic
from timebound.core.input.scheduler import InputScheduler
from timebound.core.input.steps import Steps, finish
from timebound.topics import matches
from timebound.units import MILLISECOND, SECOND

# The filter of all topics without a weight of their own.
DEFAULT_FILTER: Final = "#"
# No MQTT topic contains a null character, so a filter and a topic of the same name differ.
_BACKGROUND: Final = "\0"
# Quanta of a background cell. With one, topics without contracts share the rate by weight alone, whatever
# their number of clients, and delay admitted flows the least.
BACKGROUND_QUANTA: Final = 1
# Weight filters; all are compared when a publisher uses a topic for the first time.
FILTERS_MAX: Final = 256
# Topics of one publisher whose queue is cached.
TOPICS_REMEMBERED_MAX: Final = 1_024
# Every delay bound includes reading and writing: one round of the loop until a socket is read, and one until
# the decisions of the turn are written. It also includes one stall: the configured allowance, or longer if
# measured.
ROUNDS_OUTSIDE: Final = 2
# Smaller changes of measured times are noise, and not worth checking every flow.
CHANGE_MIN: Final = 0.1
# Processor time that requests may take at once: all flows after a start, advertised together.
REQUESTS_BURST_NS: Final = 2 * SECOND


class Flows:
    """Weights, contracts, and their queues."""

    def __init__(
        self, scheduler: InputScheduler[InputMessage], options: EntranceOptions, counters: Counters
    ) -> None:
        self.generation = 0  # changes when messages of a topic may belong in another queue
        self.broken: list[Contract] = []  # admitted, but no longer kept by what was measured
        self.round_ns = options.round_ns_min
        self.stall_ns = options.stall_ns_min
        outside_ns = ROUNDS_OUTSIDE * self.round_ns + self.stall_ns
        self.admission = AdmissionControl(
            quantum_ns=options.quantum_ns,
            quantum_bytes=options.quantum_bytes,
            order=options.order,
            jitter_ns=outside_ns,  # what came while the socket was not read arrives at once
            outside_ns=outside_ns,
            reserved=options.reserved_percent / 100,
            flows_max=options.flows_max,
        )
        # Processor time of requests about flows and weights, for all clients.
        self.allowance = Allowance(REQUESTS_BURST_NS, options.advertising_percent_max * SECOND / 100)
        # What each user, or address, may ask for.
        rate = options.advertisements_per_second_max
        self.requesters = Requesters(options.flows_per_user_max + rate, rate)
        self.now_ns = 0  # of the present step
        self.last_report = "{}"  # JSON
        self.reported_ns = 0  # when it was made
        self.is_report_new = False  # it has not been published
        self.is_report_due = False  # bounds have changed since
        self._options = options
        self._counters = counters
        self._scheduler = scheduler
        self._backgrounds: dict[str, InputTopic[InputMessage]] = {}  # by filter, most specific first
        self._policers: dict[tuple[str, str], Gcra] = {}  # of all flows, by client and topic
        self.set_weight(DEFAULT_FILTER, options.default_weight, 0)
        scheduler.set_lower_topic(self._backgrounds[DEFAULT_FILTER])
        for topic_filter, weight in options.weights:
            self.set_weight(topic_filter, weight, 0)
        finish(self.reporting())
        self.is_report_new = False

    # --- weights ----------------------------------------------------------------------

    def set_weight(self, topic_filter: str, weight: int, now_ns: int) -> Decision:
        """Set a weight like `setting_weight`, in one step."""
        self.now_ns = now_ns
        return finish(self.setting_weight(topic_filter, weight))

    def setting_weight(self, topic_filter: str, weight: int) -> Steps[Decision]:
        """Set the weight of a filter's topics, unless that would break a guarantee.

        Raises:
            ValueError: the weight is out of range, or there are too many filters.
        """
        name = _BACKGROUND + topic_filter
        self.settle(self.now_ns)
        known = self._backgrounds.get(topic_filter)
        if known is not None:
            decision = yield from self.admission.setting_background(name, weight, self.now_ns)
            if decision.accepted:
                self._scheduler.set_weight(known, weight, slot=decision.slot)
                self.settle(self.now_ns)
                self._store_guarantees()
            return decision
        if len(self._backgrounds) >= FILTERS_MAX:
            raise ValueError(f"too many weights are set (at most {FILTERS_MAX})")
        decision = yield from self.admission.adding_background(name, weight, BACKGROUND_QUANTA, self.now_ns)
        if decision.accepted:
            self._backgrounds[topic_filter] = self._scheduler.add_topic(
                name, decision.weight, slot=decision.slot, quanta_max=BACKGROUND_QUANTA
            )
            by_rank = sorted(self._backgrounds.items(), key=lambda item: _rank(item[0]))
            self._backgrounds = dict(by_rank)
            self.generation += 1
            self._store_guarantees()
        return decision

    def removing_weight(self, topic_filter: str, publishers: Iterable[Publisher]) -> Steps[None]:
        """Remove the weight of a filter; its topics follow the next filter that matches them.

        Raises:
            ValueError: the filter is '#', or has no weight.
        """
        if topic_filter == DEFAULT_FILTER:
            raise ValueError("the weight of '#' cannot be removed; set another one")
        topic = self._backgrounds.pop(topic_filter, None)
        if topic is None:
            known = ", ".join([repr(known) for known in self._backgrounds])
            raise ValueError(f"no weight is set for {topic_filter!r}; weights exist for {known}")
        self.generation += 1  # nothing more is queued there
        for publisher in list(publishers):
            for queue in list(publisher.client_input.queues.values()):
                if queue.topic is topic:
                    self._move_away(queue)
            yield
        # Queues of connections that were taken over are only in rings; some wait as excess.
        for queue in [*topic.ring, *self._backgrounds[DEFAULT_FILTER].ring]:
            if queue.topic is topic:
                self._move_away(queue)
        self.settle(self.now_ns)
        self._scheduler.remove_topic(topic)
        self.admission.remove_background(_BACKGROUND + topic_filter, self.now_ns)

    def _move_away(self, queue: InputQueue[InputMessage]) -> None:
        """Move a queue to the topic of its first message, and close it once it is empty.

        It moves as a whole, so that no message overtakes. Its client queues nothing new before it is empty
        (`generation`), so it soon stops taking turns beside the client's other queue there.
        """
        if len(queue) > 0:
            first = queue.items[queue.head]
            assert first is not None, "the head of a queue waits"
            self._scheduler.move_queue(queue, self.background(first.message.topic))
        self._scheduler.close_queue(queue)

    def settle(self, now_ns: int) -> None:
        """Tell the plan which new weights the scheduler has taken up; called about once a second as well."""
        for name in self.admission.unsettled():
            if not self._scheduler.is_changing(self._scheduler.topics[name]):
                self.admission.settle(name, now_ns)

    def weights(self) -> dict[str, int]:
        """Return the weights by filter, the most specific filter first."""
        return {
            topic_filter: self.admission.weight(topic.name)
            for topic_filter, topic in self._backgrounds.items()
        }

    def weight_of(self, topic: str) -> int:
        """Return the weight of a topic without a contract."""
        return self.admission.weight(self.background(topic).name)

    def background(self, topic: str) -> InputTopic[InputMessage]:
        """Return the background topic of a topic without a contract."""
        if len(self._backgrounds) > 1:
            for topic_filter, background in self._backgrounds.items():
                if matches(topic_filter, topic):
                    return background
        return self._backgrounds[DEFAULT_FILTER]

    def queue_for(self, publisher: Publisher, topic: str) -> InputQueue[InputMessage]:
        """Open the queue of a topic that is not in the publisher's cache."""
        if len(publisher.queues) >= TOPICS_REMEMBERED_MAX:
            self.forget_queues(publisher)
        queue = self._scheduler.open_queue(publisher.client_input, self.background(topic))
        publisher.queues[topic] = queue
        return queue

    def forget_queues(self, publisher: Publisher) -> None:
        """Clear a publisher's cache of queues, except those with a contract."""
        publisher.queues.clear()
        publisher.queues.update(publisher.flow_queues)

    # --- contracts --------------------------------------------------------------------

    def advertise(self, publisher: Publisher, contract: Contract, now_ns: int) -> Decision:
        """Admit a flow like `advertising`, in one step."""
        self.now_ns = now_ns
        return finish(self.advertising(publisher, contract))

    def advertising(self, publisher: Publisher, contract: Contract) -> Steps[Decision]:
        """Admit a flow and open its queue, or refuse it; the publisher must have nothing waiting."""
        topic_name = contract.topic
        is_new = topic_name not in publisher.flow_queues
        if is_new and len(publisher.flow_queues) >= self._options.flows_per_client_max:
            return refuse_full(contract, "flows_per_client_max", self._options.flows_per_client_max)
        requester = self.requesters.get(publisher.source, self.now_ns)
        if is_new and len(requester.flows) >= self._options.flows_per_user_max:
            return refuse_full(contract, "flows_per_user_max", self._options.flows_per_user_max)
        self.settle(self.now_ns)
        decision = yield from self.admission.advertising(contract, self.now_ns)
        if decision.accepted:
            self._enter(publisher, contract, decision)
        return decision

    def _enter(self, publisher: Publisher, contract: Contract, decision: Decision) -> None:
        """Give an admitted flow its cells, its queue and its policer."""
        topic_name = contract.topic
        topic = self._scheduler.topics.get(topic_name)
        if topic is None:
            topic = self._scheduler.add_topic(topic_name, decision.weight, slot=decision.slot)
        elif topic.weight != decision.weight:
            self._scheduler.set_weight(topic, decision.weight, slot=decision.slot)
            self.settle(self.now_ns)
            if self._scheduler.is_changing(topic):
                decision.reason += " once its new weight takes effect, within a cycle"
        queue = self._scheduler.open_queue(publisher.client_input, topic)
        publisher.flow_queues[topic_name] = queue
        # Looked up again: it may have been forgotten meanwhile, as long as it had no flows.
        self.requesters.get(publisher.source, self.now_ns).flows.add((contract.client, topic_name))
        publisher.queues[topic_name] = queue
        policer = Gcra(contract, mode=self._options.excess, jitter_ns=self.admission.jitter_ns)
        publisher.policers[topic_name] = policer
        self._policers[contract.client, topic_name] = policer
        self._store_guarantees()

    def unadvertise(self, publisher: Publisher, client_id: str, topic_name: str, now_ns: int) -> bool:
        """Release a flow; return False if there is none."""
        queue = publisher.flow_queues.pop(topic_name, None)
        if queue is None:
            return False
        requester = self.requesters.known(publisher.source)
        if requester is not None:
            requester.flows.discard((client_id, topic_name))
        self.settle(now_ns)
        self.admission.unadvertise(client_id, topic_name, now_ns)
        del publisher.policers[topic_name]
        del self._policers[client_id, topic_name]
        publisher.queues.pop(topic_name, None)
        topic = queue.topic
        # What still waits, after a connection was lost, continues as background.
        self._scheduler.move_queue(queue, self.background(topic_name))
        self._scheduler.close_queue(queue)
        if topic.queues_open == 0:
            self._scheduler.remove_topic(topic)
        self.broken = [flow for flow in self.broken if (flow.client, flow.topic) != (client_id, topic_name)]
        self.is_report_due = True
        return True

    def releasing(self, publisher: Publisher, client_id: str) -> Steps[None]:
        """Release all flows of a publisher that is gone, one in each step."""
        for topic_name in list(publisher.flow_queues):
            self.unadvertise(publisher, client_id, topic_name, self.now_ns)
            yield

    def close_queues(self, publisher: Publisher) -> None:
        """Close the queues of a publisher that is gone once they are empty, except those of flows."""
        publisher.queues.clear()
        kept = publisher.flow_queues.values()
        for queue in list(publisher.client_input.queues.values()):
            if queue not in kept:
                self._scheduler.close_queue(queue)

    def has_changed(self, quantum_ns: int, round_ns: int, stall_ns: int) -> bool:
        """Whether measured times differ so much from those that bounds count with that `measuring` is due."""
        outside_ns = ROUNDS_OUTSIDE * round_ns + max(stall_ns, self._options.stall_ns_min)
        admission = self.admission
        return _differs(quantum_ns, admission.quantum_ns) or _differs(outside_ns, admission.outside_ns)

    def measuring(self, quantum_ns: int, round_ns: int, stall_ns: int) -> Steps[None]:
        """Recompute every bound from what was measured; flows whose guarantee broke stay, with an alert."""
        self.round_ns = round_ns
        self.stall_ns = max(stall_ns, self._options.stall_ns_min)
        outside_ns = ROUNDS_OUTSIDE * round_ns + self.stall_ns
        for policer in self._policers.values():
            policer.set_jitter(outside_ns)
        known = {(flow.client, flow.topic) for flow in self.broken}
        self.broken = yield from self.admission.measuring(quantum_ns, outside_ns)
        self._store_guarantees()
        self.is_report_due = True
        for flow in self.broken:
            if (flow.client, flow.topic) not in known:
                self._counters.alert(
                    f"delay guarantee of flow {flow.topic!r} of client {flow.client!r} is broken: "
                    f"a quantum takes {quantum_ns / 1_000:.1f} us, a round {round_ns / MILLISECOND:.1f} ms, "
                    f"a stall {self.stall_ns / MILLISECOND:.1f} ms"
                )

    # --- guarantees -------------------------------------------------------------------

    def _store_guarantees(self) -> None:
        """Store the guarantee of each flow in its policer: messages carry it to the trace."""
        admission = self.admission
        for contract, bound in admission.last_bounds:
            policer = self._policers.get((contract.client, contract.topic))
            if policer is not None:
                policer.guaranteed_ns = admission.guaranteed_ns(contract, bound)

    def reporting(self) -> Steps[dict[str, Any]]:
        """Return the current weights, shares and bounds, and keep them as text for `$SYS`."""
        admission = self.admission
        topics = admission.topics()
        total = sum(weight for _, weight, _ in topics)
        quanta = sum(weight * count for _, weight, count in topics)
        weights = {name: weight for name, weight, _ in topics}
        bounds = yield from admission.computing_bounds()
        clients: dict[str, float] = {}
        rows: list[dict[str, Any]] = []
        for flow, bound in bounds:
            clients[flow.client] = clients.get(flow.client, 0.0) + weights[flow.topic] / quanta
            rows.append(self._row(flow, bound, weights[flow.topic], total))
            yield
        report = {
            "quantum_us": admission.quantum_ns / 1_000,
            "round_ms": self.round_ns / MILLISECOND,
            "stop_ms": self.stall_ns / MILLISECOND,
            "service_rate": SECOND / admission.quantum_ns,
            "order": admission.order,
            "reserved": admission.reserved,
            "taken": admission.share_taken(),
            "topics": [
                {"topic": name.removeprefix(_BACKGROUND), "weight": weight, "share": weight / total}
                for name, weight, _ in topics
            ],
            "clients": clients,
            "rows": rows,
        }
        self.last_report = json.dumps(report)
        self.reported_ns = self.now_ns
        self.is_report_new = True
        self.is_report_due = False
        return report

    def _row(self, flow: Contract, bound: Bound, weight: int, weights_total: int) -> dict[str, Any]:
        return {
            "topic": flow.topic,
            "client": flow.client,
            "weight": weight,
            "share": weight / weights_total,
            "rate": rate_of(flow.interval_ns),
            "burst": flow.burst,
            "size": flow.size,
            "delay_ms": flow.delay_ns / MILLISECOND or None,
            "bound_ms": None if bound.delay_ns == UNBOUNDED else bound.delay_ns / MILLISECOND,
            "dominating": bound.dominating,
            "kept": flow not in self.broken,
        }


def _rank(topic_filter: str) -> list[int]:
    """Return a sort key by which, of all filters that match a topic, the most specific comes first."""
    return [2 if level == "#" else 1 if level == "+" else 0 for level in topic_filter.split("/")]


def _differs(measured: int, used: int) -> bool:
    return abs(measured - used) > CHANGE_MIN * used
