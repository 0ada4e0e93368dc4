//! Aggregates several runs into one set of figures: the median of each number.
//!
//! Works on the JSON form, number by number, so a figure added later is aggregated too. A number that is
//! unknown in some runs is the median over the other runs.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub min: f64,
    pub max: f64,
}

impl Range {
    /// Range of the known values; `None` if none is.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let one = |value| Self {
            min: value,
            max: value,
        };
        let known = values.into_iter().flatten().map(one);
        known.reduce(|a, b| Self {
            min: a.min.min(b.min),
            max: a.max.max(b.max),
        })
    }
}

/// Median of every number over the runs; default figures for no runs.
pub fn medians<'a, F>(runs: impl IntoIterator<Item = &'a F>) -> F
where
    F: Default + Serialize + DeserializeOwned + 'a,
{
    let values = runs.into_iter().map(serde_json::to_value);
    let values: Vec<Value> = values.filter_map(Result::ok).collect();
    serde_json::from_value(merge(&values.iter().collect::<Vec<_>>())).unwrap_or_default()
}

/// The median of known values; the mean of the middle two for an even count.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn merge(values: &[&Value]) -> Value {
    let known: Vec<&Value> = values
        .iter()
        .copied()
        .filter(|value| !value.is_null())
        .collect();
    let Some(&first) = known.first() else {
        return Value::Null;
    };
    if known.iter().all(|value| *value == first) {
        return first.clone();
    }
    match first {
        Value::Number(_) => median(known.iter().filter_map(|value| value.as_f64())).into(),
        Value::Object(fields) => fields
            .keys()
            .map(|key| {
                let each: Vec<&Value> = known.iter().filter_map(|value| value.get(key)).collect();
                (key.clone(), merge(&each))
            })
            .collect::<Map<String, Value>>()
            .into(),
        Value::Array(items) => (0..items.len())
            .map(|i| {
                let each: Vec<&Value> = known.iter().filter_map(|value| value.get(i)).collect();
                merge(&each)
            })
            .collect(),
        _ => first.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::{ContainerFigures, Figures};
    use super::*;

    fn run(pv: Option<f64>, mb_per_s: f64) -> Figures {
        let container = ContainerFigures {
            name: "a".into(),
            weight: 100,
            mb_per_s: Some(mb_per_s),
            ..ContainerFigures::default()
        };
        Figures {
            pv,
            containers: vec![container],
            ..Figures::default()
        }
    }

    #[test]
    fn the_median_of_three_ignores_the_outlier_in_every_number() {
        let median = medians(&[
            run(Some(0.2), 5.0),
            run(Some(9.0), 7.0),
            run(Some(0.3), 6.0),
        ]);
        assert_eq!(median.pv, Some(0.3));
        assert_eq!(median.containers[0].mb_per_s, Some(6.0));
        assert_eq!(
            (
                median.containers[0].name.as_str(),
                median.containers[0].weight
            ),
            ("a", 100)
        );
    }

    #[test]
    fn an_unknown_number_does_not_count_as_zero() {
        let median = medians(&[run(None, 5.0), run(Some(0.4), 7.0)]);
        assert_eq!(median.pv, Some(0.4));
        assert_eq!(median.containers[0].mb_per_s, Some(6.0));
        assert_eq!(medians(&[run(None, 1.0), run(None, 2.0)]).pv, None);
    }

    #[test]
    fn no_runs_have_no_figures() {
        assert_eq!(medians::<Figures>(&[]), Figures::default());
        assert_eq!(median([]), None);
        assert_eq!(median([1.0, 2.0]), Some(1.5));
    }
}
