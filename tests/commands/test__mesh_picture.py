"""The picture of a mesh: valid SVG with every broker and link, inside its frame, the same every time."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from timebound.commands._mesh_picture import HEIGHT, WIDTH, picture

SPACE = "{http://www.w3.org/2000/svg}"


def document(count: int, states: dict[int, str] | None = None) -> dict[str, Any]:
    names = [f"b{number}" for number in range(count)]
    links = [
        {"from": first, "to": second, "ms_per_kb": 2.0, "queue_delay_ms": 30.0 if number == 0 else 0.0}
        for number in range(count - 1)
        for first, second in (names[number : number + 2], names[number : number + 2][::-1])
    ]
    brokers = [{"name": name, "state": (states or {}).get(number, "up")} for number, name in enumerate(names)]
    return {"broker": "b0", "brokers": brokers, "links": links}


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_every_broker_and_link_is_drawn_inside_the_frame(count: int) -> None:
    root = ElementTree.fromstring(picture(document(count)))

    circles = root.findall(f"{SPACE}circle")
    assert len(circles) == count
    assert len(root.findall(f"{SPACE}line")) == count - 1
    places = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in circles]
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    assert len(set(places)) == count
    assert picture(document(count)) == picture(document(count))


def test_states_and_queues_are_shown() -> None:
    root = ElementTree.fromstring(picture(document(4, {2: "gone", 3: "cut off"})))

    texts = [one.text for one in root.findall(f"{SPACE}text")]
    assert {"b0", "b2 (gone)", "b3 (cut off)", "2 ms/KB, waits 30 ms", "2 ms/KB"} <= set(texts)
    assert [one.attrib["class"] for one in root.findall(f"{SPACE}line")] == [
        "link busy",
        "link past",
        "link past",
    ]


def test_names_are_text() -> None:
    named = document(1)
    named["brokers"][0]["name"] = named["broker"] = "<b&>"

    assert ElementTree.fromstring(picture(named)).find(f"{SPACE}text").text == "<b&>"  # type: ignore[union-attr]  # it is there
