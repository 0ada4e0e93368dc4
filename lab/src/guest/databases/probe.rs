//! The program that declares a container's color: `justitia probe mysql`, as a user would start it, or a
//! liar.
//!
//! The probe runs outside the container, in the group of its clients, under every policy alike. A transaction
//! is one `SELECT`, so it counts these. The server's pending work is only what its connections ask at the
//! moment, because sysbench's queue is in front of them. So if more than half of the connections are busy at
//! once, work is waiting.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{ensure, Context, Result};
use rustix::fs::getxattr;

use super::server::Server;
use crate::guest::files;
use crate::guest::liar::{Liar, ATTRIBUTE};
use crate::guest::setup::{enter_group, STATE, TOOLS};
use crate::protocol::databases::{Color, DatabaseJob};

/// Longest valid declaration, with room to detect a longer one.
const MAX_BYTES: usize = 512;

#[derive(Debug)]
pub enum Declarer {
    Probe {
        child: Child,
        log: PathBuf,
    },
    /// Declares what the job says.
    Liar(Liar),
}

impl Declarer {
    /// Starts the container's probe in the cgroup `group`, or its liar.
    pub fn start(job: &DatabaseJob, server: &Server, threads: u32, group: &Path) -> Result<Self> {
        if let Some(lie) = job.lie {
            return Ok(Self::Liar(Liar::new(&server.group, lie)));
        }
        let log = Path::new(STATE).join(format!("probe-{}.log", job.name));
        let mut command = Command::new(Path::new(TOOLS).join("justitia"));
        command
            .args(arguments(job, &server.socket, threads))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        enter_group(&mut command, group)?;
        let child = command.spawn().context("cannot start a probe")?;
        Ok(Self::Probe { child, log })
    }

    /// Once per second: a liar declares; a probe must be alive.
    pub fn tick(&mut self) -> Result<()> {
        match self {
            Self::Liar(liar) => liar.tick(),
            Self::Probe { child, log } => {
                let ended = child.try_wait()?.is_some();
                ensure!(
                    !ended,
                    "a probe ended by itself: {}",
                    files::log_tail(log, 5)
                );
                Ok(())
            }
        }
    }

    /// Ends it. Its declaration goes stale.
    pub fn stop(self) {
        if let Self::Probe { mut child, .. } = self {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn arguments(job: &DatabaseJob, socket: &Path, threads: u32) -> Vec<String> {
    let line = format!(
        "probe mysql --user root --count Com_select --group /app/{} --socket {} --min-tps {} \
         --parallel 0 --max-waiting {}",
        job.name,
        socket.display(),
        job.objective_tps,
        threads / 2
    );
    line.split(' ').map(str::to_owned).collect()
}

/// The color that a group declares now; `None` if it is not a color.
pub fn declared(group: &Path) -> Option<Color> {
    let mut value = [0; MAX_BYTES];
    let length = getxattr(group, ATTRIBUTE, &mut value).ok()?;
    color_of(&String::from_utf8_lossy(&value[..length]))
}

fn color_of(text: &str) -> Option<Color> {
    Color::from_name(text.split(' ').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_told_the_containers_objective_and_its_own_group() {
        let job = DatabaseJob {
            name: "B".into(),
            weight: 110,
            objective_tps: 440,
            limit_part: 1000,
            offered_tps: vec![Some(800)],
            lie: None,
            neighbor: None,
        };
        let line = arguments(&job, Path::new("/s"), 8).join(" ");
        assert!(line.starts_with("probe mysql "), "{line}");
        for words in [
            "--group /app/B",
            "--socket /s",
            "--min-tps 440",
            "--max-waiting 4",
        ] {
            assert!(line.contains(words), "{line}");
        }
    }

    #[test]
    fn a_probes_declaration_is_understood() {
        assert_eq!(color_of("yellow 17 412/s of 400"), Some(Color::Yellow));
        assert_eq!(color_of("yellowish 17"), None);
    }
}
