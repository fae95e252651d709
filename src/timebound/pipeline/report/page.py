"""The HTML page of a report: frame, style and parts.

One self-contained file, for readers who do not run brokers: it opens from a mail or a disk, prints
well, and follows the dark mode of the screen. No scripts, no external resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

# Longer tables are cut; the Parquet files have all rows.
ROWS_SHOWN: Final = 15

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#dde2e9;--paper:#fff;--tile:#f5f7fa;
--accent:#0b5cad;--good:#2a7f62;--late:#d99a1c;--bad:#b5473c;--c0:#0b5cad;--c1:#d1620f;--c2:#2a7f62;
--c3:#a3398c;--c4:#8a6d00;--c5:#5b6675;--c6:#00829b;--c7:#b5473c}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b5;--line:#313a47;--paper:#12161c;
--tile:#1b2129;--accent:#6db3ff;--good:#5cc4a0;--late:#e6b453;--bad:#e8857a;--c0:#6db3ff;--c1:#f59a52;
--c2:#5cc4a0;--c3:#dd8acb;--c4:#d9bf55;--c5:#9aa6b5;--c6:#55c7dd;--c7:#e8857a}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:60rem;margin:0 auto;padding:3rem 1.5rem 4rem}
header p.kind{margin:0;color:var(--soft);font-size:.85rem;letter-spacing:.06em;text-transform:uppercase}
h1{margin:.2rem 0 1rem;font-size:1.9rem;line-height:1.2;font-weight:650}
p.lead{font-size:1.2rem;line-height:1.5;margin:0 0 1.6rem;max-width:46rem}
h2{margin:3rem 0 .4rem;padding-top:1.2rem;border-top:1px solid var(--line);font-size:1.3rem;font-weight:620}
h3{margin:1.6rem 0 .4rem;font-size:1rem;font-weight:620}
p{max-width:46rem;margin:.4rem 0 .9rem}
p.note{color:var(--soft);font-size:.88rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.5rem,1fr));gap:.8rem;margin:0 0 1rem}
.tile{background:var(--tile);border-radius:8px;padding:.8rem 1rem}
.tile b{display:block;font-size:1.45rem;line-height:1.25;font-weight:640;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:.86rem}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(24rem,100%),1fr));gap:1rem 1.6rem}
figure{margin:.6rem 0;break-inside:avoid}
figcaption{font-weight:600;font-size:.95rem;margin-bottom:.2rem}
svg.chart{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
svg text.strong{fill:var(--ink);font-weight:700}
svg text.value{fill:var(--ink);font-variant-numeric:tabular-nums}
svg .grid{stroke:var(--line);fill:none}svg .axis{stroke:var(--soft);fill:none}
svg .line{fill:none;stroke-width:2}svg .level{stroke-dasharray:6 4}
svg .whisker{fill:none;stroke-width:1;opacity:.65}svg .mark{fill:none;stroke-width:2.2}
svg .marker{stroke:var(--paper);stroke-width:1}
svg .good{fill:var(--good)}svg .late{fill:var(--late)}svg .bad{fill:var(--bad)}svg .plain{fill:var(--c5)}
svg .accent{fill:var(--accent)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.4rem 0;font-size:.9rem;max-width:none}
.key{display:inline-flex;align-items:center;gap:.4rem}.key svg path{stroke-width:2}
.key i{width:.8rem;height:.8rem;border-radius:2px;display:inline-block}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums;margin:.4rem 0}
th{text-align:left;color:var(--soft);font-weight:600;border-bottom:1px solid var(--line);white-space:nowrap}
th,td{padding:.32rem .9rem .32rem 0;vertical-align:top}td{border-bottom:1px solid var(--line)}
th.number,td.number{text-align:right}tr.strong td{font-weight:650}
td:last-child,th:last-child{padding-right:0}
footer{margin-top:3.5rem;color:var(--soft);font-size:.85rem;
border-top:1px solid var(--line);padding-top:.8rem}
@media print{:root{--ink:#000;--soft:#444;--line:#ccc;--paper:#fff;--tile:#f4f4f4;--accent:#0b5cad;
--good:#2a7f62;--late:#d99a1c;--bad:#b5473c;--c0:#0b5cad;--c1:#d1620f;--c2:#2a7f62;--c3:#a3398c;--c4:#8a6d00;
--c5:#5b6675;--c6:#00829b;--c7:#b5473c}
body{font-size:10.5pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}main{max-width:none;padding:0}
h2{break-after:avoid;margin-top:1.6rem}tr,.tile{break-inside:avoid}.scroll{overflow:visible}}
"""


@dataclass(slots=True)
class Page:
    """Contents of a report, from the headline down."""

    kind: str
    title: str
    lead: str
    note: str = ""
    tiles: list[tuple[str, str]] = field(default_factory=list)  # value and label
    sections: list[str] = field(default_factory=list)
    footer: str = ""


def render(page: Page) -> str:
    """Render the page as one HTML document."""
    shown = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what in page.tiles
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<header><p class="kind">{escape(page.kind)}</p><h1>{escape(page.title)}</h1>'
        f'<p class="lead">{escape(page.lead)}</p>{note(page.note) if page.note else ""}</header>'
        f'<div class="tiles">{shown}</div>'
        f"{''.join(page.sections)}<footer>{escape(page.footer)}</footer></main></body></html>\n"
    )


def section(title: str, text: str, *pieces: str) -> str:
    """Return a section: a heading, a short summary, and the evidence."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{''.join(pieces)}</section>"


def figure(caption: str, chart: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{chart}</figure>"


def panels(figures: Sequence[str]) -> str:
    """Place figures side by side where there is room."""
    return f'<div class="panels">{"".join(figures)}</div>'


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def colour_key(items: Sequence[tuple[str, str]]) -> str:
    """Return the legend of bars, from pairs of colour variable and text."""
    shown = "".join(
        f'<span class="key"><i style="background:var(--{name})"></i>{escape(text)}</span>'
        for name, text in items
    )
    return f'<p class="legend">{shown}</p>'


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 1,
    where: str = "",
    strong: Sequence[int] = (),
    rows_max: int = ROWS_SHOWN,
) -> str:
    """Return a table; its first `texts` columns are text, the others numbers; `where` names the full one."""
    kinds = ["" if index < texts else ' class="number"' for index in range(len(columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, columns, strict=True))
    body = []
    for index, row in enumerate(rows[:rows_max]):
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        row_kind = ' class="strong"' if index in strong else ""
        body.append(f"<tr{row_kind}>{cells}</tr>")
    cut = len(rows) - rows_max
    more = note(f"… and {cut:,} more rows in {where}") if cut > 0 and where else ""
    whole = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll"><table>{whole}</table></div>{more}'
