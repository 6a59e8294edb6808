//! The style sheet: light and dark, desktop, phone and paper.

/// Everything in one text: the page brings it along.
pub(super) fn sheet() -> String {
    let stacked = |tables: &str| STACKED.replace('@', tables);
    format!(
        "{SHEET}{}@media screen and (max-width:1240px){{{}}}@media screen and (max-width:980px){{{}}}@media print{{{}{PAPER}}}",
        stacked(".matrix.many"),
        stacked(".matrix.some"),
        stacked(".matrix"),
        stacked(".matrix.some"),
    )
}

/// The matrix where its columns have no room: a line for each cell, with the name of its column.
const STACKED: &str = r#"
@,@ tbody,@ tr,@ tbody th{display:block}@ tr{padding:.5em 0;border-bottom:1px solid var(--faint)}
@ thead,@ thead tr{display:block}@ thead th{display:none}@ thead th.told{display:block;width:auto;border:0}@ tbody th:first-child{width:auto;padding:.2em 0;border:0}
@ td.cell{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 .9em;padding:.25em .6em;margin:.25em 0;border-bottom:0}
@ td.none{display:none}@ .who{display:block;flex:1 1 11em;overflow-wrap:anywhere}@ .cell>*{display:inline}@ .cell .tags{flex:1 1 100%}
@ .map td.cell{display:table-cell}
@ .small{display:inline;margin-left:.8em}@ .figures{white-space:nowrap}
@ thead th.told{padding:.1em 0}@ thead .tags{display:inline;margin-left:.8em}
"#;

const SHEET: &str = r#"
:root{--page:#fcfcfb;--ink:#1a1a19;--soft:#5c5b57;--faint:#d9d8d3;--panel:#f3f2ee;
--good:#0b7a3b;--bad:#b3261e;--same:#2a5db0;--open:#7a6a2b;
--c1:#2a78d6;--c2:#eb6834;--c3:#1baf7a;--c4:#eda100;--c5:#4a3aa7;--c6:#e34948;--c7:#e87ba4;--c8:#008300;
--read:#2a78d6;--written:#eb6834;--w1:#1baf7a;--w2:#2a78d6;--w3:#e34948;--w4:#eda100;--w5:#8c8a84}
@media screen and (prefers-color-scheme:dark){:root{--page:#1a1a19;--ink:#f1f0ec;--soft:#b3b1a9;--faint:#3b3a37;--panel:#242422;
--good:#5fd08f;--bad:#ff8a80;--same:#8ab4f8;--open:#d9c067;
--c1:#3987e5;--c2:#d95926;--c3:#199e70;--c4:#c98500;--c5:#9085e9;--c6:#e66767;--c7:#d55181;--c8:#2f9e2f;
--read:#3987e5;--written:#d95926;--w1:#199e70;--w2:#3987e5;--w3:#e66767;--w4:#c98500;--w5:#8c8a84}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:1200px;margin:0 auto;padding:24px}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .3em}
h2{font-size:1.3rem;margin:2.2em 0 .6em;line-height:1.3}
h3{font-size:1rem;margin:1.8em 0 .2em}
p{margin:.4em 0;max-width:56em}
.kind{color:var(--soft);font-size:.85rem;margin:0}
.note{color:var(--soft);font-size:.9rem}
.sentence{font-size:1.25rem;line-height:1.4;margin:.2em 0 .7em}
.measured-on{display:grid;grid-template-columns:repeat(auto-fit,minmax(13em,1fr));gap:.5em 1.6em;margin:.8em 0;padding:.6em .9em;background:var(--panel);border-radius:4px;font-size:.82rem;line-height:1.4}
.measured-on dt{font-weight:600}
.of-all{font-size:.9rem;margin:.6em 0}
.matrix{margin:.8em 0 .4em;table-layout:fixed;font-size:.88rem}
.matrix th,.matrix td{white-space:normal;text-align:left;vertical-align:top;padding:.45em .6em;overflow-wrap:anywhere}
.matrix tbody th{color:var(--ink);padding-left:0}.matrix th:first-child{width:18%}
.matrix .name{color:var(--ink)}
.scroll .small{font-size:.8rem;color:var(--soft)}
.matrix .small,.matrix .tags,.matrix .tail{display:block;font-weight:400;font-size:.8rem;color:var(--soft)}
.matrix .tags{margin-top:.15em}
.matrix .who{display:none}
.cell{border-left:4px solid var(--faint)}
.cell strong{display:block;white-space:nowrap}.cell.over-the-limit strong{white-space:normal}
.cell .ratio{font-weight:600;margin-right:.6em}.cell .interval{color:var(--soft);white-space:nowrap}
.cell.faster{--mark:var(--good)}.cell.slower{--mark:var(--bad)}.cell.equivalent{--mark:var(--same)}
.cell.inconclusive,.cell.look{--mark:var(--open)}.cell.over-the-limit,.cell.not-ranked,.cell.failed{--mark:var(--soft)}
.cell.faster,.cell.slower,.cell.equivalent{background:color-mix(in srgb,var(--mark) 11%,transparent)}
.cell.faster,.cell.slower,.cell.equivalent,.cell.failed{border-left-style:solid;border-left-color:var(--mark)}
.cell.inconclusive,.cell.look,.cell.over-the-limit,.cell.not-ranked{border-left-style:dashed;border-left-color:var(--mark)}
.cell strong{color:var(--mark)}
tr.overall th,tr.overall td{border-top:2px solid var(--soft)}
.tag{display:inline-block;margin-right:.7em;color:var(--soft);text-decoration:underline dotted;text-underline-offset:2px}
.tag.forbids{color:var(--ink);font-weight:600}
.tag sup{font-size:.75em;line-height:0;margin-left:.1em}
a{color:inherit}
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
.doubts{font-size:.86rem;padding-left:1.8em;margin:.4em 0;max-width:64em}
.doubts li{margin:.35em 0;overflow-wrap:anywhere}.doubts b{margin-right:.6em}.advice{color:var(--soft)}
.doubts .seen{margin-right:.5em}
.doubts li:target,details.point:target{outline:2px solid var(--open);outline-offset:3px}
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
@media screen and (max-width:760px){main{padding:14px}h1{font-size:1.4rem}.sentence{font-size:1.08rem}
svg.wide{display:none}svg.narrow{display:block;width:100%}dl{grid-template-columns:1fr}dd{margin-bottom:.5em}
.measured-on{grid-template-columns:1fr 1fr;gap:.5em 1em;font-size:.76rem}.measured-on dd{margin-bottom:.15em}
.cell .figures{flex:1 1 100%}}
"#;

/// On paper everything is open, nothing is cut, and no heading leaves what it is the heading of. The
/// browser decides the size of the sheet.
const PAPER: &str = r#"
@page{margin:12mm}
:root{--page:#fff;--panel:#f4f4f2}
body{font-size:10pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}main{max-width:none;padding:0}
h1{font-size:17pt}h2{font-size:13pt;margin-top:1.6em}h3{font-size:10.5pt;margin-top:1.2em}.sentence{font-size:12pt}
h1,h2,h3,h4,summary,.note,.legend,dt,.matrix th{break-after:avoid}
.figure.kept,svg,tr,pre.short,.measured-on,.doubts li{break-inside:avoid}thead{display:table-header-group}
p,li{orphans:3;widows:3}
details::details-content{content-visibility:visible;display:block;height:auto}
summary{list-style:none}
.note,.of-all,.legend,.doubts,dl,details p{font-size:8.5pt}tr.head{break-after:avoid}
.scroll{overflow:visible}
table{font-size:8pt}th,td{white-space:normal;padding:.25em .4em;overflow-wrap:anywhere}
.matrix{font-size:7.5pt}.matrix .small,.matrix .tags,.matrix .tail{font-size:7pt}
svg.wide{display:block;width:100%}svg.narrow{display:none}
a{text-decoration:none}
.measured-on{grid-template-columns:repeat(4,1fr);gap:0 1.2em;font-size:8pt}
"#;
