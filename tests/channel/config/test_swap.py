"""Following a changed file while events flow: what changed is swapped, and a mistake changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import AF_INET, socket
from threading import Event as Signal
from threading import Thread
from threading import enumerate as enumerate_threads

import pytest
from tests.channel.doubles import LIMIT_S, push_all, wait_until

from timebound.channel import (
    AsyncioDispatch,
    ChannelBuilder,
    ChannelError,
    ChannelFileError,
    Event,
    EventChannel,
    Lanes,
    Reactive,
    Report,
    Timing,
    every,
)
from timebound.channel.base.consumer import BEST_EFFORT
from timebound.channel.config.swap import reconfigure_from
from timebound.units import MILLISECOND

REACTIVE = '[dispatching]\nmodule = "reactive"\n'
LANES = '[dispatching]\nmodule = "lanes"\nreal_time = false\n'
FILTERING = "[filtering]\n"
TIMERS = '[timers]\nmodule = "manual"\n'
AHEAD_MAX = 500
SWAPS = 6


class Files:
    """A channel's file in one folder, written anew for each change."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "channel.toml"
        self.reports: list[Report] = []

    def write(self, text: str) -> Path:
        self.path.write_text(text, encoding="utf-8")
        return self.path

    def build(self, text: str) -> EventChannel:
        return ChannelBuilder.from_file(self.write(text)).on_report(self.reports.append).build()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def operation(name: str = "o", **keys: str) -> str:
    lines = [f"{key} = {value}" for key, value in keys.items()]
    return "\n".join(["[[operations]]", f'name = "{name}"', *lines]) + "\n"


def modules_of(channel: EventChannel) -> tuple[object, object, object]:
    return channel._filtering, channel.dispatcher, channel._timing


# --- modules ----------------------------------------------------------------------------


def test_same_file_swaps_nothing(files: Files) -> None:
    text = FILTERING + LANES + TIMERS + operation(depends_on='"a"', period='"20ms"', cost='"1ms"')
    with files.build(text) as channel:
        channel.connect_operation("o", lambda e: None)
        before = modules_of(channel)
        channel.reconfigure(files.write("# only a comment is new\n" + text))

        assert modules_of(channel) == before


@pytest.mark.parametrize(
    ("changed", "swapped"),
    [
        (REACTIVE + TIMERS, (True, False, False)),
        (FILTERING + LANES + TIMERS, (False, True, False)),
        (FILTERING + REACTIVE + '[timers]\nmodule = "thread"\nreal_time = false\n', (False, False, True)),
        (FILTERING + REACTIVE, (False, False, True)),
        ("", (True, False, True)),
    ],
    ids=["filtering", "dispatching", "timers", "no timers", "all left out"],
)
def test_only_modules_whose_section_changed_are_swapped(
    changed: str, swapped: tuple[bool, bool, bool], files: Files
) -> None:
    with files.build(FILTERING + REACTIVE + TIMERS) as channel:
        before = modules_of(channel)
        channel.reconfigure(files.write(changed))
        after = modules_of(channel)

    assert tuple(old is not new for old, new in zip(before, after, strict=True)) == swapped


def test_configuration_is_made_once_and_then_follows_its_file(files: Files) -> None:
    with ChannelBuilder("channel").build() as channel:
        made = reconfigure_from(channel, None, files.write(REACTIVE))
        followed = reconfigure_from(channel, made, files.write(LANES))

        assert followed is made
        assert made.file.config.dispatching.module == "lanes"
        with pytest.raises(ChannelFileError):
            reconfigure_from(channel, made, files.write("name = 7"))
        assert made.file.config.dispatching.module == "lanes"


def test_file_may_be_given_to_a_channel_that_was_built_without_one(files: Files) -> None:
    with ChannelBuilder("channel").build() as channel:
        channel.reconfigure(str(files.write(FILTERING + LANES + TIMERS + operation(depends_on='"a"'))))
        got: list[object] = []
        channel.connect_operation("o", lambda e: got.append(e.payload))
        push_all(channel.supplier("s", "a", "b"), "a", [1, 2])
        wait_until(lambda: got == [1, 2])

        assert isinstance(channel.dispatcher, Lanes)


def test_module_that_the_program_put_in_place_gives_way_to_the_next_file(files: Files) -> None:
    with files.build(FILTERING + REACTIVE) as channel:
        channel.reconfigure(dispatching=Lanes(real_time=False))
        channel.reconfigure(files.path)
        assert isinstance(channel.dispatcher, Reactive)
        reactive = channel.dispatcher
        channel.reconfigure(files.path)
        assert channel.dispatcher is reactive


def test_channel_that_does_not_run_follows_no_file(files: Files) -> None:
    channel = files.build("")

    with pytest.raises(ChannelError, match="is not running"):
        channel.reconfigure(files.path)


def flow_while(channel: EventChannel, got: list[object], swap: Callable[[int], object]) -> list[object]:
    """Push numbers while swapping; answer all that were pushed, once they have arrived."""
    supplier = channel.supplier("s", "a", "b")
    pushed: list[object] = []
    enough = Signal()

    def push_on() -> None:
        while not enough.is_set():
            supplier.push("a", len(pushed))
            pushed.append(len(pushed))
            # Not so far ahead that a queue would overflow, which is allowed to lose events.
            wait_until(lambda: len(pushed) - len(got) < AHEAD_MAX)

    thread = Thread(target=push_on)
    thread.start()
    for number in range(SWAPS):
        before = len(pushed)
        swap(number)
        wait_until(lambda before=before: len(pushed) > before + 50)  # type: ignore[misc]  # untyped default
    enough.set()
    thread.join(LIMIT_S)
    wait_until(lambda: len(got) >= len(pushed))
    return pushed


@pytest.mark.parametrize(
    "texts",
    [
        [FILTERING + LANES, FILTERING + REACTIVE],
        [FILTERING + LANES, FILTERING + LANES + "threads = 2\n"],
        [FILTERING + LANES, LANES],
        [FILTERING + LANES, FILTERING + LANES + "[[lanes]]\nthreads = 3\n"],
    ],
    ids=["dispatching", "threads", "filtering", "lanes"],
)
def test_no_event_is_lost_doubled_or_out_of_order(texts: list[str], files: Files) -> None:
    got: list[object] = []
    with files.build(texts[0]) as channel:
        channel.connect(lambda e: got.append(e.payload))
        pushed = flow_while(
            channel, got, lambda number: channel.reconfigure(files.write(texts[(number + 1) % 2]))
        )

    assert got == pushed


def test_threads_of_lanes_change_without_a_swap(files: Files) -> None:
    text = FILTERING + LANES + operation(depends_on='"a"', period='"20ms"', cost='"1ms"')
    with files.build(text) as channel:
        channel.connect_operation("o", lambda e: None)
        lanes = channel.dispatcher
        assert isinstance(lanes, Lanes)
        channel.reconfigure(files.write(text + '[[lanes]]\nperiod = "20ms"\nthreads = 3\n'))

        assert channel.dispatcher is lanes
        (lane,) = lanes._context.ranked
        assert (lane.threads, len(lane.workers)) == (3, 3)
        channel.reconfigure(files.write(text))
        assert lane.threads == 1


# --- operations -------------------------------------------------------------------------


def test_operation_changes_its_period_while_events_flow(files: Files) -> None:
    def text(number: int) -> str:
        timing = (
            {}
            if number % 3 == 2
            else {"period": f'"{10 * (number + 1)}ms"', "cost": '"1ms"', "criticality": str(number)}
        )
        return FILTERING + LANES + operation(depends_on='"a"', **timing)

    got: list[object] = []
    seen: list[int] = []
    with files.build(text(0)) as channel:
        consumer = channel.connect_operation("o", lambda e: got.append(e.payload))

        def swap(number: int) -> None:
            channel.reconfigure(files.write(text(number + 1)))
            seen.append(consumer.lane_key)

        pushed = flow_while(channel, got, swap)

        assert [report.name for report in channel.scheduler.report()] == ["o"]
    assert got == pushed
    assert seen == [
        20 * MILLISECOND,
        BEST_EFFORT,
        40 * MILLISECOND,
        50 * MILLISECOND,
        BEST_EFFORT,
        70 * MILLISECOND,
    ]


def test_operations_that_no_longer_fit_are_refused_and_nothing_changes(files: Files) -> None:
    def text(cost: str) -> str:
        return (
            FILTERING
            + LANES
            + operation("a", period='"10ms"', cost='"4ms"')
            + operation("b", period='"20ms"', cost=f'"{cost}"')
        )

    with files.build(text("8ms")) as channel:
        for name in ("a", "b"):
            channel.connect_operation(name, lambda e: None)
        before = modules_of(channel), [report.cost_ns_stated for report in channel.scheduler.report()]
        with pytest.raises(ChannelFileError, match=r":9: operations\[1\]: operation 'b' is not schedulable"):
            channel.reconfigure(files.write(text("15ms")))

        assert (modules_of(channel), [r.cost_ns_stated for r in channel.scheduler.report()]) == before
        channel.reconfigure(files.write(text("9ms")))
        assert [r.cost_ns_stated for r in channel.scheduler.report()] == [4 * MILLISECOND, 9 * MILLISECOND]


def test_operations_may_swap_what_they_need(files: Files) -> None:
    def text(first: str, second: str) -> str:
        return (
            LANES
            + operation("a", period='"10ms"', cost=f'"{first}"')
            + operation("b", period='"10ms"', cost=f'"{second}"')
        )

    with files.build(text("8ms", "1ms")) as channel:
        for name in ("a", "b"):
            channel.connect_operation(name, lambda e: None)
        channel.reconfigure(files.write(text("1ms", "8ms")))

        costs = {report.name: report.cost_ns_stated for report in channel.scheduler.report()}
    assert costs == {"a": 1 * MILLISECOND, "b": 8 * MILLISECOND}


def test_operation_changes_what_it_waits_for(files: Files) -> None:
    got: list[list[object]] = []
    with files.build(FILTERING + operation(depends_on='{ all = ["a", "b"] }')) as channel:
        channel.connect_operation("o", lambda e: got.append([part.payload for part in e.events]))
        supplier = channel.supplier("s", "a", "b", "c")
        dispatcher = channel.dispatcher
        supplier.push("a", "forgotten")
        channel.reconfigure(files.write(FILTERING + operation(depends_on='{ all = ["b", "c"] }')))
        for number, event_type in enumerate("bac"):
            supplier.push(event_type, number)
        channel.reconfigure(files.write(FILTERING + operation(depends_on='"c"')))
        supplier.push("c", 3)
        supplier.push("a", 4)
        channel.reconfigure(files.write(FILTERING + operation()))
        supplier.push("a", 5)

        assert channel.dispatcher is dispatcher
    assert got == [[0, 2], [3], [5]]


def test_events_on_their_way_are_judged_by_the_new_dependency(files: Files) -> None:
    """What waits to be filtered keeps the mask of its old route; its bits mean other leaves now."""
    got: list[object] = []
    entered, release = Signal(), Signal()

    def where(event: Event) -> bool:
        entered.set()
        return release.wait(LIMIT_S)

    with files.build(FILTERING + LANES + operation(depends_on='{ any = ["a", "b"] }')) as channel:
        channel.connect_operation("o", lambda e: got.append((e.type, e.payload)), where=where)
        supplier = channel.supplier("s", "a", "b", "c")
        supplier.push("a", 0)
        assert entered.wait(LIMIT_S)
        supplier.push("a", 1)
        supplier.push("b", 2)
        channel.reconfigure(files.write(FILTERING + LANES + operation(depends_on='{ any = ["b", "c"] }')))
        release.set()
        supplier.push("c", 3)
        supplier.push("a", 4)
        wait_until(lambda: ("c", 3) in got)

    # The first was past the look at its mask, or not.
    assert [entry for entry in got if entry != ("a", 0)] == [("b", 2), ("c", 3)]


def test_dependency_changes_while_events_flow(files: Files) -> None:
    texts = [
        FILTERING + LANES + operation(depends_on='{ any = ["a", "b"] }'),
        FILTERING + LANES + operation(depends_on='{ any = [{ all = ["b", "b"] }, "b", "a"] }'),
    ]
    got: list[object] = []
    with files.build(texts[0]) as channel:
        channel.connect_operation("o", lambda e: got.append(e.payload))
        pushed = flow_while(
            channel, got, lambda number: channel.reconfigure(files.write(texts[(number + 1) % 2]))
        )

    assert got == pushed


def test_timers_of_a_changed_dependency_start_anew(files: Files) -> None:
    now_ns = 0
    got: list[str] = []
    text = FILTERING + TIMERS + "timers_max = 2\n"
    path = files.write(text + operation(depends_on='{ every = "10ms" }'))
    with ChannelBuilder.from_file(path).clock(lambda: now_ns).build() as channel:
        channel.connect_operation("o", lambda e: got.append(e.type))
        channel.reconfigure(
            files.write(text + operation(depends_on='{ any = [{ every = "30ms" }, { every = "40ms" }] }'))
        )
        now_ns = 20 * MILLISECOND
        assert channel.wake(now_ns) == 0
        now_ns = 30 * MILLISECOND
        assert channel.wake(now_ns) == 1
        with pytest.raises(
            ChannelFileError, match=r"cannot be applied: 1 more timer is needed than there are"
        ):
            channel.reconfigure(
                files.write(
                    text
                    + operation(depends_on='{ any = [{ every = "1s" }, { every = "2s" }, { every = "3s" }] }')
                )
            )
        assert channel.statistics().timers_set == 2
        channel.reconfigure(files.write(text + operation(depends_on='"a"')))
        assert channel.statistics().timers_set == 0


def test_limits_of_a_connected_operation_change(files: Files) -> None:
    with files.build(operation()) as channel:
        consumer = channel.connect_operation("o", lambda e: None)
        channel.reconfigure(files.write(operation(queue_max="7", evict_after="8", evict_slow="true")))

        assert (consumer.queue_max, consumer.evict_after, consumer.evict_slow) == (7, 8, True)


def test_supplier_of_an_operation_changes_what_it_declares(files: Files) -> None:
    got: list[tuple[str, str]] = []
    with files.build(operation(supplies='["a"]')) as channel:
        channel.connect(lambda e: got.append((e.type, e.source)))
        supplier = channel.operation_supplier("o")
        supplier.push("a")
        channel.reconfigure(files.write(operation(supplies='["b"]', source='"x"')))
        supplier.push("b")
        with pytest.raises(ChannelError, match="has not declared event type 'a'"):
            supplier.push("a")

    assert got == [("a", "o"), ("b", "x")]


# --- mistakes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("name = 3\nnam = 4\n", r":1: name: must be text.*\n.*:2: nam: unknown key"),
        (
            'name = "other"\n' + FILTERING + TIMERS,
            r":1: name: cannot change from 'channel' to 'other' while the channel runs",
        ),
        (
            FILTERING + TIMERS + "timers_max = 9\n" + operation(),
            r":4: timers.timers_max: cannot change from 1024 to 9 while",
        ),
        (FILTERING + TIMERS, r"operations: 'o' is missing but has a connected consumer; disconnect it first"),
        (
            FILTERING + TIMERS + operation(),
            r"operations: 'o' supplies nothing but has a connected supplier; disconnect it first",
        ),
        (
            FILTERING + '[dispatching]\nmodule = "asyncio"\n' + TIMERS + operation(supplies='["x"]'),
            r"cannot be applied: asyncio dispatching needs a running event loop",
        ),
        (
            FILTERING + LANES + '[timers]\nmodule = "asyncio"\n' + operation(supplies='["x"]'),
            r"cannot be applied: asyncio timers need a running event loop",
        ),
        (
            FILTERING + LANES + operation(supplies='["x"]'),
            r"cannot be applied: consumers have timers, so the channel needs a timer module",
        ),
    ],
)
def test_mistaken_file_changes_nothing(changed: str, expected: str, files: Files) -> None:
    got: list[object] = []
    text = FILTERING + TIMERS + operation(depends_on='"a"', supplies='["x"]')
    with files.build(text) as channel:
        consumer = channel.connect_operation("o", lambda e: got.append(e.payload))
        channel.operation_supplier("o")
        channel.connect(lambda e: None, every("1h"))
        before = modules_of(channel)
        with pytest.raises(ChannelFileError, match=expected):
            channel.reconfigure(files.write(changed))

        assert modules_of(channel) == before
        push_all(channel.supplier("s", "a"), "a", [1, 2])
        assert got == [1, 2]
        channel.reconfigure(files.write(text))
        assert modules_of(channel) == before
        assert consumer.generation == 0


async def test_coroutine_of_an_operation_keeps_asyncio(files: Files) -> None:
    async def consumer(event: Event) -> None: ...

    asyncio_text = '[dispatching]\nmodule = "asyncio"\n' + operation()
    with files.build(asyncio_text) as channel:
        channel.connect_operation("o", consumer)
        with pytest.raises(ChannelFileError, match="'o' is a coroutine function; it needs asyncio"):
            channel.reconfigure(files.write(operation()))

        assert isinstance(channel.dispatcher, AsyncioDispatch)


def test_modules_that_were_started_for_a_refused_file_are_closed_again(files: Files) -> None:
    def text(cost: str, module: str) -> str:
        timers = '[timers]\nmodule = "thread"\nreal_time = false\n'
        return (
            timers
            + module
            + operation(period='"10ms"', cost=f'"{cost}"')
            + operation("p", period='"9ms"', cost='"2ms"')
        )

    with files.build(text("1ms", REACTIVE)) as channel:
        for name in ("o", "p"):
            channel.connect_operation(name, lambda e: None)
        before = modules_of(channel)
        with pytest.raises(ChannelFileError, match="not schedulable"):
            channel.reconfigure(
                files.write(
                    text("9ms", LANES).replace("thread", "manual").replace("real_time = false\n", "", 1)
                )
            )

        assert modules_of(channel) == before
        assert type(channel._timing) is not Timing
        wait_until(lambda: not [t for t in enumerate_threads() if t.name == "timebound-lane-watch"])


# --- gateways ---------------------------------------------------------------------------


def gateway(address: str, kind: str = "listen", more: str = "") -> str:
    return f'[[gateways]]\nkind = "{kind}"\naddress = "{address}"\n{more}'


def test_gateways_that_stay_are_kept_and_others_open_and_close(files: Files, tmp_path: Path) -> None:
    with files.build(gateway("./a") + gateway("./b")) as channel:
        first, second = channel.gateways()
        channel.reconfigure(files.write(gateway("./c") + gateway("./a")))
        third, kept = channel.gateways()

        assert kept is first
        assert third.address == str(tmp_path / "c")
        assert second._closing.is_set()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "channel.toml"]


def test_gateway_changes_at_the_same_address(files: Files, tmp_path: Path) -> None:
    with files.build(gateway("./a")) as channel:
        (before,) = channel.gateways()
        channel.reconfigure(files.write(gateway("./a", more="priority = 3\n")))
        (after,) = channel.gateways()

        assert before._closing.is_set()
        assert not after._closing.is_set()
        assert (tmp_path / "a").exists()


def test_gateway_that_cannot_be_opened_leaves_everything_as_it_was(files: Files, tmp_path: Path) -> None:
    with files.build(gateway("./a") + gateway("./b")) as channel, socket(AF_INET) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        before = modules_of(channel)
        port = taken.getsockname()[1]
        changed = (
            LANES + gateway("./c") + gateway("./a", more="priority = 3\n") + gateway(f"127.0.0.1:{port}")
        )
        with pytest.raises(ChannelFileError, match=r":13: gateways\[2\].address: .* cannot be opened"):
            channel.reconfigure(files.write(changed))

        assert modules_of(channel) == before
        assert [gateway.address for gateway in channel.gateways()] == [
            str(tmp_path / "a"),
            str(tmp_path / "b"),
        ]
        assert not any(gateway._closing.is_set() for gateway in channel.gateways())
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "channel.toml"]
