//! Who declares a container's color: `justitia probe mysql`, as a user would start it, or a liar.
//!
//! The probe runs on the host's side of the container, in the group of its clients, under every
//! policy alike. A transaction is one `SELECT`, so that is what it counts. To the server all it has
//! to do is what its connections ask now; sysbench's queue stands before them. So more than half of
//! the connections busy at once is work that waits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{ensure, Context, Result};
use rustix::fs::{getxattr, setxattr, XattrFlags};

use super::enter_group;
use super::server::Server;
use crate::databases::protocol::{Color, DatabaseJob, Lie};
use crate::guest::files;
use crate::guest::setup::{STATE, TOOLS};

/// Extended attribute of a cgroup's directory that carries its color.
const ATTRIBUTE: &str = "user.justitia.color";

/// Longest declaration that counts, with room to see that it is longer.
const MAX_BYTES: usize = 512;

/// The most that the kernel takes for one attribute (`KERNFS_USER_XATTR_SIZE_LIMIT` is 128 KiB for
/// all, `XATTR_SIZE_MAX` 64 KiB for one).
const HUGE_BYTES: usize = 60 << 10;

/// Declares the color of one container.
#[derive(Debug)]
pub enum Declarer {
    /// A probe of Justitia.
    Probe {
        /// Its process.
        child: Child,
        /// What it said.
        log: PathBuf,
    },
    /// Somebody who says what the job says.
    Liar {
        /// What is said.
        lie: Lie,
        /// Declarations so far.
        count: u64,
    },
}

impl Declarer {
    /// Starts the container's probe in the cgroup `group`, or its liar.
    pub fn start(job: &DatabaseJob, server: &Server, threads: u32, group: &Path) -> Result<Self> {
        if let Some(lie) = job.lie {
            return Ok(Self::Liar { lie, count: 0 });
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

    /// Once a second: a liar lies; a probe has to be alive.
    pub fn tick(&mut self, group: &Path) -> Result<()> {
        match self {
            Self::Liar { lie, count } => {
                *count += 1;
                let Some(value) = lied(*lie, *count) else {
                    return Ok(());
                };
                setxattr(group, ATTRIBUTE, &value, XattrFlags::empty())
                    .with_context(|| format!("cannot set {ATTRIBUTE} on {}", group.display()))
            }
            Self::Probe { child, log } => {
                let ended = child.try_wait()?.is_some();
                let text = std::fs::read(log).unwrap_or_default();
                ensure!(
                    !ended,
                    "a probe ended by itself: {}",
                    files::tail(&String::from_utf8_lossy(&text), 5)
                );
                Ok(())
            }
        }
    }

    /// Ends it. What it declared goes stale.
    pub fn stop(self) {
        if let Self::Probe { mut child, .. } = self {
            // A process that is already gone needs no signal.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command line of a container's probe.
fn arguments(job: &DatabaseJob, socket: &Path, threads: u32) -> Vec<String> {
    let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let mut arguments = text(&["probe", "mysql", "--user", "root", "--count", "Com_select"]);
    arguments.extend(["--group".into(), format!("/app/{}", job.name)]);
    arguments.extend(["--socket".into(), socket.display().to_string()]);
    arguments.extend(["--min-tps".into(), job.objective_tps.to_string()]);
    arguments.extend(text(&["--parallel", "0", "--max-waiting"]));
    arguments.push((threads / 2).to_string());
    arguments
}

/// What a liar declares; `None` for nothing. `count` differs from one declaration to the next, which
/// is how the agent knows that whoever declares is alive.
fn lied(lie: Lie, count: u64) -> Option<Vec<u8>> {
    let color = match lie {
        Lie::Green => Color::Green,
        Lie::Flap if count % 2 == 0 => Color::Green,
        Lie::Red | Lie::Flap => Color::Red,
        Lie::Garbage => return Some(vec![0xff, 0, count as u8, b'\n', 0x1b]),
        Lie::Huge => return Some(vec![b'R'; HUGE_BYTES]),
        Lie::Silent => return None,
    };
    Some(format!("{} {count} so it says", color.name()).into_bytes())
}

/// What a group declares now; `None` for nothing that is a color.
pub fn declared(group: &Path) -> Option<Color> {
    let mut value = [0; MAX_BYTES];
    let length = getxattr(group, ATTRIBUTE, &mut value).ok()?;
    color_of(&String::from_utf8_lossy(&value[..length]))
}

fn color_of(text: &str) -> Option<Color> {
    let word = text.split(' ').next()?;
    [Color::Green, Color::Yellow, Color::Red]
        .into_iter()
        .find(|color| color.name().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lie: Lie, count: u64) -> String {
        String::from_utf8(lied(lie, count).unwrap()).unwrap()
    }

    #[test]
    fn a_probe_is_told_the_containers_objective_and_its_own_group() {
        let job = DatabaseJob {
            name: "B".into(),
            weight: 110,
            objective_tps: 440,
            limit_part: 1000,
            offered_tps: vec![Some(800)],
            lie: None,
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
    fn a_lie_is_a_color_that_differs_from_the_one_before_or_none_at_all() {
        assert_eq!(color_of(&text(Lie::Green, 1)), Some(Color::Green));
        assert_eq!(color_of(&text(Lie::Red, 1)), Some(Color::Red));
        assert_ne!(text(Lie::Red, 1), text(Lie::Red, 2));
        assert_ne!(color_of(&text(Lie::Flap, 1)), color_of(&text(Lie::Flap, 2)));
        assert_eq!(lied(Lie::Silent, 1), None);
        let garbage = lied(Lie::Garbage, 1).unwrap();
        assert_eq!(color_of(&String::from_utf8_lossy(&garbage)), None);
    }

    #[test]
    fn a_probes_declaration_is_understood() {
        assert_eq!(color_of("yellow 17 412/s of 400"), Some(Color::Yellow));
        assert_eq!(color_of("yellowish 17"), None);
    }
}
