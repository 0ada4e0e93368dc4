//! The charts: lines over time, colors over time. They take plain numbers and return inline SVG.

use super::plot::{ticks, ticks_within, Plot};
use crate::protocol::databases::Color;

#[derive(Debug, Clone)]
pub struct Phases<'a> {
    pub spans: &'a [(f64, f64)],
    pub names: &'a [String],
}

impl Phases<'_> {
    fn end(&self) -> f64 {
        self.spans.last().map_or(1.0, |span| span.1)
    }

    /// Draws a line at the start of each phase, with its name above.
    fn draw(&self, plot: &mut Plot, top: f64) {
        for (i, (from_s, to_s)) in self.spans.iter().enumerate() {
            if i > 0 {
                plot.line("grid", "", &[(*from_s, Some(0.0)), (*from_s, Some(top))]);
            }
            if let Some(name) = self.names.get(i) {
                let middle = plot.x(f64::midpoint(*from_s, *to_s));
                plot.text("tick", middle, 22.0, "middle", name);
            }
        }
    }
}

#[derive(Debug)]
pub struct Line {
    pub name: String,
    /// A custom property of the style sheet.
    pub color: String,
    pub points: Vec<(f64, Option<f64>)>,
    /// A value for comparison, drawn dashed.
    pub mark: Option<f64>,
}

pub fn lines(title: &str, unit: &str, phases: &Phases, lines: &[Line], y_max: f64) -> String {
    let scale = ticks(y_max, 4);
    let top = scale.last().copied().unwrap_or(1.0);
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let description = format!("{unit} over time of {}.", names.join(", "));
    let end = phases.end();
    let mut plot =
        Plot::new(title, &description, (520.0, 190.0), (end, top)).margins(44.0, 10.0, 28.0, 24.0);
    plot.y_axis(&scale, unit);
    phases.draw(&mut plot, top);
    for line in lines {
        let stroke = format!("fill:none;stroke:var({});stroke-width:1.6", line.color);
        plot.line("series", &stroke, &line.points);
        if let Some(mark) = line.mark.filter(|mark| *mark <= top) {
            let dashed = format!("{stroke};stroke-dasharray:3 4;opacity:.8");
            plot.line("mark", &dashed, &[(0.0, Some(mark)), (end, Some(mark))]);
        }
    }
    plot.time_axis(&ticks_within(end, 6));
    plot.finish()
}

pub fn highest(lines: &[Line]) -> f64 {
    lines
        .iter()
        .flat_map(|line| line.points.iter().filter_map(|point| point.1))
        .fold(0.0, f64::max)
}

/// Fill and relative height of a color in its row, distinguishable also without hues.
fn look(color: Color) -> (&'static str, f64) {
    match color {
        Color::Green => ("#2f9e62", 0.35),
        Color::Yellow => ("#e3b005", 0.65),
        Color::Red => ("#c6303e", 1.0),
    }
}

#[derive(Debug)]
pub struct ColorRow {
    pub name: String,
    pub samples: Vec<(f64, Option<Color>)>,
}

/// Colors over time, one row per container.
pub fn colors(title: &str, phases: &Phases, rows: &[ColorRow]) -> String {
    const ROW: f64 = 18.0;
    let height = 30.0 + ROW * rows.len() as f64 + 24.0;
    let end = phases.end();
    let count = rows.len().max(1) as f64;
    let description = "A row for each container: a low green bar where its objective is met and \
                       nothing waits, a middle yellow one where it is met and work waits, a high \
                       red one where it is missed.";
    let mut plot = Plot::new(title, description, (520.0, height), (end, count))
        .margins(44.0, 10.0, 30.0, 24.0);
    for (row, one) in rows.iter().enumerate() {
        let floor = 30.0 + ROW * (row as f64 + 1.0) - 2.0;
        plot.text("tick", 38.0, floor - 3.0, "end", &one.name);
        for (from_s, to_s, color) in stretches(&one.samples) {
            let (fill, part) = look(color);
            let tall = (ROW - 4.0) * part;
            let (x0, x1) = (plot.x(from_s), plot.x(to_s));
            let size = ((x1 - x0).max(0.4), tall);
            plot.rect(("color", fill), (x0, floor - tall), size, "");
        }
    }
    phases.draw(&mut plot, count);
    plot.time_axis(&ticks_within(end, 6));
    plot.finish()
}

/// Stretches of one color: from, to, color. A sample stands for the time since the previous one.
fn stretches(samples: &[(f64, Option<Color>)]) -> Vec<(f64, f64, Color)> {
    let mut stretches: Vec<(f64, f64, Color)> = Vec::new();
    let mut before = 0.0;
    for &(at_s, color) in samples {
        if let Some(color) = color {
            match stretches.last_mut() {
                Some(last) if last.2 == color && (last.1 - before).abs() < 1e-9 => last.1 = at_s,
                _ => stretches.push((before, at_s, color)),
            }
        }
        before = at_s;
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_lasts_until_another_and_unknown_breaks_it() {
        let (green, red) = (Some(Color::Green), Some(Color::Red));
        let samples = [
            (1.0, green),
            (2.0, green),
            (3.0, red),
            (4.0, None),
            (5.0, red),
        ];
        let expected = [
            (0.0, 2.0, Color::Green),
            (2.0, 3.0, Color::Red),
            (4.0, 5.0, Color::Red),
        ];
        assert_eq!(stretches(&samples), expected);
    }

    #[test]
    fn a_mark_above_the_scale_is_not_drawn_outside_of_it() {
        let line = |mark| Line {
            name: "a".into(),
            color: "--s0".into(),
            points: vec![(0.0, Some(1.0)), (1.0, Some(2.0))],
            mark,
        };
        let phases = Phases {
            spans: &[(0.0, 1.0)],
            names: &["h".to_owned()],
        };
        let drawn = |mark| lines("t", "u", &phases, &[line(mark)], 2.0);
        assert!(drawn(Some(1.5)).contains("class=\"mark\""));
        assert!(!drawn(Some(9.0)).contains("class=\"mark\""));
    }
}
