//! Measures of bandwidth against weights: proportionality variation, share error, utility.
//!
//! Source: Justitia (MSST'20), equation 2, for PV. Rates may be in any one unit; weights are
//! plain numbers. All three need at least one container and one rate for each weight.

/// Proportionality variation (equation 2): the mean of `|ideal_i - actual_i|`, where ideal is
/// `w_i / w_lowest` and actual is `b_i / b_lowest`, both over the lowest-weighted container (the
/// first of them, if several). Zero is perfect. `None` if that container moved nothing.
pub fn proportionality_variation(weights: &[u32], rates: &[f64]) -> Option<f64> {
    let pairs = pairs(weights, rates)?;
    let &(w0, b0) = pairs.iter().reduce(|a, b| if b.0 < a.0 { b } else { a })?;
    if b0 <= 0.0 || w0 <= 0.0 {
        return None;
    }
    let sum: f64 = pairs.iter().map(|(w, b)| (w / w0 - b / b0).abs()).sum();
    Some(sum / pairs.len() as f64)
}

/// Share error: half the sum of `|b_i / B - w_i / W|`, 0 to 1: the part of all traffic that went
/// to the wrong container. Robust where PV amplifies the smallest container's noise.
pub fn share_error(weights: &[u32], rates: &[f64]) -> Option<f64> {
    let pairs = pairs(weights, rates)?;
    let weight: f64 = pairs.iter().map(|(w, _)| w).sum();
    let rate: f64 = rates.iter().sum();
    let errors = pairs.iter().map(|(w, b)| (b / rate - w / weight).abs());
    let nothing = weight <= 0.0 || rate <= 0.0;
    (!nothing).then(|| errors.sum::<f64>() / 2.0)
}

/// Utility of weighted proportional fairness: the sum of `(w_i / W) ln b_i`. Only differences mean something:
/// +0.01 is one percent more for every container. `None` if a container got nothing.
pub fn utility(weights: &[u32], rates: &[f64]) -> Option<f64> {
    let pairs = pairs(weights, rates)?;
    let weight: f64 = pairs.iter().map(|(w, _)| w).sum();
    let nothing = weight <= 0.0 || rates.iter().any(|&b| b <= 0.0);
    (!nothing).then(|| pairs.iter().map(|(w, b)| w / weight * b.ln()).sum())
}

/// Weight and rate of each container; `None` if there is none or the lengths differ.
fn pairs(weights: &[u32], rates: &[f64]) -> Option<Vec<(f64, f64)>> {
    let pairs = weights.iter().zip(rates).map(|(&w, &b)| (f64::from(w), b));
    (!weights.is_empty() && weights.len() == rates.len()).then(|| pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pv_of_the_papers_fileserver_figure_is_what_equation_2_says() {
        let weights = [100, 200, 300, 400, 500, 600, 700, 800];
        let justitia = [1.0, 1.73, 2.24, 2.65, 3.04, 3.75, 4.37, 6.26];
        let pv = proportionality_variation(&weights, &justitia).unwrap();
        assert!((pv - 1.37).abs() < 0.005, "{pv}");
    }

    #[test]
    fn proportional_bandwidth_has_no_error_in_any_unit() {
        let weights = [150, 350, 900];
        let rates = [1.5e6, 3.5e6, 9.0e6];
        assert!(proportionality_variation(&weights, &rates).unwrap() < 1e-12);
        assert!(share_error(&weights, &rates).unwrap() < 1e-12);
    }

    #[test]
    fn one_more_percent_for_everybody_is_one_hundredth_of_utility() {
        let (weights, rates) = ([100, 800], [3.0, 11.0]);
        let more: Vec<f64> = rates.iter().map(|b| b * 1.01).collect();
        let gain = utility(&weights, &more).unwrap() - utility(&weights, &rates).unwrap();
        assert!((gain - 0.01_f64.ln_1p()).abs() < 1e-12);
    }

    #[test]
    fn a_measure_that_cannot_be_computed_is_none() {
        assert_eq!(proportionality_variation(&[], &[]), None);
        assert_eq!(proportionality_variation(&[100, 200], &[0.0, 1.0]), None);
        assert_eq!(share_error(&[100, 200], &[0.0, 0.0]), None);
        assert_eq!(share_error(&[100], &[1.0, 1.0]), None);
        assert_eq!(utility(&[100, 200], &[0.0, 1.0]), None);
    }
}
