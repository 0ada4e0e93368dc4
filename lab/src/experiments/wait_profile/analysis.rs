//! Computes the table of reasons from places. Pure.
//!
//! Times are thread-seconds: two tasks that each wait for a second wait for two. Shares are of all waiting,
//! including spinning. Voluntary sleep of a program is not waiting.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::classify::{classify, known_by, Class, Reason};
use crate::analysis::record::RunRecord;
use crate::experiment::Analysis;
use crate::protocol::{Facts, Place, WaitProfile};
use crate::report::table::{Cell, Table};

/// Maximum number of functions that the table shows for an unnamed wait.
const SHOWN: usize = 6;
/// Smallest time shown, thread-seconds.
const LEAST_S: f64 = 0.005;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub kernel: String,
    pub command: String,
    /// Facts about the guest, its machine and the load.
    pub environment: Facts,
    pub seconds: f64,
    /// Number of tasks of the load that were seen.
    pub tasks: u64,
    /// Reads and writes of all containers while the load ran, 10^6 bytes per second.
    pub total_mb_per_s: Option<f64>,
    /// Reasons, in the order of the table.
    pub reasons: Vec<Waited>,
    /// All waiting, thread-seconds.
    pub waiting_s: f64,
    /// On a CPU, spinning included.
    pub running_s: f64,
    /// Asleep by the program's own choice.
    pub resting_s: f64,
    /// The three above relative to tasks times window: 1, except for what the programs missed.
    pub accounted: Option<f64>,
    pub no_spinning: Option<String>,
    /// Records lost because the programs' maps were full.
    pub lost: u64,
    /// Every stack, sorted by time.
    pub places: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    pub reason: Reason,
    /// Thread-seconds; `None`: not measured.
    pub seconds: Option<f64>,
    pub times: u64,
    /// Fraction of all waiting, 0 to 1.
    pub share: Option<f64>,
    /// Functions in which tasks waited for this reason, sorted by time.
    pub functions: Vec<Function>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    pub seconds: f64,
}

impl Document {
    /// Analyzes the profile of a guest; `machine`: facts about the virtual machine.
    pub fn of(guest: &RunRecord, seen: &WaitProfile, machine: Facts, command: String) -> Self {
        let mut environment = guest.head.environment.clone();
        environment.extend(machine);
        let complaints = guest.head.kernel_complaints.join("\n");
        environment.insert("kernel_complaints".into(), complaints);
        let recorded = Self {
            kernel: guest.head.kernel.clone(),
            command,
            environment,
            seconds: seen.seconds,
            tasks: seen.tasks,
            total_mb_per_s: total(guest),
            no_spinning: seen.no_spinning.clone(),
            lost: seen.lost,
            places: seen.places.clone(),
            ..Self::default()
        };
        recorded.analyze()
    }

    /// Recomputes everything that follows from the places.
    #[must_use]
    pub fn analyze(self) -> Self {
        let mut sums: BTreeMap<Class, Sum> = BTreeMap::new();
        for place in &self.places {
            sums.entry(classify(place)).or_default().add(place);
        }
        let spent = |class| sums.get(&class).map_or(0.0, |sum: &Sum| seconds(sum.ns));
        let waiting_s = Reason::all().map(|r| spent(Class::Wait(r))).sum();
        let reasons = Reason::all().map(|reason| {
            let unseen = self.no_spinning.is_some() && reason.is_spinning();
            let sum = sums.get(&Class::Wait(reason));
            let waited_s = (!unseen).then(|| spent(Class::Wait(reason)));
            Waited {
                reason,
                seconds: waited_s,
                times: sum.map_or(0, |sum| sum.times),
                share: waited_s.filter(|_| waiting_s > 0.0).map(|s| s / waiting_s),
                functions: sum.map_or_else(Vec::new, Sum::functions),
            }
        });
        let (running_s, resting_s) = (spent(Class::Work), spent(Class::Rest));
        // Spinning is part of running.
        let spinning = Reason::all().filter(|r| r.is_spinning());
        let spinning_s: f64 = spinning.map(|r| spent(Class::Wait(r))).sum();
        let known_s = waiting_s - spinning_s + running_s + resting_s;
        let all_s = self.tasks as f64 * self.seconds;
        Self {
            reasons: reasons.collect(),
            waiting_s,
            running_s,
            resting_s,
            accounted: (all_s > 0.0).then(|| known_s / all_s),
            ..self
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

    /// The record without the stacks.
    fn summary(&self) -> Value {
        let mut value = self.record();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("places");
        }
        value
    }

    fn again(self: Box<Self>) -> Box<dyn Analysis> {
        Box::new(self.analyze())
    }

    fn table(&self) -> String {
        let spent = |s: f64| Cell::from(format!("{s:.3}"));
        let title = format!(
            "where the load waited on Linux {}, {:.0} s of {} tasks",
            self.kernel, self.seconds, self.tasks
        );
        let mut table = Table::new(&title, ["reason", "thread-seconds", "share", "times"]);
        for waited in &self.reasons {
            let share = waited.share.map(|share| format!("{:.2} %", share * 100.0));
            table.row([
                waited.reason.name().into(),
                waited.seconds.map_or("unknown".into(), spent),
                share.unwrap_or("unknown".to_owned()).into(),
                waited.times.into(),
            ]);
            if matches!(waited.reason, Reason::Else | Reason::OtherSpinlock) {
                let shown = waited.functions.iter().filter(|f| f.seconds >= LEAST_S);
                for function in shown.take(SHOWN) {
                    table.row([
                        format!("  {}", function.name).into(),
                        spent(function.seconds),
                    ]);
                }
            }
        }
        table.row(["all waiting".into(), spent(self.waiting_s), "100 %".into()]);
        table.row(["on a CPU, spinning in it".into(), spent(self.running_s)]);
        table.row(["asleep by their own choice".into(), spent(self.resting_s)]);
        let mut text = table.text();
        if let Some(accounted) = self.accounted {
            let _ = writeln!(text, "\naccounted for: {:.2} %", accounted * 100.0);
        }
        if let Some(total) = self.total_mb_per_s {
            let _ = writeln!(text, "reads and writes of the load: {total:.1} MB/s");
        }
        if let Some(why) = &self.no_spinning {
            let _ = writeln!(text, "spinning was not traced: {why}");
        }
        if self.lost > 0 {
            let _ = writeln!(text, "{} waits found no room and are missing", self.lost);
        }
        text
    }
}

/// Totals of the places of one class.
#[derive(Default)]
struct Sum {
    ns: u64,
    times: u64,
    functions: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, place: &Place) {
        self.ns += place.ns;
        self.times += place.times;
        let name = known_by(place).to_owned();
        *self.functions.entry(name).or_default() += place.ns;
    }

    fn functions(&self) -> Vec<Function> {
        let mut functions: Vec<(&String, &u64)> = self.functions.iter().collect();
        functions.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let named = functions.into_iter().map(|(name, ns)| Function {
            name: name.clone(),
            seconds: seconds(*ns),
        });
        named.collect()
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Bandwidth of all containers over the whole run.
fn total(guest: &RunRecord) -> Option<f64> {
    let all = guest.series.iter();
    let bytes: u64 = all.filter_map(|c| c.all_bytes().last().copied()).sum();
    (guest.seconds > 0.0).then(|| bytes as f64 / 1e6 / guest.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Doing;

    fn place(doing: Doing, frames: &[&str], seconds: u64) -> Place {
        Place {
            doing,
            frames: frames.iter().map(|f| (*f).to_owned()).collect(),
            ns: seconds * 1_000_000_000,
            times: 10,
        }
    }

    fn analyzed(no_spinning: Option<&str>) -> Document {
        let settings = crate::tests::fixture::settings("fileserver");
        let job = settings.job(settings.choices.policies[0], 0);
        let seen = WaitProfile {
            seconds: 10.0,
            tasks: 10,
            places: vec![
                place(Doing::Runnable, &[], 40),
                place(Doing::Blocked, &["schedule", "balance_dirty_pages"], 20),
                place(Doing::Running, &[], 20),
                place(Doing::Blocked, &["schedule", "futex_wait"], 10),
                place(
                    Doing::Blocked,
                    &["schedule", "somewhere_new", "submit_bio"],
                    8,
                ),
                place(Doing::Spinning, &["_raw_spin_lock", "rmqueue_bulk"], 2),
            ],
            no_spinning: no_spinning.map(str::to_owned),
            lost: 0,
        };
        let machine = BTreeMap::new();
        Document::of(
            &crate::tests::fixture::report(&job),
            &seen,
            machine,
            "justitia".into(),
        )
    }

    fn waited(document: &Document, reason: Reason) -> &Waited {
        let mut all = document.reasons.iter();
        all.find(|w| w.reason == reason)
            .expect("every reason is there")
    }

    #[test]
    fn shares_are_of_all_waiting_and_rest_is_no_waiting() {
        let document = analyzed(None);
        assert!((document.waiting_s - 70.0).abs() < 1e-9);
        assert!((document.resting_s - 10.0).abs() < 1e-9);
        let shares = document.reasons.iter().filter_map(|w| w.share);
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
        let dirty = waited(&document, Reason::BalanceDirtyPages);
        assert!((dirty.share.unwrap() - 20.0 / 70.0).abs() < 1e-9);
    }

    #[test]
    fn spinning_is_waiting_and_part_of_running_so_it_is_accounted_once() {
        let document = analyzed(None);
        assert!((document.accounted.unwrap() - 0.98).abs() < 1e-9);
        assert_eq!(waited(&document, Reason::ZoneLock).seconds, Some(2.0));
    }

    #[test]
    fn spinning_that_was_not_looked_at_is_unknown_not_zero() {
        let document = analyzed(Some("no such function"));
        assert_eq!(waited(&document, Reason::LruLock).seconds, None);
        assert_eq!(waited(&document, Reason::LruLock).share, None);
        assert!(document.table().contains("no such function"));
    }

    #[test]
    fn the_table_names_what_no_rule_does_and_its_columns_align() {
        let table = analyzed(None).table();
        assert!(table.contains("  somewhere_new"), "{table}");
        let times = |line: &&str| line.ends_with("     10") || line.ends_with("      0");
        let ends: Vec<usize> = table.lines().filter(times).map(str::len).collect();
        assert_eq!(ends.len(), Reason::all().count(), "{table}");
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }

    #[test]
    fn the_record_reads_back_the_same() {
        let document = analyzed(None);
        assert_eq!(
            serde_json::from_value::<Document>(document.record()).unwrap(),
            document
        );
        assert!(document.summary().get("places").is_none());
        assert_eq!(document.clone().analyze(), document);
    }
}
