//! The loop of a probe: once a period it measures, judges and declares.
//!
//! A period declares at most once. It declares as soon as its measurement is there, or at its end if the
//! measurement is still under way but has already taken longer than the latency objective allows (a slow
//! answer is an answer; only one slower than the timeout is none). A period without either declares nothing,
//! so the color goes stale. Events are reported to a closure; nothing here prints.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::declare::{value, Sink};
use crate::judge::{Judge, Verdict};
use crate::measure::Measurement;
use crate::objective::Objective;
use crate::sampler::{Event, Open, Sampler};
use crate::words::time;
use crate::Trouble;
use justitia_report::error::Error;

use justitia_policy::color::Color;

pub struct Config {
    pub open: Open,
    /// The target's objective.
    pub objective: Objective,
    /// Measurements in the judge's window.
    pub window: usize,
    /// Time from one measurement to the next.
    pub interval: Duration,
    /// A measurement that takes longer than this hangs.
    pub timeout: Duration,
}

/// An event of the loop.
#[derive(Debug)]
pub enum Happening<'a> {
    /// A period ended, with a declaration.
    Period {
        /// Number of the declaration.
        count: u64,
        seen: &'a Measurement,
        verdict: &'a Verdict,
    },
    /// A period ended without anything to declare.
    Silent(&'a Trouble),
    /// The declared color changed.
    Changed {
        /// The color before; `None` at the start.
        from: Option<Color>,
        /// The color now, and why.
        verdict: &'a Verdict,
    },
    /// The target cannot be measured. Reported once, and again if the cause changes.
    Lost(&'a Trouble),
    /// The target can be measured again.
    Found {
        /// Time for which it could not be measured.
        after: Duration,
    },
    /// The color could not be declared; reported once.
    Undeclared(&'a Error),
    /// The color can be declared again.
    Declared,
}

/// Number of different causes that are reported while a target stays lost.
const MOST_CAUSES: u32 = 3;

struct Outage {
    since: Instant,
    cause: String,
    told: u32,
}

struct Loop<'a> {
    config: &'a Config,
    sampler: Sampler,
    sink: &'a mut dyn Sink,
    tell: &'a mut dyn FnMut(Happening<'_>),
    judge: Judge,
    count: u64,
    color: Option<Color>,
    outage: Option<Outage>,
    undeclared: bool,
}

/// Probes until [`Event::Stop`]. Returns an error if the color cannot be declared at all.
pub fn run(
    config: &Config,
    sink: &mut dyn Sink,
    events: (Sender<Event>, &Receiver<Event>),
    tell: &mut dyn FnMut(Happening<'_>),
) -> Result<(), Error> {
    let (sender, receiver) = events;
    let mut course = Loop {
        config,
        sampler: Sampler::new(config.open.clone(), sender),
        sink,
        tell,
        judge: Judge::new(config.objective.clone(), config.window),
        count: 0,
        color: None,
        outage: None,
        undeclared: false,
    };
    // The paper's start color. A probe that may not declare ends here.
    course.sink.declare(&value(Color::Red, 0, "starting"))?;
    let mut next = Instant::now();
    loop {
        course.sampler.ask(Instant::now());
        next = following(next, config.interval, Instant::now());
        if !course.period(receiver, next) {
            break;
        }
    }
    course.sink.withdraw();
    Ok(())
}

impl Loop<'_> {
    /// One period, until `end`; returns false if the probe has to end.
    fn period(&mut self, receiver: &Receiver<Event>, end: Instant) -> bool {
        let mut done = false;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Ok(Event::Answer { worker, result }) => {
                    if !self.sampler.answered(worker) || done {
                        continue;
                    }
                    done = true;
                    match result {
                        Ok(seen) => {
                            self.sampler.worked();
                            self.measured(&seen);
                        }
                        Err(trouble) => {
                            self.sampler.failed(Instant::now());
                            self.lost(&trouble);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        if !done {
            self.unanswered();
        }
        true
    }

    /// Ends a period in which no answer came.
    fn unanswered(&mut self) {
        let (now, timeout) = (Instant::now(), self.config.timeout);
        let Some(taken) = self.sampler.under_way(now) else {
            return self.silent();
        };
        if taken >= timeout {
            self.sampler.give_up(now);
            return self.lost(&Trouble::failed(
                format!("no answer within {}", time(timeout.as_secs_f64())),
                "check whether the server hangs; the probe keeps trying",
            ));
        }
        // Neither an answer nor a miss: the answer may still come.
        let max = self.config.objective.max_latency;
        if max.is_some_and(|max| taken > max) && self.outage.is_none() {
            self.measured(&Measurement {
                latency_seconds: Some(taken.as_secs_f64()),
                note: Some("no answer yet".to_owned()),
                ..Measurement::default()
            });
        }
    }

    fn measured(&mut self, seen: &Measurement) {
        if let Some(outage) = self.outage.take() {
            let after = outage.since.elapsed();
            (self.tell)(Happening::Found { after });
        }
        let verdict = self.judge.judge(seen.clone());
        self.count += 1;
        let declared = self
            .sink
            .declare(&value(verdict.color, self.count, &verdict.reason));
        match declared {
            Ok(()) if self.undeclared => {
                self.undeclared = false;
                (self.tell)(Happening::Declared);
            }
            Ok(()) => {}
            Err(error) => {
                if !self.undeclared {
                    (self.tell)(Happening::Undeclared(&error));
                }
                self.undeclared = true;
            }
        }
        (self.tell)(Happening::Period {
            count: self.count,
            seen,
            verdict: &verdict,
        });
        if self.color != Some(verdict.color) {
            let from = self.color.replace(verdict.color);
            (self.tell)(Happening::Changed {
                from,
                verdict: &verdict,
            });
        }
    }

    fn lost(&mut self, trouble: &Trouble) {
        self.judge.miss();
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: Instant::now(),
            cause: String::new(),
            told: 0,
        });
        if outage.cause != trouble.cause && outage.told < MOST_CAUSES {
            outage.told += 1;
            (self.tell)(Happening::Lost(trouble));
        }
        outage.cause.clone_from(&trouble.cause);
        (self.tell)(Happening::Silent(trouble));
    }

    /// A period in the pause between two tries.
    fn silent(&mut self) {
        self.judge.miss();
        let cause = self.outage.as_ref().map_or("not measured", |o| &o.cause);
        let trouble = Trouble::failed(cause, "the probe keeps trying");
        (self.tell)(Happening::Silent(&trouble));
    }
}

/// The start of the next period: one interval after the last one, or one interval from now if that is past.
fn following(last: Instant, interval: Duration, now: Instant) -> Instant {
    let next = last + interval;
    if next > now {
        next
    } else {
        now + interval
    }
}

/// Measures once, or twice if the first measurement is only a base for counters.
pub fn once(config: &Config, events: (Sender<Event>, &Receiver<Event>)) -> Result<Verdict, Error> {
    let (sender, receiver) = events;
    let twice = (config.open)().needs_two();
    let mut sampler = Sampler::new(config.open.clone(), sender);
    let mut answer = || {
        sampler.ask(Instant::now());
        match receiver.recv_timeout(config.timeout) {
            Ok(Event::Answer { worker, result }) => {
                sampler.answered(worker);
                result
            }
            Ok(Event::Stop) => Err(Error::failed("interrupted", "run it again")),
            Err(_) => Err(Error::failed(
                format!("no answer within {}", time(config.timeout.as_secs_f64())),
                "check whether the server hangs, or allow more with --timeout",
            )),
        }
    };
    let mut seen = answer()?;
    if twice {
        std::thread::sleep(config.interval);
        seen = answer()?;
    }
    Ok(Verdict {
        color: config.objective.color(&seen, Color::Green),
        reason: config.objective.describe(&seen),
    })
}

#[cfg(test)]
mod tests;
