//! Computes differences within pairs of windows, with their confidence. Pure.
//!
//! A difference is the ratio of two conditions in the same pair, minus one: what observing adds or takes. The
//! mean over the pairs has its 95 % interval after Student; if the interval contains zero, the pairs do not
//! distinguish the two. Two numbers are compared: operations per second (less is worse), and the load's CPU
//! time per operation in its own tasks, kernel included (more is worse). The agent's own CPU time is not in
//! the latter and is reported separately.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::experiment::Analysis;
use crate::protocol::{Facts, Observing, OverheadLoad, OverheadReport, ProgramCost, Window};
use crate::report::table::{Cell, Column, Table};

/// Two-sided 95 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for many degrees of freedom.
const T95_MANY: f64 = 1.96;

const COMPARED: [(Observing, Observing); 3] = [
    (Observing::Bpf, Observing::Nothing),
    (Observing::Proc, Observing::Nothing),
    (Observing::Bpf, Observing::Proc),
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub kernel: String,
    /// The accelerator and clock of the guest, and facts that it read back.
    pub environment: Facts,
    pub comparisons: Vec<Comparison>,
    /// CPU time of the agent, percent of one core, by load and condition; median of the windows.
    pub agents: Vec<AgentCost>,
    /// Cost of each BPF program, the most expensive first.
    #[serde(default)]
    pub programs: Vec<ProgramCost>,
    pub windows: Vec<Window>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub load: OverheadLoad,
    pub of: Observing,
    pub against: Observing,
    /// Difference in operations per second, percent.
    pub throughput: Option<Difference>,
    /// Difference in CPU time per operation, percent.
    pub cpu_per_op: Option<Difference>,
}

/// A mean difference over pairs, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub mean: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    pub pairs: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentCost {
    pub load: OverheadLoad,
    pub observing: Observing,
    /// CPU time in the window, percent of one core.
    pub cpu_percent: Option<f64>,
    /// Peak resident memory, 10^6 bytes; maximum over the windows.
    pub peak_rss_mb: Option<f64>,
}

impl Document {
    /// Analyzes a report; `machine`: facts about the virtual machine.
    pub fn of(report: OverheadReport, machine: Facts) -> Self {
        let mut environment = report.environment;
        environment.extend(machine);
        let windows = report.windows;
        let mut programs = report.programs;
        programs.retain(|program| program.runs > 0);
        programs.sort_by_key(|program| (program.load.name(), std::cmp::Reverse(program.ns)));
        let mut comparisons = Vec::new();
        let mut agents = Vec::new();
        for load in OverheadLoad::ALL {
            if !windows.iter().any(|w| w.load == load) {
                continue;
            }
            for (of, against) in COMPARED {
                let pairs = pairs(&windows, load, of, against);
                comparisons.push(Comparison {
                    load,
                    of,
                    against,
                    throughput: difference(&pairs, Window::ops_per_s),
                    cpu_per_op: difference(&pairs, Window::cpu_us_per_op),
                });
            }
            agents.extend([Observing::Proc, Observing::Bpf].map(|o| agent(&windows, load, o)));
        }
        Self {
            kernel: report.kernel,
            environment,
            comparisons,
            agents,
            programs,
            windows,
        }
    }
}

impl Analysis for Document {
    fn file(&self) -> &'static str {
        super::FILE
    }

    fn record(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn again(self: Box<Self>) -> Box<dyn Analysis> {
        let report = OverheadReport {
            kernel: self.kernel,
            environment: self.environment,
            windows: self.windows,
            programs: self.programs,
        };
        Box::new(Self::of(report, Facts::new()))
    }

    fn table(&self) -> String {
        let compared: [Column<&Comparison>; 5] = [
            ("load", |c| c.load.name().into()),
            ("compared", |c| {
                format!("{} - {}", c.of.name(), c.against.name()).into()
            }),
            ("operations a second", |c| interval(c.throughput)),
            ("CPU for an operation", |c| interval(c.cpu_per_op)),
            ("pairs", |c| c.throughput.map_or(0, |d| d.pairs).into()),
        ];
        let agents: [Column<&AgentCost>; 4] = [
            ("load", |a| a.load.name().into()),
            ("observing", |a| a.observing.name().into()),
            ("% of a core", |a| Cell::number(a.cpu_percent, 2)),
            ("MB at most", |a| Cell::number(a.peak_rss_mb, 2)),
        ];
        let programs: [Column<&ProgramCost>; 5] = [
            ("load", |p| p.load.name().into()),
            ("program", |p| (&p.name).into()),
            ("runs per op", |p| {
                format!("{:.2}", p.runs as f64 / p.ops.max(1) as f64).into()
            }),
            ("ns per run", |p| {
                format!("{:.0}", p.ns as f64 / p.runs as f64).into()
            }),
            ("% of the load's CPU", |p| {
                format!("{:.2}", p.ns as f64 / (p.cpu_us * 10.0)).into()
            }),
        ];
        let title = format!("what observing costs on Linux {}, percent", self.kernel);
        let tables = [
            Table::of(&title, &compared, &self.comparisons),
            Table::of("the agent itself", &agents, &self.agents),
            Table::of("its programs", &programs, &self.programs),
        ];
        tables.map(|table| table.text()).join("\n")
    }
}

impl Window {
    /// Operations per second; `None` for a window without length.
    pub fn ops_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0 && self.ops > 0).then(|| self.ops as f64 / self.seconds)
    }

    pub fn cpu_us_per_op(&self) -> Option<f64> {
        (self.ops > 0 && self.cpu_us > 0.0).then(|| self.cpu_us / self.ops as f64)
    }
}

fn interval(difference: Option<Difference>) -> Cell {
    let words = |d: Difference| format!("{:+.2} ({:+.2} to {:+.2})", d.mean, d.low, d.high);
    difference.map_or_else(|| "unknown".into(), |d| words(d).into())
}

fn windows_of(
    windows: &[Window],
    load: OverheadLoad,
    observing: Observing,
) -> impl Iterator<Item = &Window> {
    let of_both = move |w: &&Window| w.load == load && w.observing == observing;
    windows.iter().filter(of_both)
}

/// The two windows of each pair that is complete.
fn pairs(
    windows: &[Window],
    load: OverheadLoad,
    of: Observing,
    against: Observing,
) -> Vec<(&Window, &Window)> {
    let partner = |a: &Window| windows_of(windows, load, against).find(|b| b.pair == a.pair);
    let ours = windows_of(windows, load, of);
    ours.filter_map(|a| Some((a, partner(a)?))).collect()
}

/// Mean and interval of the relative differences; `None` for fewer than two pairs.
fn difference(
    pairs: &[(&Window, &Window)],
    value: fn(&Window) -> Option<f64>,
) -> Option<Difference> {
    let percent: Vec<f64> = pairs
        .iter()
        .filter_map(|(a, b)| Some((value(a)? / value(b)? - 1.0) * 100.0))
        .collect();
    let n = percent.len();
    if n < 2 {
        return None;
    }
    let mean = percent.iter().sum::<f64>() / n as f64;
    let squares: f64 = percent.iter().map(|p| (p - mean).powi(2)).sum();
    let deviation = (squares / (n - 1) as f64).sqrt();
    let half = T95.get(n - 2).copied().unwrap_or(T95_MANY) * deviation / (n as f64).sqrt();
    Some(Difference {
        mean,
        low: mean - half,
        high: mean + half,
        pairs: n,
    })
}

fn agent(windows: &[Window], load: OverheadLoad, observing: Observing) -> AgentCost {
    let mine = || windows_of(windows, load, observing);
    let cpu = mine().filter_map(|w| {
        let seconds = w.agent_s.filter(|s| *s > 0.0)?;
        Some(w.agent?.cpu_s / seconds * 100.0)
    });
    let rss = mine().filter_map(|w| Some(w.agent?.peak_rss_bytes)).max();
    AgentCost {
        load,
        observing,
        cpu_percent: crate::analysis::aggregate::median(cpu),
        peak_rss_mb: rss.map(|bytes| bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(pair: u32, observing: Observing, ops: u64) -> Window {
        Window {
            load: OverheadLoad::Randread,
            pair,
            observing,
            seconds: 2.0,
            ops,
            cpu_us: 1e6,
            agent: None,
            agent_s: None,
        }
    }

    fn document(windows: Vec<Window>) -> Document {
        let report = OverheadReport {
            kernel: "k".into(),
            environment: Facts::new(),
            windows,
            programs: Vec::new(),
        };
        Document::of(report, Facts::new())
    }

    fn throughput(document: &Document, of: Observing, against: Observing) -> Difference {
        let mut all = document.comparisons.iter();
        let one = all.find(|c| c.of == of && c.against == against).unwrap();
        one.throughput.unwrap()
    }

    #[test]
    fn a_drift_from_pair_to_pair_does_not_blur_the_difference() {
        // Ten pairs between 1,000 and 10,000 operations, always one percent fewer with eBPF.
        let windows = (1..=10u32)
            .flat_map(|pair| {
                let base = u64::from(pair) * 1000;
                [
                    window(pair, Observing::Nothing, base),
                    window(pair, Observing::Bpf, base / 100 * 99),
                ]
            })
            .collect();
        let document = document(windows);
        let found = throughput(&document, Observing::Bpf, Observing::Nothing);
        assert!((found.mean + 1.0).abs() < 1e-9 && found.pairs == 10);
        assert!(found.high - found.low < 1e-6, "{found:?}");
        let cpu = document.comparisons[0].cpu_per_op.unwrap();
        assert!((cpu.mean - (1.0 / 0.99 - 1.0) * 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_interval_is_students() {
        // Differences of -1, 0 and 1 percent: mean 0, deviation 1, t = 4.303 at two degrees.
        let windows = [(1, 9900), (2, 10_000), (3, 10_100)]
            .into_iter()
            .flat_map(|(pair, ops)| {
                [
                    window(pair, Observing::Nothing, 10_000),
                    window(pair, Observing::Proc, ops),
                ]
            })
            .collect();
        let found = throughput(&document(windows), Observing::Proc, Observing::Nothing);
        assert!(found.mean.abs() < 1e-9);
        assert!((found.high - 4.303 / 3f64.sqrt()).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn a_window_without_its_partner_is_no_pair() {
        let windows = vec![
            window(1, Observing::Nothing, 100),
            window(2, Observing::Bpf, 100),
            window(3, Observing::Nothing, 0),
            window(3, Observing::Bpf, 100),
        ];
        let document = document(windows);
        assert!(document.comparisons.iter().all(|c| c.throughput.is_none()));
        assert!(document.table().contains("unknown"));
    }
}
