"""A connection as the node's input sees it: it reads packets, and handles them when it is asked to.

`Connection` is the only subclass of `InputReader`. The base exists so that `input.py` need not import it,
and so that a compiled call is a jump, not a look-up.
"""

from __future__ import annotations

from abc import abstractmethod

from timebound.core.input.publisher import InputMessage, Publisher


class InputReader(Publisher):
    """A publisher whose packets are read from a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.is_arrived = False  # in the input's list of publishers with packets
        self.is_slow = False  # the last message may have taken long: check the clock
        self.is_deferred = False  # in the input's list of publishers with a long request

    @abstractmethod
    def pass_through(self, now_ns: int, until_ns: int) -> int:
        """Handle packets without queues, since no other publisher has any; return how many.

        Stops at `until_ns`; `has_packets` then tells whether there are more.
        """

    @abstractmethod
    def take_in(self, now_ns: int) -> bool:
        """Put packets into the input queues; return False if some have to wait outside."""

    @abstractmethod
    def continue_request(self, until_ns: int) -> bool:
        """Continue the request under way; return True if it is done, and later packets may follow."""

    @abstractmethod
    def has_packets(self) -> bool:
        """Whether there are packets that were read and not handled yet."""

    @abstractmethod
    def publish_queued(self, queued: InputMessage, now_ns: int) -> None:
        """Publish a message that got all its quanta."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """Log and count an internal error while this publisher was served, and end it alone."""
