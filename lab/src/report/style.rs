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
     --proportional:#0072b2;--first-touch:#7a5c9e;--strict:#009e73;--observe:#c2a200;\
     --guarded:#0f7f86;--hostile:#c1272d;--gate-fifo:#4a4a4a;--gate-aging:#b15928;\
     --gate-insert:#8a6d3b;--gate-stride:#117733;--gate-loop:#882255;--good:#116329;--bad:#a40e26;";

const DARK: &str = "--bg:#0f1419;--fg:#e6e9ed;--muted:#9aa4af;--rule:#2c343d;--panel:#171d24;\
     --accent:#7cc4ff;--conventional:#8f99a4;--memcg:#f08a3c;--direct:#d78fbf;--justitia:#8fd0f5;\
     --proportional:#3fa0e6;--first-touch:#b79adb;--strict:#2fc497;--observe:#e3c44a;\
     --guarded:#4cc3ca;--hostile:#ff6b6b;--gate-fifo:#d6d6d6;--gate-aging:#d99058;\
     --gate-insert:#cbb074;--gate-stride:#44bb77;--gate-loop:#cc6699;--good:#5fd38a;--bad:#ff8182;";

const RULES: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::tests::fixture;

    #[test]
    fn every_policy_in_a_chart_has_a_color_of_its_own_in_both_schemes() {
        let workload = fixture::settings("reread").workload;
        for scheme in [LIGHT, DARK] {
            let colors: Vec<&str> = Policy::all()
                .filter(|policy| workload.can_run_under(*policy))
                .map(|policy| {
                    let name = format!("--{}:", policy.name());
                    let mut colors = scheme.split(';');
                    colors.find_map(|one| one.strip_prefix(&name)).expect(&name)
                })
                .collect();
            let mut different = colors.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len(), colors.len());
        }
    }

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
}
