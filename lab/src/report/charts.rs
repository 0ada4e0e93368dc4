//! The charts: bars of normalized bandwidth, stacked bandwidth over time, page cache against threshold. Each
//! function takes plain numbers and returns inline SVG.

use std::fmt::Write;

use super::html::fixed;
use super::plot::{ticks, ticks_within, Plot};
use crate::analysis::aggregate::Range;

#[derive(Debug)]
pub struct BarSeries {
    pub label: String,
    /// A name of `style`.
    pub color: String,
    pub values: Vec<Option<f64>>,
    /// Spread of each value, if known.
    pub ranges: Vec<Option<Range>>,
}

/// Grouped bars, one group per category, with the ideal as a dashed line.
#[derive(Debug)]
pub struct Bars {
    pub title: String,
    pub categories: Vec<String>,
    pub ideal: Vec<f64>,
    pub series: Vec<BarSeries>,
}

impl Bars {
    /// The highest value, end of a range or ideal.
    pub fn highest(&self) -> f64 {
        let values = self.series.iter().flat_map(|s| s.values.iter().flatten());
        let ranges = self.series.iter().flat_map(|s| s.ranges.iter().flatten());
        let ends = ranges.map(|range| &range.max);
        let all = values.chain(ends).chain(&self.ideal);
        all.copied().fold(0.0, f64::max)
    }
}

pub fn bars(chart: &Bars, y_max: f64) -> String {
    let Bars {
        title,
        categories,
        ideal,
        series,
    } = chart;
    let scale = ticks(y_max, 5);
    let top = scale.last().copied().unwrap_or(1.0);
    let groups = categories.len() as f64;
    let mut plot = Plot::new(
        title,
        &describe(categories, ideal, series),
        (520.0, 300.0),
        (groups, top),
    );
    plot.y_axis(&scale, "bandwidth, lowest weight = 1");
    let slot = plot.x(1.0) - plot.x(0.0);
    let width = (slot * 0.8 / series.len().max(1) as f64).min(28.0);
    for (i, category) in categories.iter().enumerate() {
        let middle = plot.x(i as f64 + 0.5);
        let start = middle - width * series.len() as f64 / 2.0;
        for (k, one) in series.iter().enumerate() {
            let Some(value) = one.values.get(i).copied().flatten() else {
                continue;
            };
            let range = one.ranges.get(i).copied().flatten();
            let x = start + width * k as f64;
            bar(&mut plot, one, category, (x, width), value, range);
        }
        if slot > 24.0 || i % 2 == 0 {
            let y = plot.floor() + 16.0;
            plot.text("tick", middle, y, "middle", category);
        }
    }
    let points: Vec<(f64, Option<f64>)> = ideal
        .iter()
        .enumerate()
        .map(|(i, v)| (i as f64 + 0.5, Some(*v)))
        .collect();
    plot.line("ideal", "", &points);
    for (i, value) in ideal.iter().enumerate() {
        let (x, y) = (plot.x(i as f64 + 0.5), plot.y(*value));
        let value = fixed(*value, 2);
        plot.add(&format!(
            "<circle class=\"ideal-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>ideal {value}</title></circle>"
        ));
    }
    plot.text("unit", 280.0, 296.0, "middle", "weight");
    plot.finish()
}

fn bar(
    plot: &mut Plot,
    series: &BarSeries,
    category: &str,
    (x, width): (f64, f64),
    value: f64,
    range: Option<Range>,
) {
    let y = plot.y(value);
    let fill = format!("var(--{})", series.color);
    let size = ((width - 1.0).max(0.5), (plot.floor() - y).max(0.0));
    let title = format!("{}, weight {category}: {}", series.label, fixed(value, 2));
    plot.rect(("bar", &fill), (x, y), size, &title);
    if let Some(range) = range.filter(|range| range.max > range.min) {
        let middle = x + (width - 1.0) / 2.0;
        let (y1, y2) = (plot.y(range.min), plot.y(range.max));
        plot.add(&format!(
            "<line class=\"whisker\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }
}

fn describe(categories: &[String], ideal: &[f64], series: &[BarSeries]) -> String {
    let list = |values: &[Option<f64>]| {
        values
            .iter()
            .map(|value| value.map_or_else(|| "unknown".to_owned(), |value| fixed(value, 2)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let ideal: Vec<Option<f64>> = ideal.iter().copied().map(Some).collect();
    let mut text = format!(
        "Weights {}. Ideal: {}.",
        categories.join(", "),
        list(&ideal)
    );
    for one in series {
        let _ = write!(text, " {}: {}.", one.label, list(&one.values));
    }
    text
}

#[derive(Debug)]
pub struct Layer {
    pub name: String,
    /// A custom property of `style`.
    pub color: String,
    /// Its ideal share at each time, 0 to 1.
    pub ideal_shares: Vec<f64>,
    pub values: Vec<f64>,
}

/// Bandwidth over time, containers stacked; dashed lines mark the ideal borders.
pub fn stacked(title: &str, times: &[f64], layers: &[Layer], y_max: f64, warmup_s: f64) -> String {
    let end = times.last().copied().unwrap_or(1.0);
    let scale = ticks(y_max, 5);
    let top = scale.last().copied().unwrap_or(1.0);
    let description = "Bandwidth of each container, stacked from the lowest weight at the bottom; \
                       dashed lines show where the borders lie when every container has its share.";
    let mut plot = Plot::new(title, description, (520.0, 240.0), (end, top));
    plot.y_axis(&scale, "MB/s");
    let totals: Vec<f64> = (0..times.len())
        .map(|i| layers.iter().filter_map(|layer| layer.values.get(i)).sum())
        .collect();
    let mut low = vec![0.0; times.len()];
    for layer in layers {
        let high: Vec<f64> = low.iter().zip(&layer.values).map(|(l, v)| l + v).collect();
        plot.band(
            &format!("fill:var({})", layer.color),
            times,
            &low,
            &high,
            &layer.name,
        );
        low = high;
    }
    let mut border = vec![0.0; times.len()];
    for layer in layers.iter().take(layers.len().saturating_sub(1)) {
        for (sum, share) in border.iter_mut().zip(&layer.ideal_shares) {
            *sum += share;
        }
        let points: Vec<(f64, Option<f64>)> = times
            .iter()
            .zip(&totals)
            .zip(&border)
            .map(|((t, total), border)| (*t, Some(total * border)))
            .collect();
        plot.line("border", "", &points);
    }
    plot.warm_up(warmup_s);
    plot.time_axis(&ticks_within(end, 6));
    plot.finish()
}

/// One container's page cache over time, with its threshold, if any, as a dashed line.
pub fn page_cache(
    title: &str,
    color: &str,
    times: &[f64],
    cache_mb: &[f64],
    low_mb: &[Option<f64>],
    y_max: f64,
) -> String {
    let end = times.last().copied().unwrap_or(1.0);
    let top = y_max * 1.05;
    let scale = ticks_within(top, 2);
    let description = format!(
        "Page cache from {} to {} MB, most {} MB.",
        fixed(cache_mb.first().copied().unwrap_or(0.0), 0),
        fixed(cache_mb.last().copied().unwrap_or(0.0), 0),
        fixed(cache_mb.iter().copied().fold(0.0, f64::max), 0)
    );
    let mut plot =
        Plot::new(title, &description, (250.0, 130.0), (end, top)).margins(34.0, 8.0, 20.0, 20.0);
    plot.y_axis(&scale, "");
    plot.text("small-title", 34.0, 12.0, "start", title);
    plot.band(
        &format!("fill:var({color})"),
        times,
        &vec![0.0; times.len()],
        cache_mb,
        title,
    );
    let has_threshold = low_mb.iter().flatten().any(|low| *low > 0.0);
    if has_threshold {
        let points: Vec<(f64, Option<f64>)> = times
            .iter()
            .zip(low_mb)
            .map(|(time, low)| (*time, low.map(|low| low.min(top))))
            .collect();
        plot.line("threshold", "", &points);
    }
    plot.time_axis(&ticks_within(end, 3));
    plot.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bar_is_missing_and_named_unknown() {
        let series = BarSeries {
            label: "a & b".into(),
            color: "memcg".into(),
            values: vec![Some(1.0), None],
            ranges: vec![Some(Range { min: 0.9, max: 1.1 }), None],
        };
        let chart = Bars {
            title: "t".into(),
            categories: vec!["100".into(), "200".into()],
            ideal: vec![1.0, 2.0],
            series: vec![series],
        };
        let svg = bars(&chart, 2.0);
        assert_eq!(svg.matches("class=\"bar\"").count(), 1);
        assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
        assert!(svg.contains("a &amp; b: 1.00, unknown"));
    }

    #[test]
    fn the_borders_of_a_stack_are_one_fewer_than_its_layers() {
        let layer = |name: &str| Layer {
            name: name.into(),
            color: "--s0".into(),
            ideal_shares: vec![0.5, 0.5],
            values: vec![1.0, 1.0],
        };
        let svg = stacked("t", &[0.0, 1.0], &[layer("a"), layer("b")], 2.0, 0.0);
        assert_eq!(svg.matches("class=\"border\"").count(), 1);
        assert_eq!(svg.matches("class=\"band\"").count(), 2);
    }
}
