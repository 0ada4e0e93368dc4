//! sysbench as the clients of one container: point selects at a given rate, one report per second.
//!
//! It runs outside the container, in its own group below `/load`, so that it neither takes the container's
//! memory nor counts toward it. Each phase is a new process, because a running sysbench cannot change its
//! rate; a new one also starts with an empty queue.
//!
//! The report of one second is two lines:
//!
//! ```text
//! [ 7s ] thds: 8 tps: 199.83 qps: 199.83 (r/w/o: ...) lat (ms,95%): 5.67 err/s: 0.00 ...
//! [ 7s ] queue length: 0, concurrency: 1
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{bail, Context, Result};

use crate::guest::files;
use crate::guest::setup::enter_group;
use crate::protocol::databases::Keys;

/// sysbench's own script.
const SCRIPT: &str = "/usr/share/sysbench/oltp_point_select.lua";

/// Parameters of sysbench for one phase.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    pub socket: &'a Path,
    pub rate: u32,
    pub threads: u32,
    pub rows: u32,
    pub keys: Keys,
    /// Longer than the phase: the driver ends it.
    pub seconds: u32,
    pub seed: u64,
}

/// sysbench's output so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Said {
    pub transactions: f64,
    pub tps: Option<f64>,
    pub latency_ms: Option<f64>,
    /// Transactions waiting at the end of the last report.
    pub queue: Option<u64>,
}

impl Said {
    /// Parses one line of output.
    pub fn hear(&mut self, line: &str) {
        if let Some(tps) = number_after(line, " tps: ") {
            self.transactions += tps;
            self.tps = Some(tps);
            self.latency_ms = number_after(line, "(ms,95%): ");
        } else if let Some(queue) = number_after(line, "queue length: ") {
            self.queue = Some(queue as u64);
        }
    }
}

fn number_after(line: &str, label: &str) -> Option<f64> {
    let rest = line.strip_prefix('[')?.split_once(label)?.1;
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[derive(Debug)]
pub struct Sysbench {
    child: Child,
    said: Arc<Mutex<Said>>,
    log: PathBuf,
}

impl Sysbench {
    pub fn start(load: Load, group: &Path, log: &Path) -> Result<Self> {
        let mut command = Command::new("sysbench");
        command
            .arg(SCRIPT)
            .arg(format!("--mysql-socket={}", load.socket.display()))
            .args(["--mysql-user=root", "--mysql-db=sbtest", "--tables=1"])
            .args(["--report-interval=1", "--events=0"])
            .arg(format!("--rand-type={}", load.keys.name()))
            .arg(format!("--table-size={}", load.rows))
            .arg(format!("--threads={}", load.threads))
            .arg(format!("--rate={}", load.rate))
            .arg(format!("--time={}", load.seconds))
            .arg(format!("--rand-seed={}", load.seed & 0x7fff_ffff))
            .arg("run")
            .current_dir("/usr/share/sysbench")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?);
        enter_group(&mut command, group)?;
        let mut child = command.spawn().context("cannot run sysbench")?;
        let said = Arc::new(Mutex::new(Said::default()));
        let output = child.stdout.take().context("sysbench has no output")?;
        let shared = Arc::clone(&said);
        let mut fatal = File::options().append(true).open(log)?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line.starts_with("FATAL") {
                    // The log only helps to diagnose a failure; the load continues without it.
                    let _ = writeln!(fatal, "{line}");
                }
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .hear(&line);
            }
        });
        Ok(Self {
            child,
            said,
            log: log.to_owned(),
        })
    }

    pub fn said(&self) -> Said {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if it ended unexpectedly.
    pub fn ensure_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "sysbench ended by itself ({status}): {}",
                files::log_tail(&self.log, 5)
            );
        }
        Ok(())
    }

    pub fn stop(mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_two_lines() {
        let mut said = Said::default();
        for line in [
            "Threads started!",
            "[ 1s ] thds: 4 tps: 25.95 qps: 25.95 (r/w/o: 25.95/0.00/0.00) lat (ms,95%): 0.70 err/s: 0.00 reconn/s: 0.00",
            "[ 1s ] queue length: 12, concurrency: 4",
            "[ 2s ] thds: 4 tps: 22.05 qps: 22.05 (r/w/o: 22.05/0.00/0.00) lat (ms,95%): 0.59 err/s: 0.00 reconn/s: 0.00",
        ] {
            said.hear(line);
        }
        assert_eq!(said.queue, Some(12));
        assert_eq!((said.tps, said.latency_ms), (Some(22.05), Some(0.59)));
        assert!((said.transactions - 48.0).abs() < 1e-9);
    }

    #[test]
    fn the_summary_at_the_end_is_no_report() {
        let mut said = Said::default();
        said.hear("    transactions:                        68     (21.58 per sec.)");
        said.hear("Target transaction rate: 20/sec");
        assert_eq!(said, Said::default());
    }
}
