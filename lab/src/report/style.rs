//! Colors and type of the report, light and dark, in one style sheet without external assets.
//!
//! Policies differ in hue, after Okabe and Ito's palette for color-blind readers. The containers of a stack
//! are on a ramp of rising lightness (after viridis), so their order is visible without color too. All text
//! has a contrast of at least 4.5:1.

use std::fmt::Write;

/// Stops of the ramp, dark to light.
const RAMP: [(f64, f64, f64); 5] = [
    (68.0, 1.0, 84.0),
    (59.0, 82.0, 139.0),
    (33.0, 145.0, 140.0),
    (94.0, 201.0, 98.0),
    (253.0, 231.0, 37.0),
];

/// The style sheet for a report with this many containers.
pub fn sheet(containers: usize) -> String {
    format!(
        ":root{{color-scheme:light dark;{LIGHT}{light}}}\n\
         @media(prefers-color-scheme:dark){{:root{{{DARK}{dark}}}}}\n{RULES}",
        light = ramp(containers, 0.04, 0.9),
        dark = ramp(containers, 0.16, 0.97),
    )
}

/// The custom property for the color of the container with this rank by weight.
pub fn container_color(rank: usize) -> String {
    format!("--s{rank}")
}

fn ramp(count: usize, from: f64, to: f64) -> String {
    let mut css = String::new();
    for rank in 0..count {
        let part = if count > 1 {
            rank as f64 / (count - 1) as f64
        } else {
            0.5
        };
        let at = (from + (to - from) * part) * (RAMP.len() - 1) as f64;
        let stop = (at as usize).min(RAMP.len() - 2);
        let mix = at - stop as f64;
        let channel = |a: f64, b: f64| (a + (b - a) * mix).round() as u8;
        let (a, b) = (RAMP[stop], RAMP[stop + 1]);
        let _ = write!(
            css,
            "--s{rank}:#{:02x}{:02x}{:02x};",
            channel(a.0, b.0),
            channel(a.1, b.1),
            channel(a.2, b.2)
        );
    }
    css
}

const LIGHT: &str = "--bg:#fff;--fg:#1b1f24;--muted:#57606a;--rule:#d8dee4;--panel:#f6f8fa;\
     --accent:#0b5c93;--conventional:#8c939b;--memcg:#d55e00;--direct:#b5629a;--justitia:#56b4e9;\
     --proportional:#0072b2;--first-touch:#7a5c9e;--strict:#009e73;--observe:#c2a200;--gate-fifo:#4a4a4a;--gate-aging:#b15928;--gate-insert:#8a6d3b;--gate-stride:#117733;\
     --gate-loop:#882255;--good:#116329;--bad:#a40e26;";

const DARK: &str = "--bg:#0f1419;--fg:#e6e9ed;--muted:#9aa4af;--rule:#2c343d;--panel:#171d24;\
     --accent:#7cc4ff;--conventional:#8f99a4;--memcg:#f08a3c;--direct:#d78fbf;--justitia:#8fd0f5;\
     --proportional:#3fa0e6;--first-touch:#b79adb;--strict:#2fc497;--observe:#e3c44a;--gate-fifo:#d6d6d6;--gate-aging:#d99058;--gate-insert:#cbb074;--gate-stride:#44bb77;\
     --gate-loop:#cc6699;--good:#5fd38a;--bad:#ff8182;";

const RULES: &str = r#"*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header p{max-width:46rem;margin:.4rem 0 0;color:var(--muted)}
.eyebrow{font-size:.8rem;letter-spacing:.04em;color:var(--accent);font-weight:600;margin:0}
h1{font-size:1.9rem;line-height:1.2;margin:.2rem 0 .3rem;letter-spacing:-.015em;text-wrap:balance}
h2{font-size:1.2rem;margin:2.8rem 0 .3rem;padding-top:1.1rem;border-top:1px solid var(--rule)}
h3{font-size:.95rem;margin:0 0 .3rem}
p{max-width:46rem}
.note{color:var(--muted);font-size:.9rem;margin:.2rem 0 .9rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:.75rem;margin:1.5rem 0 0}
.card{background:var(--panel);border:1px solid var(--rule);border-radius:8px;padding:.8rem .95rem}
.card b{display:block;font-size:1.7rem;line-height:1.2;font-variant-numeric:tabular-nums;letter-spacing:-.02em}
.card span{display:block;font-size:.85rem;color:var(--muted)}
.card .name{color:var(--fg);font-weight:600}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:1.25rem}
figure{margin:0;min-width:0}
figcaption{font-size:.85rem;color:var(--muted);margin-top:.2rem}
svg{display:block;width:100%;height:auto;font:11.5px system-ui,sans-serif;overflow:visible}
svg text{fill:var(--muted)}
svg .small-title{fill:var(--fg);font-weight:600}
.grid{stroke:var(--rule);stroke-width:1}
.axis{stroke:var(--muted);stroke-width:1}
.ideal{fill:none;stroke:var(--fg);stroke-width:1.5;stroke-dasharray:5 4}
.ideal-dot{fill:var(--bg);stroke:var(--fg);stroke-width:1.5}
.whisker{stroke:var(--fg);stroke-width:1.2}
.band{stroke:var(--bg);stroke-width:.6}
.border{fill:none;stroke:#000;stroke-width:1.1;stroke-dasharray:4 3;opacity:.75}
.threshold{fill:none;stroke:var(--fg);stroke-width:1.5;stroke-dasharray:4 3}
.warmup{fill:var(--bg);opacity:.55}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;list-style:none;margin:.5rem 0 .8rem;padding:0;font-size:.85rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.4rem;vertical-align:-.08rem}
.legend .dash{width:1.3rem;height:0;border-top:2px dashed var(--fg);border-radius:0;vertical-align:.25rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;min-width:100%}
caption{text-align:left;font-weight:600;padding:.4rem 0}
th,td{padding:.38rem .7rem .38rem 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top;font-weight:400}
thead th{color:var(--muted);font-size:.82rem;vertical-align:bottom;border-bottom-color:var(--muted)}
.numbers td,.numbers thead th:not(:first-child){text-align:right;font-variant-numeric:tabular-nums}
.numbers td,.numbers tbody th{white-space:nowrap}
details .numbers{font-size:.84rem}
.numbers td:last-child,.numbers th:last-child{padding-right:0}
.facts th{color:var(--muted);white-space:nowrap;width:15rem}
.facts td{overflow-wrap:anywhere}
td small{display:block;color:var(--muted);font-size:.78rem}
.swatch{display:inline-block;width:.7rem;height:.7rem;border-radius:2px;margin-right:.45rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:.6rem 1rem;margin:.6rem 0 .4rem}
details{margin:.6rem 0}
summary{cursor:pointer;font-weight:600;padding:.25rem 0}
pre{background:var(--panel);border:1px solid var(--rule);border-radius:8px;padding:.8rem 1rem;overflow-x:auto;font-size:.82rem;white-space:pre-wrap;overflow-wrap:anywhere}
.notes{margin:.8rem 0;padding-left:1.1rem}
.bad{color:var(--bad);font-weight:600}
.good{color:var(--good)}
@media(max-width:480px){svg{font-size:14px}main{padding-top:1.5rem}.facts th{width:auto;white-space:normal}}
@media print{details{break-inside:avoid}figure{break-inside:avoid}}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_has_a_color_of_its_own_in_both_schemes() {
        for count in [1, 2, 8, 64] {
            let css = ramp(count, 0.04, 0.9);
            let mut colors: Vec<&str> = css
                .split(';')
                .filter_map(|one| one.split_once(':').map(|c| c.1))
                .collect();
            colors.sort_unstable();
            colors.dedup();
            assert_eq!(colors.len(), count);
        }
        assert_eq!(sheet(3).matches("--s2:").count(), 2);
    }

    #[test]
    fn the_sheet_fetches_nothing() {
        assert!(!sheet(8).contains("url(") && !sheet(8).contains("@import"));
    }
}
