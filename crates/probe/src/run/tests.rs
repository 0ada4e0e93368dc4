//! The loop against targets that hang, fail, recover, and are slow.

use super::*;
use crate::targets::Target;
use justitia_report::Exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

const TICK: Duration = Duration::from_millis(40);

/// A target that runs the script at each measurement, with the number of earlier ones.
struct Scripted(
    Arc<dyn Fn(u64) -> Result<Measurement, Trouble> + Send + Sync>,
    Arc<AtomicU64>,
);

impl Target for Scripted {
    fn measure(&mut self) -> Result<Measurement, Trouble> {
        (self.0)(self.1.fetch_add(1, Ordering::SeqCst))
    }
}

#[derive(Default)]
struct Heard {
    values: Vec<String>,
    refuse: bool,
}

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Heard>>);

impl Sink for Ear {
    fn declare(&mut self, value: &str) -> Result<(), Error> {
        let mut heard = self.0.lock().unwrap();
        if heard.refuse {
            return Err(Error::environment("no right", "be root"));
        }
        heard.values.push(value.to_owned());
        Ok(())
    }
}

fn says(color: Color) -> Measurement {
    Measurement {
        color: Some(color),
        ..Measurement::default()
    }
}

fn config(script: impl Fn(u64) -> Result<Measurement, Trouble> + Send + Sync + 'static) -> Config {
    let script: Arc<dyn Fn(u64) -> Result<Measurement, Trouble> + Send + Sync> = Arc::new(script);
    let count = Arc::new(AtomicU64::new(0));
    Config {
        open: Arc::new(move || Box::new(Scripted(Arc::clone(&script), Arc::clone(&count)))),
        objective: Objective {
            max_latency: Some(Duration::from_millis(50)),
            ..Objective::default()
        },
        window: 1,
        interval: TICK,
        timeout: 4 * TICK,
    }
}

/// Runs for `time`; returns what was declared and what was reported.
fn run_for(config: &Config, ear: &Ear, time: Duration) -> (Vec<String>, Vec<String>) {
    let (sender, receiver) = channel();
    let stop = sender.clone();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        let _ = stop.send(Event::Stop);
    });
    let mut told = Vec::new();
    let start = Instant::now();
    run(
        config,
        &mut ear.clone(),
        (sender, &receiver),
        &mut |happening| {
            told.push(match happening {
                Happening::Lost(trouble) => format!("lost: {trouble}"),
                Happening::Found { .. } => "found".to_owned(),
                Happening::Changed { verdict, .. } => format!("changed: {}", verdict.color),
                Happening::Undeclared(error) => format!("undeclared: {error}"),
                Happening::Declared => "declared".to_owned(),
                Happening::Period { .. } | Happening::Silent(_) => return,
            });
        },
    )
    .unwrap();
    assert!(
        start.elapsed() < time + Duration::from_millis(500),
        "the loop was blocked: {:?}",
        start.elapsed()
    );
    let values = ear.0.lock().unwrap().values.clone();
    (values, told)
}

#[test]
fn each_declaration_differs_from_the_one_before() {
    let config = config(|_| Ok(says(Color::Green)));
    let (values, told) = run_for(&config, &Ear::default(), 10 * TICK);
    assert!(values.len() >= 5, "{values:?}");
    assert_eq!(values[0], "red 0 starting");
    assert_eq!(values[1], "green 1 says green");
    assert!(
        values.windows(2).all(|pair| pair[0] != pair[1]),
        "{values:?}"
    );
    assert_eq!(told, ["changed: green"]);
}

#[test]
fn a_target_that_hangs_is_not_declared_and_is_reported_once() {
    let config = config(|_| {
        std::thread::sleep(Duration::from_secs(3));
        Ok(says(Color::Green))
    });
    let config = Config {
        objective: Objective::default(),
        ..config
    };
    let (values, told) = run_for(&config, &Ear::default(), 20 * TICK);
    assert_eq!(values, ["red 0 starting"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("lost: no answer within"), "{told:?}");
}

#[test]
fn an_answer_that_is_late_but_comes_is_slow_and_not_absent() {
    let config = config(|_| {
        std::thread::sleep(Duration::from_millis(110));
        Ok(Measurement {
            latency_seconds: Some(0.11),
            ..Measurement::default()
        })
    });
    let config = Config {
        timeout: Duration::from_secs(5),
        ..config
    };
    let (values, told) = run_for(&config, &Ear::default(), 20 * TICK);
    assert!(
        values.iter().any(|value| value.contains("no answer yet")),
        "{values:?}"
    );
    assert!(
        values.iter().all(|value| value.starts_with("red ")),
        "{values:?}"
    );
    assert!(
        !told.iter().any(|told| told.starts_with("lost")),
        "{told:?}"
    );
}

#[test]
fn a_measurement_that_takes_many_periods_is_no_gap() {
    let config = config(|_| {
        std::thread::sleep(8 * TICK);
        Ok(says(Color::Green))
    });
    let config = Config {
        objective: Objective::default(),
        window: 3,
        timeout: Duration::from_secs(5),
        ..config
    };
    let (values, _) = run_for(&config, &Ear::default(), 60 * TICK);
    assert!(values.last().unwrap().starts_with("green "), "{values:?}");
}

#[test]
fn a_target_that_fails_is_reported_once_and_found_again() {
    let config = config(|n| match n {
        0 | 3.. => Ok(says(Color::Green)),
        _ => Err(Trouble::failed("connection refused", "start it")),
    });
    let (values, told) = run_for(&config, &Ear::default(), Duration::from_millis(3600));
    assert_eq!(
        told,
        ["changed: green", "lost: connection refused", "found"]
    );
    assert!(values.last().unwrap().starts_with("green "), "{values:?}");
}

#[test]
fn a_dead_target_is_not_hammered() {
    let tries = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&tries);
    let config = config(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Err(Trouble::failed("connection refused", "start it"))
    });
    run_for(&config, &Ear::default(), Duration::from_millis(2500));
    assert!((2..=3).contains(&tries.load(Ordering::SeqCst)), "{tries:?}");
}

#[test]
fn targets_that_hang_do_not_pile_up_threads() {
    let open = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&open);
    let config = config(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(30));
        Ok(says(Color::Green))
    });
    let config = Config {
        timeout: TICK,
        ..config
    };
    let (sender, _receiver) = channel();
    let mut sampler = Sampler::new(config.open.clone(), sender);
    let mut now = Instant::now();
    for _ in 0..20 {
        sampler.ask(now);
        now += Duration::from_secs(60);
        sampler.give_up(now);
        now += Duration::from_secs(60);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(open.load(Ordering::SeqCst), 3);
}

#[test]
fn a_color_that_cannot_be_declared_at_first_ends_the_probe() {
    let config = config(|_| Ok(says(Color::Green)));
    let ear = Ear::default();
    ear.0.lock().unwrap().refuse = true;
    let (sender, receiver) = channel();
    let result = run(&config, &mut ear.clone(), (sender, &receiver), &mut |_| {});
    assert_eq!(result.unwrap_err().exit, Exit::Environment);
}

#[test]
fn a_right_that_is_lost_later_is_reported_once_and_the_probe_goes_on() {
    let ear = Ear::default();
    let theirs = ear.clone();
    let config = config(move |n| {
        theirs.0.lock().unwrap().refuse = (3..6).contains(&n);
        Ok(says(Color::Green))
    });
    let (_, told) = run_for(&config, &ear, 15 * TICK);
    assert_eq!(told, ["changed: green", "undeclared: no right", "declared"]);
}

#[test]
fn periods_that_were_missed_are_not_made_up_for() {
    let start = Instant::now();
    let late = start + Duration::from_secs(10);
    assert_eq!(following(start, TICK, start), start + TICK);
    assert_eq!(following(start, TICK, late), late + TICK);
}

#[test]
fn once_measures_a_growing_counter_twice() {
    struct Grows(u64);
    impl Target for Grows {
        fn measure(&mut self) -> Result<Measurement, Trouble> {
            self.0 += 1;
            Ok(Measurement {
                value: Some(self.0 as f64),
                ..Measurement::default()
            })
        }
        fn needs_two(&self) -> bool {
            true
        }
    }
    let config = Config {
        open: Arc::new(|| Box::new(Grows(0))),
        ..config(|_| Ok(says(Color::Green)))
    };
    let (sender, receiver) = channel();
    let verdict = once(&config, (sender, &receiver)).unwrap();
    assert_eq!(verdict.reason, "value 2");
}
