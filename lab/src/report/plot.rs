//! The common frame of all charts: margins, scales, ticks, grid lines and labels, as inline SVG.
//!
//! Coordinates are those of the view box, so a chart scales with its column. Text is readable at half the
//! width.

use std::fmt::Write;

use super::html::{escape, fixed};

#[derive(Debug)]
pub struct Plot {
    svg: String,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_max: f64,
    y_max: f64,
}

impl Plot {
    /// An empty chart with a title and a description for those who cannot see it. Axes start at zero.
    pub fn new(title: &str, description: &str, size: (f64, f64), max: (f64, f64)) -> Self {
        let (width, height) = size;
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\"><desc>{}</desc>",
            escape(title),
            escape(description)
        );
        Self {
            svg,
            width,
            height,
            left: 40.0,
            right: 10.0,
            top: 20.0,
            bottom: 36.0,
            x_max: if max.0 > 0.0 { max.0 } else { 1.0 },
            y_max: if max.1 > 0.0 { max.1 } else { 1.0 },
        }
    }

    /// Sets other margins: left, right, top, bottom.
    #[must_use]
    pub fn margins(mut self, left: f64, right: f64, top: f64, bottom: f64) -> Self {
        (self.left, self.right, self.top, self.bottom) = (left, right, top, bottom);
        self
    }

    pub fn x(&self, value: f64) -> f64 {
        self.left + value / self.x_max * (self.width - self.left - self.right)
    }

    pub fn y(&self, value: f64) -> f64 {
        let height = self.height - self.top - self.bottom;
        self.height - self.bottom - value / self.y_max * height
    }

    /// Vertical position of the time axis.
    pub fn floor(&self) -> f64 {
        self.height - self.bottom
    }

    pub fn add(&mut self, svg: &str) {
        self.svg.push_str(svg);
    }

    /// Draws a rectangle from its upper left corner; no title if it is empty.
    pub fn rect(
        &mut self,
        (class, fill): (&str, &str),
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        title: &str,
    ) {
        let end = match title {
            "" => "/>".to_owned(),
            title => format!("><title>{}</title></rect>", escape(title)),
        };
        let _ = write!(
            self.svg,
            "<rect class=\"{class}\" style=\"fill:{fill}\" x=\"{x:.1}\" y=\"{y:.1}\" \
             width=\"{width:.1}\" height=\"{height:.1}\"{end}"
        );
    }

    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = write!(
            self.svg,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    /// Draws grid lines and labels of the vertical axis, with its unit above it.
    pub fn y_axis(&mut self, ticks: &[f64], unit: &str) {
        let digits = digits_for(ticks);
        for &tick in ticks {
            let y = self.y(tick);
            let _ = write!(
                self.svg,
                "<line class=\"grid\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                self.left,
                self.width - self.right
            );
            let (x, label) = (self.left - 6.0, fixed(tick, digits));
            self.text("tick", x, y + 4.0, "end", &label);
        }
        self.text("unit", 2.0, 11.0, "start", unit);
    }

    pub fn time_axis(&mut self, ticks: &[f64]) {
        let digits = digits_for(ticks);
        for (i, &tick) in ticks.iter().enumerate() {
            let (anchor, unit) = if i + 1 == ticks.len() {
                ("end", " s")
            } else {
                ("middle", "")
            };
            let label = format!("{}{unit}", fixed(tick, digits));
            self.text("tick", self.x(tick), self.floor() + 15.0, anchor, &label);
        }
    }

    /// Draws a line through points in data coordinates; unknown points break it.
    pub fn line(&mut self, class: &str, style: &str, points: &[(f64, Option<f64>)]) {
        let mut path = String::new();
        let mut pen_down = false;
        for &(x, value) in points {
            if let Some(value) = value {
                let command = if pen_down { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {:.1}", self.x(x), self.y(value));
            }
            pen_down = value.is_some();
        }
        if !path.is_empty() {
            let _ = write!(
                self.svg,
                "<path class=\"{class}\" style=\"{style}\" d=\"{path}\"/>"
            );
        }
    }

    /// Fills the area between two lines over the same times.
    pub fn band(&mut self, style: &str, times: &[f64], low: &[f64], high: &[f64], title: &str) {
        let mut path = String::new();
        let forward = times.iter().zip(high);
        let back = times.iter().zip(low).rev();
        for (i, (&t, &value)) in forward.chain(back).enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(t), self.y(value));
        }
        if !path.is_empty() {
            let _ = write!(
                self.svg,
                "<path class=\"band\" style=\"{style}\" d=\"{path}Z\"><title>{}</title></path>",
                escape(title)
            );
        }
    }

    /// Shades the part of the time axis that the figures exclude.
    pub fn warm_up(&mut self, until: f64) {
        if until > 0.0 {
            let (x0, x1) = (self.x(0.0), self.x(until.min(self.x_max)));
            let _ = write!(
                self.svg,
                "<rect class=\"warmup\" x=\"{x0:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>warm-up, left out of the figures</title></rect>",
                self.top,
                x1 - x0,
                self.floor() - self.top
            );
        }
    }

    pub fn finish(mut self) -> String {
        let _ = write!(
            self.svg,
            "<line class=\"axis\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/></svg>",
            self.left,
            self.width - self.right,
            y = self.floor()
        );
        self.svg
    }
}

/// Round ticks from 0 to at least `max`, about `count` of them.
pub fn ticks(max: f64, count: usize) -> Vec<f64> {
    if !max.is_finite() || max <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = max / count.max(1) as f64;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * magnitude);
    let last = (max / step - 1e-9).ceil() as usize;
    (0..=last).map(|i| i as f64 * step).collect()
}

/// Ticks up to `max`, for an axis that ends where its data does.
pub fn ticks_within(max: f64, count: usize) -> Vec<f64> {
    ticks(max, count)
        .into_iter()
        .filter(|tick| *tick <= max * 1.000_001)
        .collect()
}

fn digits_for(ticks: &[f64]) -> usize {
    let whole = |scale: &f64| ticks.iter().all(|tick| (tick * scale).fract().abs() < 1e-6);
    [1.0, 10.0].iter().position(whole).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        assert_eq!(ticks(8.0, 4), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(8.46, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 5), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0, 1.0]);
        assert_eq!(ticks_within(59.0, 3), [0.0, 20.0, 40.0]);
    }

    #[test]
    fn an_unknown_point_breaks_the_line_instead_of_falling_to_zero() {
        let mut plot = Plot::new("t", "d", (100.0, 100.0), (3.0, 1.0));
        plot.line(
            "l",
            "",
            &[
                (0.0, Some(1.0)),
                (1.0, None),
                (2.0, Some(1.0)),
                (3.0, Some(0.0)),
            ],
        );
        assert_eq!(plot.finish().matches('M').count(), 2);
    }
}
