"""A mesh as a picture: an SVG file with brokers, links, their delays and what waits for them."""

from __future__ import annotations

import math
from typing import Any, Final
from xml.sax.saxutils import escape

WIDTH: Final = 960
HEIGHT: Final = 640
MARGIN: Final = 90
RADIUS: Final = 9
STEPS: Final = 300
BUSY_MS: Final = 1.0  # of waiting: a link is drawn as busy from here on
STYLE: Final = (
    "text{font:13px sans-serif;fill:#1b2733;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".delay{font-size:11px;fill:#52606d}.link{stroke:#8fa1b3;stroke-width:1.6}"
    ".busy{stroke:#c2410c;stroke-width:2.6}.past{stroke-dasharray:5 5}"
    ".up{fill:#1f6feb}.gone{fill:#9aa5b1}.cut{fill:#d4a017}"
)
CLASSES: Final = {"up": "up", "gone": "gone", "cut off": "cut"}

Place = tuple[float, float]


def picture(document: dict[str, Any]) -> str:
    """Return the map of a mesh as SVG."""
    names = [one["name"] for one in document["brokers"]]
    pairs = sorted({tuple(sorted((one["from"], one["to"]))) for one in document["links"]})
    links = {(one["from"], one["to"]): one for one in document["links"]}
    up = {one["name"] for one in document["brokers"] if one["state"] == "up"}
    places = _places(names, [(first, second) for first, second in pairs])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape('Mesh as broker ' + document['broker'] + ' sees it')}</title><style>{STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for first, second in pairs:
        ways = [links[ends] for ends in ((first, second), (second, first)) if ends in links]
        lines += _link_lines(places[first], places[second], ways, is_past=not {first, second} <= up)
    for broker in document["brokers"]:
        x, y = places[broker["name"]]
        note = "" if broker["state"] == "up" else f" ({broker['state']})"
        lines.append(f'<circle class="{CLASSES[broker["state"]]}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>')
        label = escape(broker["name"] + note)
        lines.append(f'<text x="{x:.1f}" y="{y - RADIUS - 5:.1f}" text-anchor="middle">{label}</text>')
    return "\n".join([*lines, "</svg>\n"])


def _link_lines(start: Place, end: Place, ways: list[dict[str, Any]], *, is_past: bool) -> list[str]:
    """Return the line of a link, with what its worse direction takes; dashed if an end is not up."""
    waiting_ms = max([one.get("queue_delay_ms", 0.0) for one in ways])
    kind = "link past" if is_past else "link busy" if waiting_ms >= BUSY_MS else "link"
    delay_ms = max([one["ms_per_kb"] for one in ways])
    text = f"{delay_ms:.3g} ms/KB" + (f", waits {waiting_ms:.3g} ms" if waiting_ms >= BUSY_MS else "")
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    return [
        f'<line class="{kind}" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>',
        f'<text class="delay" x="{middle[0]:.1f}" y="{middle[1]:.1f}" text-anchor="middle">{text}</text>',
    ]


def _places(names: list[str], pairs: list[tuple[str, str]]) -> dict[str, Place]:
    """Return where to draw each broker: linked ones near each other, the others apart; always the same."""
    count = len(names)
    places = {
        name: (math.cos(2 * math.pi * index / count), math.sin(2 * math.pi * index / count))
        for index, name in enumerate(names)
    }
    if count > 2:
        for step in range(STEPS):
            places = _relaxed(places, pairs, 0.2 * (1 - step / STEPS))
    return _fitted(places)


def _relaxed(places: dict[str, Place], pairs: list[tuple[str, str]], most: float) -> dict[str, Place]:
    """Move every broker a little by the forces on it (Fruchterman and Reingold)."""
    ideal = 2 / math.sqrt(len(places))
    pushes = {name: [0.0, 0.0] for name in places}
    names = list(places)
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            _pull(places, pushes, first, second, lambda gap: -ideal * ideal / gap)
    for first, second in pairs:
        _pull(places, pushes, first, second, lambda gap: gap * gap / ideal)
    moved = {}
    for name, (x, y) in places.items():
        dx, dy = pushes[name]
        length = math.hypot(dx, dy) or 1.0
        share = min(length, most) / length
        moved[name] = (x + dx * share, y + dy * share)
    return moved


def _pull(
    places: dict[str, Place], pushes: dict[str, list[float]], first: str, second: str, force: Any
) -> None:
    dx, dy = places[second][0] - places[first][0], places[second][1] - places[first][1]
    gap = max(math.hypot(dx, dy), 0.01)
    strength = force(gap) / gap
    for name, sign in ((first, 1.0), (second, -1.0)):
        pushes[name][0] += sign * dx * strength
        pushes[name][1] += sign * dy * strength


def _fitted(places: dict[str, Place]) -> dict[str, Place]:
    """Scale to the picture."""
    xs, ys = [x for x, _ in places.values()], [y for _, y in places.values()]
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    return {
        name: (
            MARGIN + (x - min(xs)) / wide * (WIDTH - 2 * MARGIN),
            MARGIN + (y - min(ys)) / high * (HEIGHT - 2 * MARGIN),
        )
        for name, (x, y) in places.items()
    }
