"""A report as one HTML page that loads nothing else, so that it can be attached, archived and read
offline."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from parity.measure.shown import number, portable
from parity.verifier.report.report import Finding, Report, Table
from parity.verifier.report.sides import Line, PlaceSide
from vit_config.terminal import harmless

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --dim: #59636e; --page: #fff; --card: #f6f8fa;
  --rule: #d1d9e0; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --text: #f0f6fc; --dim: #9198a1; --page: #0d1117;
  --card: #151b23; --rule: #3d444d; --good: #3fb950; --bad: #f85149; --warn: #d29922; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; margin: 0 0 .75rem; }
p { margin: .25rem 0; }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.dim { color: var(--dim); }
.EQUAL { color: var(--good); } .DIFFERENT { color: var(--bad); }
.INCOMPLETE, .UNCERTIFIED { color: var(--warn); }
section { margin-top: 1.5rem; padding: 1.25rem; background: var(--card);
  border: 1px solid var(--rule); border-left: 4px solid var(--bad); border-radius: 8px; }
section.note { border-left-color: var(--dim); } section.warning { border-left-color: var(--warn); }
section.plain { border-left-width: 1px; border-left-color: var(--rule); overflow-x: auto; }
.sides { display: grid; margin-top: .75rem; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr));
  gap: 1rem; }
.side { min-width: 0; }
.side > b { display: inline-block; min-width: 1.5rem; }
pre { margin: .5rem 0 0; padding: .6rem .75rem; white-space: pre-wrap; background: var(--page);
  border: 1px solid var(--rule); border-radius: 6px; }
.formula { font-weight: 600; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule); }
td.differs { color: var(--bad); font-weight: 600; } td.ok { color: var(--good); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem .9rem; margin: 0; }
dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; }
"""


_VERDICTS = {"ok": ' class="ok"', "differs": ' class="differs"'}


def to_html(report: Report) -> str:
    """Return the report as the text of an HTML page."""
    title = f"{report.verdict}: {report.a} and {report.b}"
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<h1><span class="{report.verdict}">{report.verdict}</span>'
        f" <span>{escape(report.a)} and {escape(report.b)}</span></h1>",
        f'<p class="dim">parity {escape(report.command)}: {escape(report.summary)}</p>',
    ]
    for index, each in enumerate(report.findings, 1):
        parts += _finding(index, each)
    if report.legend:
        parts += ['<section class="plain"><h2>Values in the formulas</h2><dl>']
        parts += [f"<dt><code>{escape(k)}</code></dt><dd>{escape(v)}</dd>"
                  for k, v in report.legend.items()]  # fmt: skip
        parts.append("</dl></section>")
    if report.table is not None:
        parts += _table(report.table)
    return portable(harmless("\n".join([*parts, "</html>"]) + "\n"))


def _finding(index: int, each: Finding) -> Iterator[str]:
    times = f' <span class="dim">at {each.times} places</span>' if each.times > 1 else ""
    yield f'<section class="{each.level}" id="{index}"><h2>{index}. {escape(each.message)}{times}</h2>'
    if each.error is not None:
        limit = "" if each.limit is None else f", where rounding explains {number(each.limit)}"
        yield f'<p class="dim">relative error {number(each.error)}{limit}</p>'
    yield from (f"<p>{escape(line)}</p>" for line in each.details)
    if _says(each.a) or _says(each.b):
        yield '<div class="sides">'
        for name, part in (("A", each.a), ("B", each.b)):
            yield f'<div class="side"><b>{name}</b> {_head(part)}'
            if part.formula:
                yield f'<pre class="formula">{escape(part.formula)}</pre>'
            if part.lines:
                yield f"<pre>{_source(part.lines)}</pre>"
            yield "</div>"
        yield "</div>"
    yield "</section>"


def _says(part: PlaceSide) -> bool:
    return bool(part.formula or part.lines or part.module)


def _head(part: PlaceSide) -> str:
    where = escape(part.where)
    file = escape(part.lines[0].file) if part.lines else ""
    module = f' <span class="dim">{escape(part.module)}</span>' if part.module else ""
    return (f'<code title="{file}">{where}</code>' if where else "") + module


def _source(lines: tuple[Line, ...]) -> str:
    width = max(len(str(line.line)) for line in lines)
    shown, file = [], lines[0].file
    for line in lines:
        if line.file != file:
            shown.append(f'<span class="dim">{escape(Path(line.file).name)}</span>')
            file = line.file
        shown.append(f'<span class="dim">{line.line:>{width}}</span>  {escape(line.text)}')
    return "\n".join(shown)


def _table(table: Table) -> Iterator[str]:
    yield '<section class="plain"><h2>All that was compared</h2><table><thead><tr>'
    yield "".join(f"<th>{escape(each)}</th>" for each in table.columns)
    yield "</tr></thead><tbody>"
    for row in table.rows:
        cells = "".join(f"<td{_VERDICTS.get(each, '')}>{escape(each)}</td>" for each in row)
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></section>"
