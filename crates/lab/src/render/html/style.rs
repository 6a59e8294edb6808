//! The style sheet: light and dark, desktop, phone and paper.

/// Everything in one text: the page brings it along.
pub(super) const SHEET: &str = r#"
:root{--page:#fcfcfb;--ink:#1a1a19;--soft:#5c5b57;--faint:#d9d8d3;--panel:#f3f2ee;
--good:#0b7a3b;--bad:#b3261e;--same:#2a5db0;--open:#7a6a2b;
--c1:#2a78d6;--c2:#eb6834;--c3:#1baf7a;--c4:#eda100;--c5:#4a3aa7;--c6:#e34948;--c7:#e87ba4;--c8:#008300;
--read:#2a78d6;--written:#eb6834;--w1:#1baf7a;--w2:#2a78d6;--w3:#e34948;--w4:#eda100;--w5:#8c8a84}
@media (prefers-color-scheme:dark){:root{--page:#1a1a19;--ink:#f1f0ec;--soft:#b3b1a9;--faint:#3b3a37;--panel:#242422;
--good:#5fd08f;--bad:#ff8a80;--same:#8ab4f8;--open:#d9c067;
--c1:#3987e5;--c2:#d95926;--c3:#199e70;--c4:#c98500;--c5:#9085e9;--c6:#e66767;--c7:#d55181;--c8:#2f9e2f;
--read:#3987e5;--written:#d95926;--w1:#199e70;--w2:#3987e5;--w3:#e66767;--w4:#c98500;--w5:#8c8a84}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:908px;margin:0 auto;padding:24px}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .3em}
h2{font-size:1.3rem;margin:2.2em 0 .6em;line-height:1.3}
h3{font-size:1rem;margin:1.8em 0 .2em}
p{margin:.4em 0}
.kind{color:var(--soft);font-size:.85rem;margin:0}
.sub,.note{color:var(--soft);font-size:.9rem}
.verdicts h2{margin-top:1.2em}
.verdict-line{font-size:1.15rem;padding:.5em .8em;margin:.5em 0;background:var(--panel);border-left:5px solid var(--faint);border-radius:4px}
.verdict-line.faster{border-color:var(--good)}.verdict-line.faster strong{color:var(--good)}
.verdict-line.slower{border-color:var(--bad)}.verdict-line.slower strong{color:var(--bad)}
.verdict-line.equivalent{border-color:var(--same)}.verdict-line.equivalent strong{color:var(--same)}
.verdict-line.inconclusive,.verdict-line.look{border-color:var(--open)}
.verdict-line.inconclusive strong,.verdict-line.look strong{color:var(--open)}
.regime{display:inline-block;font-size:.8rem;font-weight:600;padding:.1em .6em;border:1px solid var(--faint);border-radius:999px;color:var(--soft);vertical-align:middle;white-space:nowrap}
.legend{display:flex;flex-wrap:wrap;gap:.2em 1.2em;margin:.4em 0;padding:0;list-style:none;font-size:.85rem}
.legend li{display:flex;align-items:center;gap:.45em}
.swatch{width:22px;height:0;border-top:4px solid currentColor;display:inline-block}
.swatch.again{border-top-style:dashed;border-top-width:3px}
.swatch.c1{color:var(--c1)}.swatch.c2{color:var(--c2)}.swatch.c3{color:var(--c3)}.swatch.c4{color:var(--c4)}
.swatch.c5{color:var(--c5)}.swatch.c6{color:var(--c6)}.swatch.c7{color:var(--c7)}.swatch.c8{color:var(--c8)}
.swatch.read{color:var(--read)}.swatch.written{color:var(--written)}
.swatch.w1{color:var(--w1)}.swatch.w2{color:var(--w2)}.swatch.w3{color:var(--w3)}.swatch.w4{color:var(--w4)}.swatch.w5{color:var(--w5)}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;font-size:.84rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.35em .5em;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
td.long{white-space:normal;text-align:left;overflow-wrap:anywhere;min-width:11em}
th{color:var(--soft);font-weight:600}
td.gap{white-space:normal;min-width:8.5em}
tr.head td{white-space:normal;font-weight:600;padding-top:1em;color:var(--ink)}
tr.head td,tr.head th{border-bottom-color:var(--soft)}
details.point{border-top:1px solid var(--faint);margin:0;padding:.5em 0}
details.point>summary{font-weight:600;color:var(--ink)}
.word-FASTER{color:var(--good);font-weight:600}.word-SLOWER{color:var(--bad);font-weight:600}
.word-EQUIVALENT{color:var(--same);font-weight:600}.word-INCONCLUSIVE,.word-LOOK{color:var(--open);font-weight:600}
.doubts{font-size:.9rem;padding-left:1.2em;margin:.6em 0}
.doubts li{margin:.25em 0}.advice{color:var(--soft)}
.verdicts .doubts{list-style:none;padding:0;font-size:1rem}
.verdicts .doubts li{margin:.5em 0;padding:.5em .9em;border-left:5px solid var(--open);overflow-wrap:anywhere}
details{margin:.6em 0}summary{cursor:pointer;color:var(--soft)}
code,pre{font:.85em/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
pre{background:var(--panel);padding:.8em;border-radius:4px;white-space:pre-wrap;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:minmax(8em,max-content) 1fr;gap:.2em 1em;font-size:.88rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
footer{margin-top:3em;border-top:1px solid var(--faint);padding-top:1em;color:var(--soft);font-size:.85rem}
svg.chart{display:block;max-width:100%;height:auto}
svg.narrow{display:none}
svg text{fill:var(--ink);font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
svg .tick,svg .label{fill:var(--soft);font-size:12px}
svg .verdict{font-weight:600;font-size:12px}
svg .grid{stroke:var(--faint);stroke-width:1}
svg .one{stroke:var(--ink);stroke-width:1.5}
svg .margin{fill:var(--same);opacity:.13}
svg .warm-up{fill:var(--soft);opacity:.13}
svg path{fill:none}
svg .c1{stroke:var(--c1)}svg .c2{stroke:var(--c2)}svg .c3{stroke:var(--c3)}svg .c4{stroke:var(--c4)}
svg .c5{stroke:var(--c5)}svg .c6{stroke:var(--c6)}svg .c7{stroke:var(--c7)}svg .c8{stroke:var(--c8)}
svg .interval{stroke-width:2.5}
svg .raw{stroke-width:1;opacity:.4}
svg .average{stroke-width:2.4;stroke-linejoin:round}
svg .average.again{stroke-dasharray:6 4}
svg .interval.again{stroke-dasharray:5 3}
svg .mark{stroke-width:2;fill:var(--page)}
svg .mark:not(.again).c1{fill:var(--c1)}svg .mark:not(.again).c2{fill:var(--c2)}svg .mark:not(.again).c3{fill:var(--c3)}
svg .mark:not(.again).c4{fill:var(--c4)}svg .mark:not(.again).c5{fill:var(--c5)}svg .mark:not(.again).c6{fill:var(--c6)}
svg .mark:not(.again).c7{fill:var(--c7)}svg .mark:not(.again).c8{fill:var(--c8)}
svg .knee{fill:none;stroke-width:2}
svg .knee.again{display:none}
svg .stroke{stroke-width:1.5}
svg .tail{stroke-width:1.4;stroke-dasharray:2 4}
svg .bar.w1{fill:var(--w1)}svg .bar.w2{fill:var(--w2)}svg .bar.w3{fill:var(--w3)}svg .bar.w4{fill:var(--w4)}svg .bar.w5{fill:var(--w5)}
svg .bar.w1,svg .bar.w2,svg .bar.w3,svg .bar.w4,svg .bar.w5{opacity:1!important}
svg .bar.read{fill:var(--read)}svg .bar.written{fill:var(--written)}
svg .bar.devices{opacity:1}svg .bar:not(.devices){opacity:.5}
@media (max-width:700px){main{padding:14px}h1{font-size:1.5rem}.verdict-line{font-size:1.02rem}
svg.wide{display:none}svg.narrow{display:block;width:100%}dl{grid-template-columns:1fr}dd{margin-bottom:.5em}}
@media print{:root{--page:#fff;--panel:#f4f4f2}body{font-size:11pt}main{max-width:none;padding:0}
section{break-inside:auto}svg,table,.verdict-line{break-inside:avoid}details>*{display:block}}
"#;
