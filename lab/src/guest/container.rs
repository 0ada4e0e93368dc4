//! A container of the lab: its bundle, creation by crun, weight and end.
//!
//! The cgroup of a container is exactly `/app/<name>`. A group that only nests others gets the sum of the
//! weights below it, so that a container's share of the whole remains its own weight.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use super::oci::{self, Bind, Bundle};
use super::setup::{data_dir, make_group, CGROUP, STATE, TOOLS};
use super::{files, holds_within};
use crate::load::shared::{Command as Order, Mapping, Status};
use crate::load::{Place, Spec};
use crate::protocol::{ContainerJob, GuestJob, Scheduler};

/// The guest's programs and libraries that containers see.
const SYSTEM_DIRS: [&str; 5] = ["usr", "lib", "lib64", "bin", "sbin"];

/// Lines of a container's log in an error.
pub(super) const LOG_LINES: usize = 10;

/// Interval at which containers are looked at.
const POLL: Duration = Duration::from_millis(50);

/// The largest `io.bfq.weight`.
const MAX_BFQ_WEIGHT: u64 = 1000;

/// The cgroup of a user's manager.
pub fn home(uid: u32) -> String {
    format!("/user.slice/user-{uid}.slice/user@{uid}.service")
}

/// The cgroup of a container, relative to the cgroup mount.
pub fn cgroup(job: &ContainerJob) -> String {
    let parent = job.user.map_or_else(|| "/app".to_owned(), home);
    format!("{parent}/{}", job.name)
}

#[derive(Debug)]
pub struct Container {
    pub name: String,
    pub weight: u32,
    pub page: Mapping,
    pub group: PathBuf,
    log: PathBuf,
}

impl Container {
    /// Creates and starts the container; its load then waits for a command.
    pub fn start(
        index: usize,
        job: &ContainerJob,
        seed: u64,
        scheduler: Scheduler,
    ) -> Result<Self> {
        let id = format!("c{index}-{}", job.name.replace('/', "-"));
        let dir = Path::new(STATE).join(&id);
        let control = dir.join("ctl");
        let data = data_dir().join(&job.name);
        for path in [&control, &data] {
            fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let spec = Spec {
            load: job.load.clone(),
            place: Place {
                seed,
                data: "/data/set".into(),
                shared: "/shared".into(),
            },
            page: "/ctl/page".into(),
        };
        let page = Mapping::create(&control.join("page"))?;
        fs::write(control.join("spec.json"), serde_json::to_vec(&spec)?)?;

        let cgroup = cgroup(job);
        if let Some((parent, _)) = cgroup.rsplit_once('/') {
            make_group(parent)?;
        }
        let mut binds = vec![
            Bind::new(TOOLS, TOOLS, false),
            Bind::new(&control, "/ctl", true),
            Bind::new(&data, "/data", true),
        ];
        if job.load.shares_files() {
            fs::create_dir_all(shared_dir()).context("cannot make the shared directory")?;
            binds.push(Bind::new(shared_dir(), "/shared", true));
        }
        let program = format!("{TOOLS}/justitia-lab-guest");
        let bundle = Bundle {
            hostname: &id,
            cgroup: &cgroup,
            weight: job.weight,
            uid: job.user.unwrap_or(0),
            rootfs: &dir.join("rootfs"),
            args: &[&program, "load", "/ctl/spec.json"],
            binds: &binds,
        };
        let container = Self {
            name: job.name.clone(),
            weight: job.weight,
            page,
            group: PathBuf::from(format!("{CGROUP}{cgroup}")),
            log: dir.join("log"),
        };
        if let Some(uid) = job.user {
            files::give(&data, uid)?;
            files::give(&control.join("page"), uid)?;
        }
        run_crun(&container.name, &bundle, &dir, scheduler)?;
        if let Some(uid) = job.user {
            files::give(&container.group, uid)?;
        }
        Ok(container)
    }

    /// Fails if the load has failed or its process is gone.
    pub fn ensure_alive(&self) -> Result<()> {
        if self.page.status() == Status::Failed || (!self.populated() && !self.finished()) {
            bail!(
                "the load of container {} failed: {}",
                self.name,
                files::log_tail(&self.log, LOG_LINES)
            );
        }
        Ok(())
    }

    /// True if the load has finished its work.
    pub fn finished(&self) -> bool {
        self.page.status() == Status::Finished
    }

    pub fn populated(&self) -> bool {
        files::populated(&self.group)
    }

    /// Kills all its processes.
    pub fn kill(&self) {
        // The group may be gone already.
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
    }
}

/// Starts the container of a bundle, detached, with its files and its log in `dir`, and gives it its weight. It
/// sees the guest's programs in addition to the bundle's binds. `name` is for the error.
pub fn run_crun(name: &str, bundle: &Bundle, dir: &Path, scheduler: Scheduler) -> Result<()> {
    fs::create_dir_all(bundle.rootfs)
        .with_context(|| format!("cannot make {}", bundle.rootfs.display()))?;
    let mut binds = system_binds(Path::new("/"), bundle.rootfs)?;
    binds.extend_from_slice(bundle.binds);
    let bundle = Bundle {
        binds: &binds,
        ..*bundle
    };
    let config = serde_json::to_vec_pretty(&oci::config(&bundle))?;
    fs::write(dir.join("config.json"), config)?;
    let log = dir.join("log");
    let output = File::create(&log)?;
    let status = Command::new("crun")
        .args(["--cgroup-manager=cgroupfs", "run", "-d", "--bundle"])
        .args([dir.as_os_str(), bundle.hostname.as_ref()])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .context("cannot run crun")?;
    ensure!(
        status.success(),
        "crun could not start {name}: {}",
        files::log_tail(&log, LOG_LINES)
    );
    let group = format!("{CGROUP}{}", bundle.cgroup);
    write_weight(Path::new(&group), bundle.weight, scheduler)
}

/// Stops all containers, first by command, after `patience` by SIGKILL. Then it waits for at most `patience`
/// again, so threads that hang in the kernel do not hang the guest.
pub fn stop_all(containers: &[Container], patience: Duration) {
    for container in containers {
        container.page.set_command(Order::Stop);
    }
    let gone = || {
        holds_within(patience, POLL, || {
            Ok(!containers.iter().any(Container::populated))
        })
    };
    if !gone().unwrap_or(false) {
        for container in containers {
            container.kill();
        }
        let _ = gone();
    }
}

/// Waits until the loads of all containers have this status.
pub fn wait_for(containers: &[Container], wanted: Status, timeout: Duration) -> Result<()> {
    let reached = holds_within(timeout, POLL, || {
        if containers.iter().all(|c| c.page.status() == wanted) {
            return Ok(true);
        }
        containers.iter().try_for_each(Container::ensure_alive)?;
        Ok(false)
    })?;
    let slow = containers.iter().find(|c| c.page.status() != wanted);
    if let (false, Some(slow)) = (reached, slow) {
        let seconds = timeout.as_secs();
        bail!(
            "container {} is not {wanted:?} after {seconds} s",
            slow.name
        );
    }
    Ok(())
}

/// Gives groups that only nest others the weights of the job, or the sum of those below them.
pub fn weigh_nesting_groups(job: &GuestJob) -> Result<()> {
    let given = job.group_weights.as_ref().map(|given| {
        let given = given.iter();
        given
            .map(|(group, weight)| (group.clone(), u64::from(*weight)))
            .collect()
    });
    for (group, weight) in given.unwrap_or_else(|| nesting_weights(&job.containers)) {
        set_weight(&Path::new(CGROUP).join("app").join(group), weight)?;
    }
    Ok(())
}

fn nesting_weights(jobs: &[ContainerJob]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for job in jobs {
        for (at, _) in job.name.match_indices('/') {
            *sums.entry(job.name[..at].to_owned()).or_default() += u64::from(job.weight);
        }
    }
    sums
}

/// Writes the weight of a container if crun cannot or distorts it: without BFQ it converts `blockIO.weight` to
/// another scale, and OCI cannot express weights above 1000.
fn write_weight(group: &Path, weight: u32, scheduler: Scheduler) -> Result<()> {
    if scheduler == Scheduler::Bfq && oci::fits_block_io(weight) {
        return Ok(());
    }
    set_weight(group, u64::from(weight))
}

/// Writes a weight to io.bfq.weight and io.weight, each if it exists.
pub(super) fn set_weight(group: &Path, weight: u64) -> Result<()> {
    let bfq = group.join("io.bfq.weight");
    if bfq.exists() {
        files::write(&bfq, &weight.clamp(1, MAX_BFQ_WEIGHT).to_string())?;
    }
    let generic = group.join("io.weight");
    if generic.exists() {
        files::write(&generic, &weight.clamp(1, 10_000).to_string())?;
    }
    Ok(())
}

/// The directory that containers with a shared file have in common. It cannot collide with a container: a
/// container's name does not begin with a dot.
pub fn shared_dir() -> PathBuf {
    data_dir().join(".shared")
}

/// The guest's programs in the container: symbolic links are repeated in its root, real directories are
/// bind-mounted.
fn system_binds(root: &Path, rootfs: &Path) -> Result<Vec<Bind>> {
    let mut binds = Vec::new();
    for name in SYSTEM_DIRS {
        let source = root.join(name);
        let Ok(metadata) = fs::symlink_metadata(&source) else {
            continue;
        };
        if metadata.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, rootfs.join(name))
                .with_context(|| format!("cannot link {name} in the container's root"))?;
        } else {
            binds.push(Bind::new(source, &format!("/{name}"), false));
        }
    }
    Ok(binds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::guard::GuardRole;
    use crate::load::Load;

    fn job(name: &str, weight: u32) -> ContainerJob {
        ContainerJob {
            name: name.into(),
            weight,
            lie: None,
            user: None,
            load: Load::Guard(GuardRole::Payer),
        }
    }

    #[test]
    fn a_nesting_group_weighs_what_is_in_it() {
        let jobs = [
            job("t/a", 100),
            job("t/u/b", 200),
            job("t/u/c", 300),
            job("d", 400),
        ];
        let sums = nesting_weights(&jobs);
        assert_eq!(sums["t"], 600);
        assert_eq!(sums["t/u"], 500);
        assert_eq!(sums.len(), 2);
    }

    #[test]
    fn links_are_repeated_and_directories_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let (root, rootfs) = (dir.path().join("root"), dir.path().join("rootfs"));
        fs::create_dir_all(root.join("usr")).unwrap();
        fs::create_dir_all(&rootfs).unwrap();
        std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
        let binds = system_binds(&root, &rootfs).unwrap();
        assert_eq!(binds.len(), 1);
        assert_eq!(binds[0].target, "/usr");
        assert_eq!(
            fs::read_link(rootfs.join("lib")).unwrap(),
            Path::new("usr/lib")
        );
    }
}
