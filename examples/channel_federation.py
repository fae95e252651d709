"""Three channels in a ring: each consumer gets each event once, and nothing is sent that nobody wants."""

from __future__ import annotations

from contextlib import ExitStack

from timebound.channel import ChannelBuilder, Event, Gateway


def main() -> None:
    with ExitStack() as stack:
        bridge, engine_room, deck = (
            stack.enter_context(ChannelBuilder(name).filtering().build())
            for name in ("bridge", "engine room", "deck")
        )
        for first, second in ((bridge, engine_room), (engine_room, deck), (deck, bridge)):
            stack.enter_context(Gateway(first, second))

        def show(where: str, event: Event) -> None:
            print(f"{where}: {event.type} {event.payload} from {event.origin}")

        bridge.connect(lambda event: show("bridge", event), "alarm")
        deck.connect(lambda event: show("deck", event), "alarm")

        engine = engine_room.supplier("engine", "alarm", "temperature")
        engine.push("temperature", 88)
        engine.push("alarm", "oil pressure")


if __name__ == "__main__":
    main()
