//! A hostile tenant: an unprivileged user with a delegated cgroup and a `/run/user/UID`.
//!
//! The *lead* builds its world (hundreds of cgroups that look like containers, names that are too long or
//! contain terminal escapes, weights), prints `ready` and waits for a line. Then it attacks once per second
//! until its standard input ends: it forges records, states weights, creates and removes cgroups. In parallel
//! it runs its *parts*, each a process in a cgroup of its own. A failure is no error: an attack that the
//! kernel refuses does not count, and successful ones are counted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use rustix::fs::{mkdirat, mknodat, openat, setxattr, FileType, Mode, OFlags, XattrFlags, CWD};
use rustix::mm::{mmap, MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::protocol::{Attack, Attacks};

/// Directory of groups that come and go, below the tenant's cgroup.
pub const FLEETING: &str = "churn";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub attacks: Attacks,
    /// Directory of the tenant's cgroup.
    pub home: PathBuf,
    /// The same, relative to the cgroup mount.
    pub home_path: String,
    pub runtime: PathBuf,
    pub data: PathBuf,
    /// Cgroups of others, relative to the mount.
    pub others: Vec<String>,
}

/// Groups that look like containers: more than the agent manages per tenant.
const GROUPS: usize = 280;
/// Number of these groups that have a writer.
const WRITERS: usize = 4;
/// Records that look like those of containers: more than the agent reads per user.
const RECORDS: usize = 1100;
/// Depth of the group that does I/O, below the tenant's cgroup.
const LEVELS: usize = 24;
/// Nested names whose whole path is too long.
const LONG_NAMES: usize = 17;
/// The longest name, bytes.
const LONGEST_NAME: usize = 255;
/// Names with terminal escapes.
pub const ESCAPES: [&str; 3] = [
    "docker-\u{1b}[2J\u{1b}]0;owned\u{7}.scope",
    "docker-\u{9b}31m\r\u{202e}.scope",
    "docker-\u{1b}[1A\u{8}.scope",
];
/// Anonymous memory grows in pieces of this size.
const PIECE: usize = 16 << 20;
const PAGE: usize = 4096;

/// Executes the arguments: `lead PLAN`, or a part: `hog|map|write PLAN GROUP`.
pub fn run(arguments: &[&str]) -> Result<()> {
    let plan = |text: &str| serde_json::from_str::<Plan>(text).context("not a plan");
    match *arguments {
        ["lead", text] => lead(&plan(text)?),
        ["hog", text, group] => {
            enter(group)?;
            hog(plan(text)?.attacks.anon_bytes as usize);
            Ok(())
        }
        ["map", text, group] => {
            enter(group)?;
            let plan = plan(text)?;
            map(&plan.data.join("mapped"), plan.attacks.mapped_bytes)
        }
        ["write", text, group] => {
            enter(group)?;
            let name = group.rsplit('/').next().unwrap_or_default();
            write(&plan(text)?.data.join(name))
        }
        _ => bail!("no such part: {arguments:?}"),
    }
}

/// Moves this process into a cgroup, as the first victim of the OOM killer.
fn enter(group: &str) -> Result<()> {
    fs::write(Path::new(group).join("cgroup.procs"), "0")
        .with_context(|| format!("cannot enter {group}"))?;
    fs::write("/proc/self/oom_score_adj", "1000").context("cannot offer itself to the OOM killer")
}

/// Takes anonymous memory, holds it for a while and frees it by exiting.
fn hog(bytes: usize) {
    let mut held = Vec::new();
    while (held.len() + 1) * PIECE <= bytes {
        held.push(vec![1_u8; PIECE]);
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(10));
    std::hint::black_box(&held);
}

/// Maps a file, populates it and touches all of it repeatedly.
fn map(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)?;
    let piece = vec![1; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&piece)?;
    }
    let (length, flags) = (bytes as usize, MapFlags::SHARED | MapFlags::POPULATE);
    let anywhere = std::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice, of a file that nobody truncates.
    let start = unsafe { mmap(anywhere, length, ProtFlags::READ, flags, &file, 0)? };
    loop {
        for at in (0..length).step_by(PAGE) {
            // SAFETY: inside the mapping, which is never undone.
            std::hint::black_box(unsafe { start.cast::<u8>().add(at).read_volatile() });
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Writes a file through the page cache and reads it again, repeatedly.
fn write(path: &Path) -> Result<()> {
    let mut buffer = vec![1; 1 << 20];
    loop {
        let mut file = File::create(path)?;
        for _ in 0..8 {
            file.write_all(&buffer)?;
        }
        file.sync_data()?;
        let mut file = File::open(path)?;
        while file.read(&mut buffer)? > 0 {}
    }
}

/// Counts of successful attacks, by name.
#[derive(Debug, Default)]
struct Done(BTreeMap<String, u64>);

impl Done {
    /// Counts an attack that the kernel allowed.
    fn count<T, E>(&mut self, what: &str, result: &Result<T, E>) {
        if result.is_ok() {
            *self.0.entry(what.to_owned()).or_default() += 1;
        }
    }
}

fn lead(plan: &Plan) -> Result<()> {
    let mut done = Done::default();
    let world = build(plan, &mut done);
    println!("ready");
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            // The lead has ended, so nobody listens.
            let _ = sender.send(line);
        }
    });
    if lines.recv().is_ok() {
        let text = serde_json::to_string(plan)?;
        let mut parts = parts(plan, &world);
        let mut again = || parts.iter_mut().for_each(|part| part.again(&text));
        let mut round = 0;
        again();
        while lines.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            round += 1;
            attack(plan, &world, round, &mut done);
            again();
        }
        for part in &mut parts {
            done.0.extend(part.reached());
            part.stop();
        }
    }
    println!("{}", serde_json::to_string(&done.0)?);
    Ok(())
}

/// Actions that happen once before the attack begins, and again each second.
fn attack(plan: &Plan, world: &World, round: usize, done: &mut Done) {
    if plan.attacks.has(Attack::Attributes) {
        declare(world, round, done);
    }
    if plan.attacks.has(Attack::Records) {
        forge(plan, done);
    }
    if plan.attacks.has(Attack::Groups) && round > 0 {
        come_and_go(plan, round, done);
    }
}

/// The processes besides the lead, each with its group; not yet started.
fn parts(plan: &Plan, world: &World) -> Vec<Part> {
    let part = |role, group| Part {
        role,
        group,
        child: None,
    };
    let mut parts = Vec::new();
    if plan.attacks.has(Attack::Memory) {
        parts.push(part("hog", plan.home.join("docker-hog.scope")));
        parts.push(part("map", plan.home.join("docker-map.scope")));
    }
    parts.extend(world.deep.clone().map(|deep| part("write", deep)));
    if plan.attacks.has(Attack::Groups) {
        parts.extend((0..WRITERS).map(|n| part("write", looks_like(plan, n))));
    }
    parts
}

fn looks_like(plan: &Plan, number: usize) -> PathBuf {
    plan.home.join(format!("docker-{number}.scope"))
}

struct Part {
    role: &'static str,
    group: PathBuf,
    child: Option<Child>,
}

impl Part {
    /// Starts it if it does not run.
    fn again(&mut self, plan: &str) {
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if self.child.as_mut().is_some_and(running) {
            return;
        }
        let group = self.group.to_string_lossy().into_owned();
        self.child = std::env::current_exe().ok().and_then(|program| {
            Command::new(program)
                .args(["attack", self.role, plan, &group])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .ok()
        });
    }

    /// Its result: memory charged to its cgroup, or bytes written to the disk.
    fn reached(&self) -> Option<(String, u64)> {
        let name = self.group.file_name()?.to_string_lossy().into_owned();
        let read = |file| fs::read_to_string(self.group.join(file)).ok();
        let bytes = match self.role {
            "write" => written(&read("io.stat")?),
            _ => read("memory.peak")?.trim().parse().ok()?,
        };
        Some((format!("{name}_bytes"), bytes))
    }

    fn stop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn written(io_stat: &str) -> u64 {
    let fields = io_stat.split_whitespace();
    let bytes = fields.filter_map(|field| field.strip_prefix("wbytes=")?.parse::<u64>().ok());
    bytes.sum()
}

struct World {
    /// All groups whose path can be named.
    groups: Vec<PathBuf>,
    /// The deeply nested one.
    deep: Option<PathBuf>,
}

fn build(plan: &Plan, done: &mut Done) -> World {
    let (home, attacks) = (&plan.home, &plan.attacks);
    let mut groups: Vec<PathBuf> = Vec::new();
    if attacks.has(Attack::Groups) {
        groups.extend((0..GROUPS).map(|n| looks_like(plan, n)));
        done.count("churn", &fs::create_dir(home.join(FLEETING)));
    }
    if attacks.has(Attack::Memory) {
        groups.extend(["docker-hog.scope", "docker-map.scope"].map(|name| home.join(name)));
    }
    if attacks.has(Attack::Names) {
        groups.extend(ESCAPES.map(|name| home.join(name)));
    }
    let deep = attacks.has(Attack::Depth).then(|| dig(home, done));
    groups.extend(deep.clone());
    for group in &groups {
        done.count("groups", &fs::create_dir(group));
        for (file, most) in [("io.weight", "10000"), ("io.bfq.weight", "1000")] {
            done.count("io_weights", &fs::write(group.join(file), most));
        }
    }
    if attacks.has(Attack::Attributes) {
        nest_long_names(home, done);
    }
    groups.push(home.clone());
    let world = World { groups, deep };
    attack(plan, &world, 0, done);
    if attacks.has(Attack::Records) {
        for number in 0..RECORDS {
            let name = format!("many-{number}");
            let group = format!("{}/docker-{number}.scope", plan.home_path);
            done.count("records", &record(plan, &name, &group));
        }
    }
    world
}

/// Creates a deeply nested group; returns its directory.
fn dig(home: &Path, done: &mut Done) -> PathBuf {
    let mut deep = home.to_owned();
    for level in 1..LEVELS {
        deep.push(level.to_string());
        done.count("levels", &fs::create_dir(&deep));
        // If this is refused, the groups below have no memory or I/O controller.
        let _ = fs::write(deep.join("cgroup.subtree_control"), "+memory +io");
    }
    deep.join("docker-deep.scope")
}

/// Nests names that the kernel allows one by one, but whose whole path is too long.
fn nest_long_names(home: &Path, done: &mut Done) {
    let (before, after) = ("docker-", ".scope");
    let middle = "n".repeat(LONGEST_NAME - before.len() - after.len());
    let name = format!("{before}{middle}{after}");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(mut directory) = openat(CWD, home, flags, Mode::empty()) else {
        return;
    };
    for _ in 0..LONG_NAMES {
        done.count("long_names", &mkdirat(&directory, &name, Mode::RWXU));
        match openat(&directory, &name, flags, Mode::empty()) {
            Ok(below) => directory = below,
            Err(_) => return,
        }
    }
}

/// States weights, in turn: the largest one, 300 bytes, and bytes that are no text.
fn declare(world: &World, round: usize, done: &mut Done) {
    let long = [b'1'; 300];
    let values: [&[u8]; 4] = [b"10000", &long, &[0xff, 0, b'\n', 0x1b], b"10000\0\0"];
    for (number, group) in world.groups.iter().enumerate() {
        let value = values[(number + round) % values.len()];
        let flags = XattrFlags::empty();
        let result = setxattr(group, "user.justitia.weight", value, flags);
        done.count("weights", &result);
    }
}

/// Creates groups that look like containers and removes those of the previous round.
fn come_and_go(plan: &Plan, round: usize, done: &mut Done) {
    let group = |round: usize, number: usize| {
        let name = format!("docker-{round}-{number}.scope");
        plan.home.join(FLEETING).join(name)
    };
    for number in 0..8 {
        done.count("churn", &fs::create_dir(group(round, number)));
        done.count("churn", &fs::remove_dir(group(round - 1, number)));
    }
}

/// Writes records below `/run/user/UID` of containers that are not its own, and files that are no records.
fn forge(plan: &Plan, done: &mut Done) {
    for (number, other) in plan.others.iter().enumerate() {
        let name = format!("of-other-{number}");
        done.count("records", &record(plan, &name, other));
        let dir = plan.runtime.join("runc").join(name);
        let state = json!({"config": {
            "labels": ["bundle=/dev", "io.justitia.weight=10000"],
            "cgroups": {"path": other, "blkio_weight": 1000},
        }});
        done.count("records", &put(&dir, "state.json", &state.to_string()));
    }
    let escapes = ESCAPES.iter().enumerate();
    for (number, name) in escapes.filter(|_| plan.attacks.has(Attack::Names)) {
        let group = format!("{}/{name}", plan.home_path);
        for name in [*name, &format!("escape-{number}")] {
            done.count("records", &record(plan, name, &group));
        }
    }
    for shelf in ["crun", "runc"] {
        let shelf = plan.runtime.join(shelf);
        let (fifo, zero, huge) = (shelf.join("fifo"), shelf.join("zero"), shelf.join("huge"));
        for file in ["status", "state.json"] {
            // A FIFO: a careless open waits for a writer.
            let node = fifo.join(file);
            let _ = fs::create_dir_all(&fifo);
            let mode = Mode::RUSR | Mode::WUSR;
            let _ = fs::remove_file(&node);
            let result = mknodat(CWD, &node, FileType::Fifo, mode, 0);
            done.count("fifos", &result);
        }
        for file in ["config.json", "status", "state.json"] {
            let _ = fs::create_dir_all(&zero);
            let _ = fs::remove_file(zero.join(file));
            done.count("links", &symlink("/dev/zero", zero.join(file)));
            let _ = fs::create_dir_all(&huge);
            let endless = File::create(huge.join(file)).and_then(|file| file.set_len(1 << 40));
            done.count("huge_files", &endless);
        }
    }
}

/// Writes a crun record that gives a cgroup the largest weight.
fn record(plan: &Plan, name: &str, cgroup: &str) -> Result<()> {
    let dir = plan.runtime.join("crun").join(name);
    let config = json!({
        "ociVersion": "1.0.0",
        "annotations": {"io.justitia.weight": "10000"},
        "linux": {"cgroupsPath": cgroup, "resources": {"blockIO": {"weight": 1000}}},
    });
    put(&dir, "config.json", &config.to_string())?;
    put(&dir, "status", &json!({"cgroup-path": cgroup}).to_string())
}

fn put(dir: &Path, file: &str, text: &str) -> Result<()> {
    fs::create_dir_all(dir)?;
    Ok(fs::write(dir.join(file), text)?)
}

#[cfg(test)]
mod tests;
