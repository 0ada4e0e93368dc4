//! Published figures for comparison: values printed in the text of Justitia (MSST'20).
//!
//! Bandwidths are normalized to the lowest-weighted container. Values that the paper only draws are not
//! guessed: if the text gives only a PV, the figure has no bars for it.

#[derive(Debug)]
pub struct PaperSeries {
    /// The policy here whose color it has.
    pub color: &'static str,
    /// Its name in the paper.
    pub label: &'static str,
    /// Normalized bandwidth of each container; empty if the text gives only the PV.
    pub normalized: &'static [f64],
    /// Its PV as the text states it; otherwise as equation 2 gives it for the bars.
    pub pv: f64,
}

#[derive(Debug)]
pub struct PaperFigure {
    pub number: &'static str,
    pub caption: &'static str,
    pub weights: &'static [u32],
    pub series: &'static [PaperSeries],
}

const fn published(
    color: &'static str,
    label: &'static str,
    normalized: &'static [f64],
    pv: f64,
) -> PaperSeries {
    PaperSeries {
        color,
        label,
        normalized,
        pv,
    }
}

const EIGHT: &[u32] = &[100, 200, 300, 400, 500, 600, 700, 800];
const FOUR: &[u32] = &[100, 200, 400, 800];

pub const FIGURE_8A: PaperFigure = PaperFigure {
    number: "8a",
    caption: "Fileserver, eight containers, kernel 4.19 with and without the paper's patch",
    weights: EIGHT,
    #[rustfmt::skip]
    series: &[
        published("conventional", "Conventional", &[1.0, 1.51, 2.02, 2.40, 2.63, 2.71, 3.07, 3.31], 2.17),
        published("justitia", "Justitia", &[1.0, 1.73, 2.24, 2.65, 3.04, 3.75, 4.37, 6.26], 1.37),
    ],
};

/// Figure 4, as far as the text gives values.
pub const FIGURE_4: PaperFigure = PaperFigure {
    number: "4",
    caption: "Fileserver, four containers, kernel 4.19: direct I/O keeps most of the ratio \
              (677 MB/s in total), buffered I/O none of it (1200 MB/s)",
    weights: FOUR,
    #[rustfmt::skip]
    series: &[published("direct", "Direct I/O", &[1.0, 1.9, 3.2, 5.4], 0.875)],
};

/// Figure 11b, with the PVs of figure 9a, whose bars the text does not give.
pub const FIGURE_11B: PaperFigure = PaperFigure {
    number: "11b",
    caption: "Re-read, four containers, kernel 4.19: the paper's patch against memory cgroups",
    weights: FOUR,
    series: &[
        published("memcg", "Memory cgroups", &[1.0, 1.15, 1.60, 4.53], 1.67),
        published("justitia", "Justitia", &[1.0, 2.02, 3.91, 8.46], 0.14),
    ],
};

/// Figure 9a: only its PVs are in the text.
pub const FIGURE_9A: PaperFigure = PaperFigure {
    number: "9a",
    caption: "Re-read, four containers: PV by policy",
    weights: FOUR,
    series: &[
        published("conventional", "Conventional", &[], 1.4),
        published("direct", "Direct I/O", &[], 0.61),
        published("justitia", "Justitia", &[], 0.33),
    ],
};

/// Figure 12a: one light container against seven heavy ones. Without aging the text states a PV of 2.31, but
/// its bars give 2.43.
pub const FIGURE_12A: PaperFigure = PaperFigure {
    number: "12a",
    caption: "Fileserver, one container of weight 100 against seven of 1000, kernel 4.19 with the \
              paper's patch, with and without aging",
    weights: &[100, 1000, 1000, 1000, 1000, 1000, 1000, 1000],
    #[rustfmt::skip]
    series: &[
        published("direct", "Justitia without aging", &[1.0, 12.57, 13.31, 11.72, 12.44, 13.31, 12.77, 13.35], 2.31),
        published("justitia", "Justitia", &[1.0, 8.94, 9.36, 9.08, 8.83, 9.49, 9.77, 9.43], 0.64),
    ],
};

/// The published figures closest to an experiment with these weights, best match first.
pub fn figures(experiment: &str, weights: &[u32]) -> Vec<&'static PaperFigure> {
    match experiment {
        "fileserver" if weights == FIGURE_12A.weights => vec![&FIGURE_12A],
        "fileserver" if weights == FOUR => vec![&FIGURE_4, &FIGURE_8A],
        "fileserver" => vec![&FIGURE_8A],
        "reread" => vec![&FIGURE_11B, &FIGURE_9A],
        _ => Vec::new(),
    }
}

/// Note on experiments that have no published figure for comparison.
pub const NO_FIGURE: &str = "The paper has no figure of this load. Its nearest measurement is \
     Webserver (figure 10a): the hit ratio drops by about 0.8 % on average under its patch.";

#[cfg(test)]
mod tests {
    use justitia_policy::metrics::proportionality_variation;

    use super::*;

    #[test]
    fn every_stated_pv_follows_from_its_bars() {
        for figure in [&FIGURE_8A, &FIGURE_4, &FIGURE_11B, &FIGURE_12A] {
            for series in figure.series {
                let pv = proportionality_variation(figure.weights, series.normalized).unwrap();
                let tolerance = if figure.number == "12a" { 0.13 } else { 0.02 };
                assert!(
                    (pv - series.pv).abs() < tolerance,
                    "{} {}: {pv}",
                    figure.number,
                    series.label
                );
            }
        }
    }
}
