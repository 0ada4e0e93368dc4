//! Probes against real servers, started for the test in a directory that vanishes with it.
//!
//! `make test` runs these (they are ignored otherwise); `scripts/setup --test` installs the servers.
//! Each one shows that work is counted, that waiting work is seen, and that a wrong password or certificate
//! is reported. A server that is stopped, killed or restarted never blocks the probe, and is found again.

mod certificates;
mod mariadb;
mod nginx;
mod postgres;
mod redis;
mod start;
mod tls;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use justitia_probe::{run, Config, Error, Event, Happening, Measurement, Objective, Open, Sink};
use justitia_probe::{Target, Trouble};

/// The probe's timeout in these tests.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time that a client needs to notice anything.
const LIMIT: Duration = Duration::from_secs(4);

/// Measures until it fits, for at most half a minute.
fn until(target: &mut dyn Target, fits: impl Fn(&Measurement) -> bool) -> Measurement {
    let start = Instant::now();
    loop {
        let result = target.measure();
        match result {
            Ok(seen) if fits(&seen) => return seen,
            result => assert!(
                start.elapsed() < Duration::from_secs(30),
                "still {result:?}"
            ),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Measures until it works.
fn ready(target: &mut dyn Target) {
    until(target, |_| true);
}

/// Measures; it must fail soon.
fn fails(target: &mut dyn Target) -> Trouble {
    let start = Instant::now();
    let trouble = target.measure().unwrap_err();
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    trouble
}

/// Stopped, continued, killed and started again: no measurement meanwhile, measurements after.
fn survives_everything(server: &mut start::Server, target: &mut dyn Target) {
    ready(target);
    server.signal(start::STOP);
    fails(target);
    server.signal(start::CONTINUE);
    ready(target);
    server.kill();
    fails(target);
    server.start_again();
    ready(target);
}

/// Remembers what was declared.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<(Instant, String)>>>);

impl Sink for Ear {
    fn declare(&mut self, value: &str) -> Result<(), Error> {
        let mut heard = self.0.lock().unwrap();
        heard.push((Instant::now(), value.to_owned()));
        Ok(())
    }
}

impl Ear {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The whole loop over a server that hangs, and is killed and started again: the color goes stale
/// each time and comes back, and the loop is never late.
fn goes_stale_and_recovers(server: &mut start::Server, open: Open) {
    let config = Config {
        open,
        objective: Objective {
            max_latency: Some(Duration::from_millis(500)),
            ..Objective::default()
        },
        window: 3,
        interval: Duration::from_millis(200),
        timeout: TIMEOUT,
    };
    let (sender, receiver) = channel();
    let stop = sender.clone();
    let ear = Ear::default();
    let mut sink = ear.clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let probe = thread::spawn(move || {
        run(&config, &mut sink, (sender, &receiver), &mut |happening| {
            let text = match happening {
                Happening::Lost(trouble) => format!("lost: {trouble}"),
                Happening::Found { .. } => "found".to_owned(),
                _ => return,
            };
            telling.lock().unwrap().push(text);
        })
    });
    let declares = |what: &str| {
        let (before, start) = (ear.count(), Instant::now());
        while ear.count() < before + 5 {
            assert!(start.elapsed() < Duration::from_secs(30), "not {what}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    let silent = |what: &str| {
        thread::sleep(Duration::from_secs(3));
        let before = ear.count();
        thread::sleep(Duration::from_secs(1));
        assert_eq!(ear.count(), before, "declares while {what}");
    };
    declares("declared at first");
    server.signal(start::STOP);
    silent("the server hangs");
    server.signal(start::CONTINUE);
    declares("declared after the server went on");
    server.kill();
    silent("the server is dead");
    server.start_again();
    declares("declared after the server was started again");
    stop.send(Event::Stop).unwrap();
    let asked = Instant::now();
    probe.join().unwrap().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "does not stop");
    let told = told.lock().unwrap();
    let lost = told.iter().filter(|line| line.starts_with("lost")).count();
    let found = told.iter().filter(|line| *line == "found").count();
    // Once for each outage; while a server starts, it may report another cause.
    assert!((2..=6).contains(&lost), "{told:?}");
    assert!((2..=4).contains(&found), "{told:?}");
}
