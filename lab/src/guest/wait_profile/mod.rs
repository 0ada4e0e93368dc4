//! Measures, with BPF programs (`bpf/waits.bpf.c`), where the tasks of the load spend a window of time.
//!
//! The programs are attached while the load is quiet and know the window before it begins, so there are no
//! edge effects. Spinning is skipped if the kernel refuses programs at its slow path; the report then says
//! so.
//!
//! Invariant: nothing is pinned, so the programs are detached with the [`Tracer`].

mod symbols;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use libbpf_rs::{Link, Map, MapCore as _, MapFlags, Object};

use super::files;
use crate::load::clock::{monotonic_ns, sleep_until};
use crate::protocol::{Doing, Place, WaitProfile};
use symbols::Symbols;

// The record definitions of `bpf/record.h`.
include!(concat!(env!("OUT_DIR"), "/waits.rs"));

use generated::types;

const _: () = assert!(size_of::<types::state>() == 16);
const _: () = assert!(size_of::<types::place>() == 8);
const _: () = assert!(size_of::<types::spent>() == 16);
const _: () = assert!(size_of::<types::control>() == 32);

/// The section that both sides write.
const CONTROL: &str = ".data.control";
/// Prefix of the programs at the slow path of spinlocks.
const SPIN: &str = "spin_";
/// A program still running when the others are stopped has ended after this.
const GRACE: Duration = Duration::from_millis(50);

/// Profiles a group for this many seconds, from now, and prints the report.
pub fn look(group: &Path, seconds: u32) -> Result<()> {
    let tracer = Tracer::start(group)?;
    let begin_ns = monotonic_ns();
    tracer.set_window(begin_ns, begin_ns + u64::from(seconds) * 1_000_000_000)?;
    let report = serde_json::to_string(&tracer.take()?)?;
    Ok(writeln!(std::io::stdout(), "{report}")?)
}

pub struct Tracer {
    /// Before the object, so that programs are detached first.
    _links: Vec<Link>,
    object: Object,
    no_spinning: Option<String>,
}

impl Tracer {
    /// Attaches the programs for tasks of `group` and the groups below it. Fails if the kernel refuses the
    /// programs at the scheduler's tracepoints.
    pub fn start(group: &Path) -> Result<Self> {
        let cgroup = fs::metadata(group)
            .with_context(|| format!("cannot look at {}", group.display()))?
            .ino();
        let path = group.strip_prefix(super::setup::CGROUP)?;
        let level = path.components().count() as u32;
        let (object, no_spinning) = match load(cgroup, level, true) {
            Ok(object) => (object, None),
            Err(why) => (load(cgroup, level, false)?, Some(format!("{why:#}"))),
        };
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if no_spinning.is_some() && name.starts_with(SPIN) {
                continue;
            }
            let link = program.attach();
            links.push(link.with_context(|| format!("cannot attach the program {name}"))?);
        }
        Ok(Self {
            _links: links,
            object,
            no_spinning,
        })
    }

    /// Sets the window, on the monotonic clock.
    pub fn set_window(&self, begin_ns: u64, end_ns: u64) -> Result<()> {
        self.write_control(|control| {
            put(control, offset_of!(types::control, begin_ns), begin_ns);
            put(control, offset_of!(types::control, end_ns), end_ns);
        })
    }

    /// Stops the programs after the window and reads their results.
    pub fn take(&self) -> Result<WaitProfile> {
        let control = self.control()?;
        let begin_ns = get(&control, offset_of!(types::control, begin_ns));
        let end_ns = get(&control, offset_of!(types::control, end_ns));
        ensure!(end_ns > begin_ns, "the tracer was given no window");
        sleep_until(end_ns);
        self.write_control(|control| put(control, offset_of!(types::control, stopped), 1))?;
        thread::sleep(GRACE);

        let mut spent: BTreeMap<(u32, i32), (u64, u64)> = BTreeMap::new();
        let mut add = |doing: u32, stack: i32, ns: u64, times: u64| {
            let sum = spent.entry((doing, stack)).or_default();
            sum.0 += ns;
            sum.1 += times;
        };
        let places = self.map("places")?;
        for key in places.keys() {
            let (stack, doing) = (int(&key, offset_of!(types::place, stack)), int(&key, 4));
            let per_cpu = places.lookup_percpu(&key, MapFlags::ANY)?;
            for value in per_cpu.unwrap_or_default() {
                let ns = get(&value, offset_of!(types::spent, ns));
                let times = get(&value, offset_of!(types::spent, times));
                add(doing as u32, stack, ns, times);
            }
        }
        // States that began and have not ended.
        let states = self.map("states")?;
        let mut tasks = 0;
        for key in states.keys() {
            let Some(value) = states.lookup(&key, MapFlags::ANY)? else {
                continue;
            };
            tasks += 1;
            let since = get(&value, offset_of!(types::state, since_ns)).max(begin_ns);
            let stack = int(&value, offset_of!(types::state, stack));
            let doing = int(&value, offset_of!(types::state, doing)) as u32;
            if since < end_ns {
                add(doing, stack, end_ns - since, 1);
            }
        }
        Ok(WaitProfile {
            seconds: (end_ns - begin_ns) as f64 / 1e9,
            tasks,
            places: self.named(&spent)?,
            no_spinning: self.no_spinning.clone(),
            lost: get(&self.control()?, offset_of!(types::control, lost)),
        })
    }

    /// Resolves stacks to function names and merges stacks with the same names.
    fn named(&self, spent: &BTreeMap<(u32, i32), (u64, u64)>) -> Result<Vec<Place>> {
        let symbols = Symbols::parse(&files::read(Path::new("/proc/kallsyms"))?);
        let stacks = self.map("stacks")?;
        let mut sums: BTreeMap<(Doing, Vec<String>), (u64, u64)> = BTreeMap::new();
        for (&(doing, stack), &(ns, times)) in spent {
            let doing = doing_of(doing).context("the programs tell of an unknown state")?;
            let frames = match u32::try_from(stack) {
                Ok(id) => stacks.lookup(&id.to_ne_bytes(), MapFlags::ANY)?,
                Err(_) => None,
            };
            let frames = frames.map_or_else(Vec::new, |bytes| names(&symbols, &bytes));
            let sum = sums.entry((doing, frames)).or_default();
            sum.0 += ns;
            sum.1 += times;
        }
        let mut places: Vec<Place> = sums
            .into_iter()
            .map(|((doing, frames), (ns, times))| Place {
                doing,
                frames,
                ns,
                times,
            })
            .collect();
        places.sort_by(|a, b| (b.ns, &a.frames).cmp(&(a.ns, &b.frames)));
        Ok(places)
    }

    fn map(&self, name: &'static str) -> Result<Map<'_>> {
        let mut maps = self.object.maps();
        maps.find(|map| map.name() == name)
            .ok_or_else(|| anyhow!("the programs have no map {name}"))
    }

    fn control(&self) -> Result<Vec<u8>> {
        let value = self.map(CONTROL)?.lookup(&[0; 4], MapFlags::ANY)?;
        value.context("the programs cannot be controlled")
    }

    fn write_control(&self, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut control = self.control()?;
        change(&mut control);
        let map = self.map(CONTROL)?;
        Ok(map.update(&[0; 4], &control, MapFlags::ANY)?)
    }
}

/// Loads the programs for the tasks of a cgroup at this level.
fn load(cgroup: u64, level: u32, spinning: bool) -> Result<Object> {
    let wanted = |name: &str| spinning || !name.starts_with(SPIN);
    let mut settings = [0; size_of::<types::settings>()];
    put(&mut settings, offset_of!(types::settings, cgroup), cgroup);
    let at = offset_of!(types::settings, level);
    settings[at..at + 4].copy_from_slice(&level.to_ne_bytes());
    let object = justitia_bpf::object!("waits");
    justitia_bpf::load("justitia_waits", object, &wanted, &settings).map_err(|error| {
        match justitia_bpf::reason() {
            Some(line) => anyhow!("the kernel refuses the programs: {line}"),
            None => anyhow!("the programs cannot be loaded: {error}"),
        }
    })
}

fn doing_of(number: u32) -> Option<Doing> {
    match types::doing(number) {
        types::doing::RUNNING => Some(Doing::Running),
        types::doing::RUNNABLE => Some(Doing::Runnable),
        types::doing::BLOCKED => Some(Doing::Blocked),
        types::doing::SPINNING => Some(Doing::Spinning),
        _ => None,
    }
}

/// The functions of a stack. All addresses but the first are return addresses, one behind the call.
fn names(symbols: &Symbols, stack: &[u8]) -> Vec<String> {
    let addresses = stack.chunks_exact(8).map(|bytes| get(bytes, 0));
    addresses
        .take_while(|address| *address != 0)
        .enumerate()
        .map(|(depth, address)| {
            let inside = address - u64::from(depth > 0);
            let name = symbols.name(inside).unwrap_or("unknown");
            name.to_owned()
        })
        .collect()
}

fn get(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}
