//! The agent under test: starts it in its own cgroup, watches it, kills it when the job says so, ends it and
//! measures its cost.
//!
//! CPU time is what the kernel reports when the process ends (`wait4`), so it is complete. Peak memory is
//! `VmHWM`, read each second: `ru_maxrss` would include the driver's own memory at the fork.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use rustix::process::{kill_process, Pid, Signal};

use super::setup::{enter_group, CGROUP, STATE, TOOLS};
use super::{files, holds_within};
use crate::protocol::{AgentCost, Policy};

/// Time limit for the agent to report that it is ready (`READY=1`). A process that does not report in time
/// runs unannounced.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit to restore everything after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the kernel to release a killed agent. SIGKILL ends a write to `memory.high`, but only after
/// the current pass of reclaim (mm/memcontrol.c, `memory_high_write`).
const DEATH_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit of `justitia status`.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which a process is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Lines of the log that go into the report.
const LOG_LINES: usize = 200;

/// The arguments of `justitia run` for a policy; `None` for policies without an agent. The arguments name the
/// groups to manage, or the agent finds the containers itself. `config`: the configuration file, if any.
fn arguments(
    policy: Policy,
    finds: bool,
    config: Option<&str>,
    extra: &[String],
) -> Option<Vec<String>> {
    let mode = policy.agent_mode()?;
    let mut arguments = ["run", "--mode", mode].map(str::to_owned).to_vec();
    if !finds {
        arguments.extend(["--manage", "/app/*"].map(str::to_owned));
    }
    if let Some(config) = config {
        arguments.extend(["--config", config].map(str::to_owned));
    }
    if policy == Policy::FirstTouch {
        arguments.extend(["--observer", "proc"].map(str::to_owned));
    }
    arguments.extend(extra.iter().cloned());
    Some(arguments)
}

fn notify_path() -> PathBuf {
    Path::new(STATE).join("notify")
}

/// Creates the agent's own cgroup, outside what it manages.
pub fn make_group() -> Result<PathBuf> {
    let group = Path::new(CGROUP).join("agent");
    fs::create_dir_all(&group).context("cannot make the agent's cgroup")?;
    Ok(group)
}

#[derive(Debug)]
pub struct Agent {
    arguments: Vec<String>,
    group: PathBuf,
    log: PathBuf,
    notify: UnixDatagram,
    child: Option<Child>,
    killed: bool,
    ready: bool,
    /// Its cost so far; CPU time is added when a process ends.
    pub cost: AgentCost,
}

impl Agent {
    /// Starts the agent of `policy`, if it has one, and waits until it is ready. `config`: lines of its
    /// configuration ahead of the policy's own.
    pub fn start(
        policy: Policy,
        finds: bool,
        config: &[String],
        extra: &[String],
    ) -> Result<Option<Self>> {
        let mut lines = config.join("\n");
        lines.push('\n');
        let config = lines + policy.agent_config();
        let state = Path::new(STATE);
        let file = state.join("agent.toml");
        let path = file.to_string_lossy();
        let path = (!config.trim().is_empty()).then_some(&*path);
        let Some(arguments) = arguments(policy, finds, path, extra) else {
            return Ok(None);
        };
        if path.is_some() {
            files::write(&file, &config)?;
        }
        let _ = fs::remove_file(notify_path());
        let notify = UnixDatagram::bind(notify_path()).context("cannot make the notify socket")?;
        notify.set_nonblocking(true)?;
        let mut agent = Self {
            arguments,
            group: make_group()?,
            log: state.join("agent.log"),
            notify,
            child: None,
            killed: false,
            ready: false,
            cost: AgentCost::default(),
        };
        agent.spawn()?;
        agent.wait_until_ready()?;
        Ok(Some(agent))
    }

    pub fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(Path::new(TOOLS).join("justitia"));
        command
            .args(&self.arguments)
            .env("NOTIFY_SOCKET", notify_path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        enter_group(&mut command, &self.group)?;
        self.child = Some(command.spawn().context("cannot start /opt/lab/justitia")?);
        self.killed = false;
        self.ready = false;
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        holds_within(READY_TIMEOUT, POLL, || {
            self.drain_notifications();
            self.ensure_running()?;
            Ok(self.ready)
        })?;
        Ok(())
    }

    /// Reads the agent's messages from its notify socket, which would block the agent when full.
    fn drain_notifications(&mut self) {
        let mut message = [0; 1024];
        while let Ok(n) = self.notify.recv(&mut message) {
            self.ready |= String::from_utf8_lossy(&message[..n])
                .lines()
                .any(|line| line == "READY=1");
        }
    }

    /// Reads its memory; an error if it ended unexpectedly.
    pub fn watch(&mut self) -> Result<()> {
        self.drain_notifications();
        let Some(child) = &self.child else {
            return Ok(());
        };
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        if let Some(peak) = files::meminfo_bytes(&status, "VmHWM") {
            self.cost.peak_rss_bytes = self.cost.peak_rss_bytes.max(peak);
        }
        let stat = fs::read_to_string(self.group.join("memory.stat")).unwrap_or_default();
        if let Some(anon) = files::meminfo_bytes(&status, "RssAnon") {
            self.cost.anon_bytes = anon;
            self.cost.kernel_bytes = files::keyed(&stat, "kernel").unwrap_or_default();
            let charged = files::read(&self.group.join("memory.current")).unwrap_or_default();
            self.cost.charged_bytes = files::limit_bytes(&charged).unwrap_or_default();
        }
        self.ensure_running()
    }

    fn ensure_running(&mut self) -> Result<()> {
        if self.reap()? && !self.killed {
            bail!(
                "the agent ended by itself; its log ends:\n{}",
                files::log_tail(&self.log, 20)
            );
        }
        Ok(())
    }

    /// Reaps the process if it has ended, and adds its CPU time.
    fn reap(&mut self) -> Result<bool> {
        let Some(child) = &self.child else {
            return Ok(false);
        };
        let pid = Pid::from_child(child).as_raw_nonzero().get();
        // SAFETY: all-zero is a valid rusage (integers only).
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let mut status = 0;
        // SAFETY: both pointers are to live locals of the right type; pid is our own child, which
        // nobody else waits for.
        let ended = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        ensure!(
            ended >= 0,
            "cannot wait for the agent: {}",
            std::io::Error::last_os_error()
        );
        if ended == 0 {
            return Ok(false);
        }
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        self.cost.cpu_s += seconds(usage.ru_utime) + seconds(usage.ru_stime);
        self.child = None;
        Ok(true)
    }

    /// Sends SIGKILL: the crash under test. Does not wait for the end; see [`Self::is_gone`].
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.killed = true;
    }

    /// True if no process is left; a successor would be refused before.
    pub fn is_gone(&mut self) -> Result<bool> {
        Ok(self.child.is_none() || self.reap()?)
    }

    /// Waits until a killed agent is gone.
    pub fn wait_until_gone(&mut self) -> Result<()> {
        ensure!(
            holds_within(DEATH_TIMEOUT, POLL, || self.is_gone())?,
            "the killed agent is still there after {} s",
            DEATH_TIMEOUT.as_secs()
        );
        Ok(())
    }

    /// Asks the agent to end and to restore its changes. Returns whether it did so in time; otherwise it is
    /// killed. An agent that was just started comes up first: SIGTERM would otherwise reach it before it
    /// undoes what a killed one left.
    pub fn end(&mut self) -> Result<bool> {
        self.wait_until_ready()?;
        self.watch()?;
        self.signal(Signal::TERM);
        if holds_within(END_TIMEOUT, POLL, || self.is_gone())? {
            return Ok(true);
        }
        self.kill();
        self.wait_until_gone()?;
        Ok(false)
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // Not yet reaped, so its id is still its own. If it just ended, the error does not matter.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    pub fn log(&self) -> String {
        files::log_tail(&self.log, LOG_LINES)
    }
}

/// `justitia status --json`, running in parallel with the measurement.
#[derive(Debug)]
pub struct StatusQuery {
    child: Child,
    output: PathBuf,
}

impl StatusQuery {
    pub fn start() -> Result<Self> {
        let output = Path::new(STATE).join("status.json");
        let child = Command::new(Path::new(TOOLS).join("justitia"))
            .args(["status", "--json"])
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run justitia status")?;
        Ok(Self { child, output })
    }

    /// The output; `None` when the command failed, hung, or did not print JSON.
    pub fn finish(mut self) -> Option<serde_json::Value> {
        let ended = || Ok(self.child.try_wait()?.is_some());
        if !holds_within(STATUS_TIMEOUT, POLL, ended).ok()? {
            let _ = self.child.kill();
            return None;
        }
        serde_json::from_slice(&fs::read(&self.output).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_agent_policies_have_arguments() {
        assert_eq!(arguments(Policy::Memcg, false, Some("c"), &[]), None);
        let strict = arguments(
            Policy::Strict,
            false,
            Some("/c"),
            &["--interval".into(), "2s".into()],
        );
        let strict = strict.unwrap().join(" ");
        assert_eq!(
            strict,
            "run --mode proportional --manage /app/* --config /c --interval 2s"
        );
        let observe = arguments(Policy::Observe, true, None, &[]).unwrap();
        assert_eq!(observe[2], "observe");
        assert!(Policy::Observe.agent_config().is_empty());
        assert!(!observe.contains(&"--config".to_owned()));
        assert!(!observe.contains(&"--manage".to_owned()));
        let first_touch = arguments(Policy::FirstTouch, false, None, &[]).unwrap();
        assert_eq!(first_touch[2], "proportional");
        assert!(first_touch.ends_with(&["--observer".to_owned(), "proc".to_owned()]));
    }
}
