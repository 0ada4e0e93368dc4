//! Two machines on a host that is short of memory: one rereads the same data, the other reads a long stream.
//! Records how much the page cache holds of each, second by second, and from which one memory is taken (the
//! paper's figure 7).
//!
//! The host is this one. A process makes its memory scarce: it takes anonymous memory and gives some of it
//! back, so that free memory plus page cache stays at [`LEFT_BYTES`] whatever else the host does. That
//! process is the first OOM victim if memory runs out after all, and ends by itself before that.
//!
//! Other machines on the host count too, with a hundredth of the weight of these two.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use justitia_lab::guest::files::meminfo_bytes;
use justitia_lab::report::{charts, style};
use serde_json::Value;

use crate::pressure::read_on;
use crate::setup::fill;
use crate::{drop_cached, setup, Guest, ImageCache, Killed, Setup, MIB};

/// Free memory plus page cache.
const LEFT_BYTES: u64 = 1536 << 20;
/// The step in which memory is taken and given: more than what the allocator keeps for later.
const STEP_BYTES: u64 = 64 << 20;
/// Below this the taker ends.
const LEAST_AVAILABLE_BYTES: u64 = 600 << 20;
/// One machine rereads this much: less than its watermark, more than its guest's memory.
const AGAIN_MIB: u64 = 320;
/// The other machine reads this much from end to end: more than memory.
const LONG_BYTES: u64 = 2 << 30;
/// The other one starts after this.
const ALONE: Duration = Duration::from_secs(20);
const WATCHED: Duration = Duration::from_secs(100);
/// Set for the process that takes memory.
const TAKER: &str = "JUSTITIA_TEST_TAKES_MEMORY";
const POLICIES: [&str; 3] = ["default", "lfu", "justitia"];
const MACHINES: [&str; 2] = ["again", "stream"];

#[test]
#[ignore = "the program that another test starts"]
fn the_process_that_takes_memory() {
    if std::env::var_os(TAKER).is_none() {
        return;
    }
    fs::write("/proc/self/oom_score_adj", "1000").unwrap();
    // It ends with the test, however the test ends.
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut taken: Vec<Vec<u8>> = Vec::new();
    let mut told = false;
    loop {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let of = |key| meminfo_bytes(&text, key).unwrap();
        let left = of("MemFree") + of("Cached") + of("Buffers") - of("Shmem");
        if of("MemAvailable") < LEAST_AVAILABLE_BYTES {
            return;
        }
        if left > LEFT_BYTES + STEP_BYTES {
            taken.push(vec![1; STEP_BYTES as usize]);
            // Slowly: a host that is a virtual machine itself may get its memory on demand.
            sleep(Duration::from_millis(80));
        } else if left + STEP_BYTES < LEFT_BYTES && taken.pop().is_some() {
            continue;
        } else if !told {
            println!("@done");
            told = true;
        }
        sleep(Duration::from_millis(20));
    }
}

/// The process that makes memory scarce.
struct Taker(Killed);

impl Taker {
    fn start() -> Taker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture"])
            .arg("scarce::the_process_that_takes_memory")
            .env(TAKER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let taker = Taker(Killed(child));
        let mut line = String::new();
        while !line.ends_with("@done\n") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended");
        }
        taker
    }

    fn is_there(&mut self) -> bool {
        self.0 .0.try_wait().unwrap().is_none()
    }
}

/// One machine at one time. Bytes, except what its guest read.
#[derive(Debug, Clone, Copy)]
struct Usage {
    cached: u64,
    low: u64,
    evicted: u64,
    dropped: u64,
    read_mib: u64,
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    second: f64,
    free: u64,
    reserve: u64,
    machines: [Usage; 2],
}

/// `justitia vm --json`, once a second.
struct Watcher {
    _child: Killed,
    stdout: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(setup: &Setup) -> Watcher {
        let mut child = Command::new(&setup.justitia)
            .args(["vm", "--json", "--interval", "1s", "--state-dir"])
            .arg(&setup.dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Watcher {
            _child: Killed(child),
            stdout,
        }
    }

    fn look(&mut self, began: Instant, pids: [u32; 2], read: &[AtomicU64; 2]) -> Moment {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0);
        let report: Value = serde_json::from_str(&line).unwrap();
        let machines = report["machines"].as_array().unwrap();
        Moment {
            second: began.elapsed().as_secs_f64(),
            free: report["free_bytes"].as_u64().unwrap(),
            reserve: report["reserve_bytes"].as_u64().unwrap(),
            machines: [0, 1].map(|at: usize| {
                let is_it = |machine: &&Value| machine["pid"] == pids[at];
                let machine = machines.iter().find(is_it).unwrap();
                let of = |key: &str| machine[key].as_u64().unwrap();
                Usage {
                    cached: of("cached_bytes"),
                    low: of("low_watermark_bytes"),
                    evicted: of("evicted_bytes"),
                    dropped: of("dropped_bytes"),
                    read_mib: read[at].load(Ordering::Relaxed),
                }
            }),
        }
    }
}

fn watch(setup: &Setup, long: &Path, policy: &str, taker: &mut Taker) -> Vec<Moment> {
    let images = [setup.image.as_path(), long];
    images.into_iter().for_each(drop_cached);
    let mut guests = images.map(|image| Guest::boot(&setup.machine_of(image), "writeback"));
    let pids = [0, 1].map(|at: usize| guests[at].child.0.id());
    let weights = pids.map(|pid| format!("--weight=qemu-{pid}=10000"));
    let [again, stream] = &weights;
    let arguments = ["--policy", policy, again.as_str(), stream.as_str()];
    let _image_cache = ImageCache::start_with(&setup.justitia, &setup.dir, &arguments);
    let mut watcher = Watcher::start(setup);
    let read = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    let mut moments = Vec::new();
    thread::scope(|scope| {
        let plans = [(AGAIN_MIB, Duration::ZERO), (LONG_BYTES >> 20, ALONE)];
        for ((guest, read), (mib, after)) in guests.iter_mut().zip(&read).zip(plans) {
            let stop = &stop;
            scope.spawn(move || {
                sleep(after);
                read_on(guest, mib, read, stop);
            });
        }
        let began = Instant::now();
        while began.elapsed() < WATCHED && taker.is_there() {
            moments.push(watcher.look(began, pids, &read));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(taker.is_there(), "other work needs the memory");
    moments
}

/// A machine that gave memory between two samples was above its watermark.
fn assert_who_gives_is_above(policy: &str, moments: &[Moment]) {
    for pair in moments.windows(2) {
        for (at, name) in MACHINES.iter().enumerate() {
            let [before, after] = [pair[0].machines[at], pair[1].machines[at]];
            let given = after.evicted - before.evicted;
            let held = before.cached.max(after.cached) + given;
            // Free memory plus page cache changes by a step while the taker takes or gives, and the
            // watermarks by a quarter.
            let low = before.low.min(after.low) - STEP_BYTES / 4;
            assert!(
                given == 0 || held > low,
                "{policy}: {name} gave {given} of {held} below {low}: {pair:#?}"
            );
        }
    }
}

fn csv(policy: &str, moments: &[Moment], text: &mut String) {
    for moment in moments {
        for (name, usage) in MACHINES.iter().zip(moment.machines) {
            let _ = writeln!(
                text,
                "{policy},{:.1},{name},{},{},{},{},{},{},{}",
                moment.second,
                usage.cached,
                usage.low,
                usage.evicted,
                usage.dropped,
                usage.read_mib,
                moment.free,
                moment.reserve
            );
        }
    }
}

/// A row of charts for each policy: what is cached of each machine, with its watermark dashed.
fn page(results: &[(&str, Vec<Moment>)]) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let all = results.iter().flat_map(|(_, moments)| moments);
    let top = all.flat_map(|moment| moment.machines.map(|usage| usage.cached.max(usage.low)));
    let top = mb(top.max().unwrap());
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><style>\n{}</style></head><body><main>\n",
        style::sheet(MACHINES.len())
    );
    for (policy, moments) in results {
        let _ = writeln!(html, "<h3>{policy}</h3><div class=\"pair\">");
        let times: Vec<f64> = moments.iter().map(|moment| moment.second).collect();
        for (at, name) in MACHINES.iter().enumerate() {
            let usages = || moments.iter().map(|moment| moment.machines[at]);
            let cached: Vec<f64> = usages().map(|usage| mb(usage.cached)).collect();
            let low: Vec<Option<f64>> = usages().map(|usage| Some(mb(usage.low))).collect();
            let last = moments.last().unwrap().machines[at];
            let title = format!("{name}: MB cached; gave {:.0}", mb(last.evicted));
            let color = style::container_color(at);
            let svg = charts::page_cache(&title, &color, &times, &cached, &low, top);
            let _ = writeln!(html, "<figure>{svg}</figure>");
        }
        html.push_str("</div>\n");
    }
    html.push_str("</main></body></html>\n");
    html
}

#[test]
#[ignore = "boots virtual machines and takes the host's memory; takes a quarter of an hour"]
fn a_machine_above_its_watermark_gives_and_none_below_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let setup = setup(dir.path());
    let long = dir.path().join("long.img");
    fill(&long, LONG_BYTES);
    let mut taker = Taker::start();
    let mut results = Vec::new();
    let mut table =
        "policy,second,machine,cached_bytes,low_watermark_bytes,evicted_bytes,dropped_bytes,\
         read_mib,free_bytes,reserve_bytes\n"
            .to_owned();
    for policy in POLICIES {
        let moments = watch(&setup, &long, policy, &mut taker);
        csv(policy, &moments, &mut table);
        results.push((policy, moments));
    }
    drop(taker);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::write(out.join("vm-cache-usage.csv"), table).unwrap();
    fs::write(out.join("vm-cache-usage.html"), page(&results)).unwrap();
    println!("{}", out.join("vm-cache-usage.html").display());

    println!(
        "| policy | machine | read MiB | cached MiB, least to most | watermark | gave | not kept |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (policy, moments) in &results {
        // From when the stream may have filled the memory.
        let both = || (moments.iter()).filter(|moment| moment.second > 2.0 * ALONE.as_secs_f64());
        for (at, name) in MACHINES.iter().enumerate() {
            let of = |usage: fn(Usage) -> u64| both().map(move |m| usage(m.machines[at]));
            let mib = |bytes: u64| bytes as f64 / MIB;
            let [first, last] =
                [both().next(), both().next_back()].map(|m| m.unwrap().machines[at]);
            println!(
                "| {policy} | {name} | {} | {:.0} to {:.0} | {:.0} | {:.0} | {:.0} |",
                last.read_mib - first.read_mib,
                mib(of(|usage| usage.cached).min().unwrap()),
                mib(of(|usage| usage.cached).max().unwrap()),
                mib(last.low),
                mib(last.evicted),
                mib(last.dropped)
            );
        }
    }
    for (policy, moments) in &results {
        assert_who_gives_is_above(policy, moments);
        let [again, stream] = moments.last().unwrap().machines;
        match *policy {
            "default" => assert_eq!([again.evicted, stream.evicted], [0, 0], "only counted"),
            "lfu" => assert!(stream.evicted > STEP_BYTES, "the stream gives: {stream:?}"),
            _ => assert!(stream.dropped > STEP_BYTES, "it is not kept: {stream:?}"),
        }
        if *policy != "default" {
            assert_eq!(again.evicted, 0, "{policy}: who is below gives nothing");
        }
    }
}
