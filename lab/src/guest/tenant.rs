//! The tenant on the host and observations around it. The tenant is an unprivileged user with a delegated
//! cgroup below its own slice and a `/run/user/UID`, as a login creates them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use super::agent::Agent;
use super::container::{cgroup, home, set_weight, Container};
use super::files::{self, give};
use super::setup::{data_dir, enter_group, make_group, CGROUP, TOOLS};
use super::{knobs, progress};
use crate::experiments::hostile::AGENT_MEMORY_MAX;
use crate::load::attack::{Plan, ESCAPES};
use crate::protocol::{ContainerJob, GuestJob, KnobDifference, TenantReport};

/// Groups that are not Justitia's to manage.
const OTHERS: [&str; 2] = ["/system.slice/ssh.service", "/user.slice/user-1001.slice"];

#[derive(Debug)]
pub struct Tenant {
    home: String,
    attacker: Option<Attacker>,
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Attacker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Sets up the job's tenant, if it has one, before any container.
pub fn prepare(job: &GuestJob) -> Result<()> {
    let Some((tenant, uid)) = of_job(job) else {
        return Ok(());
    };
    let home = home(uid);
    let dir = make_group(&home)?;
    // The files that systemd's Delegate= gives away.
    give(&dir, uid)?;
    for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        give(&dir.join(file), uid)?;
    }
    for group in OTHERS.into_iter().chain([&*format!("{home}/init.scope")]) {
        let path = format!("{CGROUP}{group}");
        fs::create_dir_all(&path).with_context(|| format!("cannot make {path}"))?;
    }
    give(&dir.join("init.scope"), uid)?;
    for runtime in [runtime_dir(uid), attack_dir()] {
        fs::create_dir_all(&runtime)
            .with_context(|| format!("cannot make {}", runtime.display()))?;
        fs::set_permissions(&runtime, Permissions::from_mode(0o700))?;
        give(&runtime, uid)?;
    }
    // The block layer and the CPU scheduler divide by weight from the root down.
    let mut slice = PathBuf::from(CGROUP);
    for part in home.split('/').filter(|part| !part.is_empty()) {
        slice.push(part);
        give_weight(&slice, u64::from(tenant.weight))?;
    }
    let honest = job.containers.iter().filter(|c| c.user.is_none());
    let honest = honest.map(|c| u64::from(c.weight)).sum();
    give_weight(&Path::new(CGROUP).join("app"), honest)?;
    let agent = Path::new(CGROUP).join("agent");
    files::write(&agent.join("memory.max"), &AGENT_MEMORY_MAX.to_string())
}

/// Sets a weight for I/O and for CPU time: Justitia divides only the former.
fn give_weight(group: &Path, weight: u64) -> Result<()> {
    set_weight(group, weight)?;
    let cpu = weight.clamp(1, 10_000).to_string();
    files::write(&group.join("cpu.weight"), &cpu)
}

pub fn of_job(job: &GuestJob) -> Option<(&ContainerJob, u32)> {
    job.containers.iter().find_map(|c| Some((c, c.user?)))
}

fn runtime_dir(uid: u32) -> PathBuf {
    PathBuf::from(format!("/run/user/{uid}"))
}

fn attack_dir() -> PathBuf {
    data_dir().join(".attacks")
}

impl Tenant {
    /// Lets the tenant build its world, if the job has one, before knobs are read.
    pub fn settle(job: &GuestJob) -> Result<Option<Self>> {
        let Some((_, uid)) = of_job(job) else {
            return Ok(None);
        };
        let attacker = job.surroundings.attacks.clone().map(|attacks| {
            let others = job.containers.iter().filter(|c| c.user.is_none());
            let mut others: Vec<String> = others.map(cgroup).collect();
            others.extend(["/system.slice", "/", "/app"].map(str::to_owned));
            others.extend(OTHERS.map(str::to_owned));
            Attacker::start(
                uid,
                &Plan {
                    attacks,
                    home: PathBuf::from(format!("{CGROUP}{}", home(uid))),
                    home_path: home(uid),
                    runtime: runtime_dir(uid),
                    data: attack_dir(),
                    others,
                },
            )
        });
        Ok(Some(Self {
            home: home(uid),
            attacker: attacker.transpose()?,
            watch: None,
        }))
    }

    /// Starts the attack, if there is one.
    pub fn begin(&mut self) -> Result<()> {
        self.watch = Some(Watch::start());
        if let Some(attacker) = &mut self.attacker {
            progress("the tenant attacks");
            writeln!(attacker.orders, "go").context("the tenant has ended")?;
        }
        Ok(())
    }

    /// Observes everything while the attack continues.
    pub fn look(&mut self, agent: Option<&Agent>, containers: &[Container]) -> TenantReport {
        let watched = self.watch.take().map(Watch::end).unwrap_or_default();
        let named = containers
            .iter()
            .filter_map(|c| c.group.strip_prefix(CGROUP).ok());
        let named = named.map(|group| format!("/{}", group.display()));
        let escapes = ESCAPES.map(|name| format!("{}/{name}", self.home));
        let printed = printed(named.chain(escapes)) + &agent.map(Agent::log).unwrap_or_default();
        let peak = fs::read_to_string(Path::new(CGROUP).join("agent/memory.peak"));
        TenantReport {
            done: BTreeMap::new(),
            unmanaged_written: watched.into_iter().collect(),
            control_characters: printed.chars().filter(|&c| obeyed(c)).count() as u64,
            agent_charged_peak_bytes: peak.ok().and_then(|text| files::limit_bytes(&text)),
        }
    }

    /// Ends the attack; returns what was done.
    pub fn end(self) -> Result<BTreeMap<String, u64>> {
        let Some(attacker) = self.attacker else {
            return Ok(BTreeMap::new());
        };
        let Attacker {
            mut child,
            orders,
            mut answers,
        } = attacker;
        drop(orders);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        child.wait()?;
        serde_json::from_str(&line).context("the tenant does not say what it did")
    }
}

/// True if a terminal would interpret this character instead of showing it.
fn obeyed(c: char) -> bool {
    c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c))
}

impl Attacker {
    /// Starts the tenant's program and waits until its world is built.
    fn start(uid: u32, plan: &Plan) -> Result<Self> {
        progress("the tenant builds its world");
        let mut command = Command::new(Path::new(TOOLS).join("justitia-lab-guest"));
        command
            .args(["attack", "lead", &serde_json::to_string(plan)?])
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        enter_group(&mut command, &plan.home.join("init.scope"))?;
        let mut child = command.spawn().context("cannot start the tenant")?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the tenant has no pipes");
        };
        let mut answers = BufReader::new(answers);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        ensure!(line == "ready\n", "the tenant did not build its world");
        Ok(Self {
            child,
            orders,
            answers,
        })
    }
}

/// The commands' output while a tenant attacks.
fn printed(groups: impl Iterator<Item = String>) -> String {
    let mut commands: Vec<Vec<String>> = ["status", "weight", "plan", "doctor"]
        .map(|command| vec![command.to_owned()])
        .to_vec();
    commands.extend(groups.map(|group| vec!["explain".to_owned(), group]));
    let mut all = String::new();
    for arguments in commands {
        let output = Command::new("timeout")
            .arg("60")
            .arg(Path::new(TOOLS).join("justitia"))
            .args(&arguments)
            .output();
        match output {
            Ok(output) => {
                progress(&format!("justitia {arguments:?}: {}", output.status));
                let text = [output.stdout, output.stderr].concat();
                all += &String::from_utf8_lossy(&text);
            }
            Err(error) => progress(&format!("justitia {arguments:?}: {error}")),
        }
    }
    all
}

/// Reads once per second the settings of groups that are not Justitia's to manage.
#[derive(Debug)]
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<String>>,
}

impl Watch {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let look = || -> Vec<_> {
                let groups = ["/system.slice", "/user.slice/user-1001.slice", "/agent"];
                let roots = groups.map(|group| PathBuf::from(format!("{CGROUP}{group}")));
                roots.iter().map(|root| knobs::snapshot(root)).collect()
            };
            let before = look();
            let mut changed = BTreeSet::new();
            while !stopped.load(Ordering::Acquire) {
                thread::sleep(Duration::from_secs(1));
                for (before, now) in before.iter().zip(look()) {
                    let differences = KnobDifference::between(before, &now);
                    changed.extend(differences.iter().map(ToString::to_string));
                }
            }
            changed
        });
        Self { stop, thread }
    }

    fn end(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Release);
        let panicked = || BTreeSet::from(["the watch panicked".to_owned()]);
        self.thread.join().unwrap_or_else(|_| panicked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_controls_and_turns_text_around() {
        let text = "a\u{1b}[2J\n\u{9b}\u{202e}ü\\x1b";
        assert_eq!(text.chars().filter(|&c| obeyed(c)).count(), 3);
    }
}
