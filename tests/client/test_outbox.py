from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.client.outbox import PACKET_ID_MAX, PacketIds


@given(st.integers(0, PACKET_ID_MAX), st.lists(st.booleans(), max_size=60))
def test_packet_ids_are_never_zero_nor_in_use(first: int, takes: list[bool]) -> None:
    ids = PacketIds(first)
    used: list[int] = []

    for is_take in takes:
        if is_take:
            packet_id = ids.take()
            assert 1 <= packet_id <= PACKET_ID_MAX
            assert packet_id not in used
            used.append(packet_id)
        elif used:
            ids.free(used.pop(0))


def test_freed_packet_id_is_not_reused_before_all_others() -> None:
    ids = PacketIds(7)
    ids.free(ids.take())

    others = [ids.take() for _ in range(PACKET_ID_MAX - 1)]

    assert 7 not in others
    assert ids.take() == 7


def test_take_gives_zero_when_all_are_in_use() -> None:
    ids = PacketIds(1)
    taken = [ids.take() for _ in range(PACKET_ID_MAX)]

    assert ids.take() == 0
    assert sorted(taken) == list(range(1, PACKET_ID_MAX + 1))
