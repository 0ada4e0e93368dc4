//! MariaDB in a crun container, configured so that the page cache determines its speed.
//!
//! The buffer pool is the minimum of `InnoDB` and reads go through the page cache
//! (`innodb_flush_method=fsync`, no asynchronous I/O), so a point select is a hit or a miss of the
//! container's page cache. Everything else that would hold memory or write is off. There are no system tables
//! and no grants: `mariadbd --bootstrap` creates the data directory from two statements, with sysbench's
//! table. The last column is so wide that two rows fill a page. That keeps the number of rows small, and with
//! it the time to create them under emulation.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use crate::guest::oci::{Bind, Bundle};
use crate::guest::setup::{data_dir, enter_group, CGROUP, STATE};
use crate::guest::{container, files, holds_within};
use crate::protocol::databases::{DatabaseJob, Neighbor};
use crate::protocol::Scheduler;

/// Options for both creating and serving.
const COMMON: &str = "\
    --no-defaults --user=root --innodb-log-file-size=8M --innodb-flush-method=fsync \
    --innodb-use-native-aio=OFF --innodb-stats-persistent=OFF --innodb-doublewrite=OFF \
    --innodb-temp-data-file-path=ibtmp1:1M:autoextend --innodb-autoextend-increment=1 \
    --innodb-buffer-pool-load-at-startup=OFF --innodb-buffer-pool-dump-at-shutdown=OFF \
    --skip-performance-schema --plugin-dir=/nonexistent";

/// Options of a server. `innodb-read-ahead-threshold=0` disables `InnoDB`'s read-ahead. With 64, the
/// strictest value according to the manual, and so small a buffer pool it reads the neighbors of many pages
/// (10.11: 1.6 more pages per select).
const SERVE: &str = "\
    --datadir=/data/mysql --tmpdir=/data/tmp --socket=/data/socket --pid-file=/data/tmp/pid \
    --skip-grant-tables --skip-networking --skip-log-bin --innodb-buffer-pool-size=6M \
    --innodb-log-buffer-size=2M --innodb-adaptive-hash-index=OFF \
    --innodb-read-ahead-threshold=0 --key-buffer-size=64K --aria-pagecache-buffer-size=128K \
    --query-cache-type=0 --query-cache-size=0 --table-open-cache=64 --max-connections=64 \
    --thread-cache-size=64";

/// The end of a line in a neighbor's log that stands for a unit of its work.
const UNIT: &str = "unit";

/// The script that a neighbor runs, with the data disk at `/data`.
const fn script(work: Neighbor) -> &'static str {
    match work {
        // tar skips the contents if it sees that its output is /dev/null.
        Neighbor::Backup => {
            "while :; do tar -cf - -C /data --checkpoint=100 --checkpoint-action=echo=unit . | cat >/dev/null; done"
        }
        Neighbor::Log => {
            "while :; do
                dd if=/dev/zero of=/data/log bs=16k count=64 oflag=append conv=notrunc,fsync status=none && echo unit
                if ((++n % 64 == 0)); then mv /data/log /data/log.1; fi
            done"
        }
        Neighbor::Build => {
            "mkdir /data/build && cd /data/build
            for ((n = 0; n < 300; n++)); do
                echo \"int f$n(int x) { int a[8]; for (int i = 0; i < 8; i++) a[i] = x * i + $n; return a[x & 7]; }\"
            done >source
            while :; do
                for ((n = 0; n < 50; n++)); do
                    cp source $n.c && tcc -c $n.c -o $n.o && echo unit
                done
                cat *.o >library && rm *.c *.o
            done"
        }
    }
}

/// Time limit for a server to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// The path of a data directory in the data file system.
pub fn home(index: usize) -> PathBuf {
    data_dir().join(format!("db{index}"))
}

/// Creates the data directory of one database with this many rows; returns the size of its table.
pub fn make(index: usize, rows: u32) -> Result<u64> {
    let home = home(index);
    fs::create_dir_all(home.join("mysql/sbtest"))?;
    fs::create_dir_all(home.join("tmp"))?;
    let mut child = Command::new("mariadbd")
        .args(COMMON.split(' '))
        .arg(format!("--datadir={}", home.join("mysql").display()))
        .arg(format!("--tmpdir={}", home.join("tmp").display()))
        .args(["--innodb-buffer-pool-size=128M", "--bootstrap"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run mariadbd")?;
    child
        .stdin
        .take()
        .context("mariadbd takes no statements")?
        .write_all(statements(rows).as_bytes())
        .context("mariadbd took no statements")?;
    let output = child.wait_with_output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    let refused = log.lines().find(|line| line.starts_with("ERROR"));
    ensure!(
        output.status.success() && refused.is_none(),
        "mariadbd could not make the database: {}",
        refused.map_or_else(|| files::tail(&log, 5), str::to_owned)
    );
    Ok(fs::metadata(table(index))?.len())
}

pub fn table(index: usize) -> PathBuf {
    home(index).join("mysql/sbtest/sbtest1.ibd")
}

/// sysbench's table with a wide last column: two rows of about 7.2 KB fill a page of 16 KiB.
fn statements(rows: u32) -> String {
    format!(
        "USE sbtest;\n\
         CREATE TABLE sbtest1 (id INTEGER NOT NULL, k INTEGER NOT NULL DEFAULT 0, \
         c CHAR(120) NOT NULL DEFAULT '', pad VARCHAR(8000) NOT NULL DEFAULT '', \
         PRIMARY KEY (id)) ENGINE=InnoDB CHARACTER SET latin1;\n\
         INSERT INTO sbtest1 SELECT seq, seq, REPEAT(MD5(seq), 3), REPEAT(MD5(seq), 220) \
         FROM seq_1_to_{rows};\n"
    )
}

#[derive(Debug)]
pub struct Server {
    pub name: String,
    pub group: PathBuf,
    pub socket: PathBuf,
    id: String,
    dir: PathBuf,
}

impl Server {
    /// The container of a job, not yet started.
    pub fn new(index: usize, job: &DatabaseJob) -> Self {
        let id = format!("db{index}-{}", job.name);
        Self {
            name: job.name.clone(),
            group: PathBuf::from(format!("{CGROUP}/app/{}", job.name)),
            socket: home(index).join("socket"),
            dir: Path::new(STATE).join(&id),
            id,
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Units of work that a neighbor has reported.
    pub fn units(&self) -> Result<u64> {
        let log = files::read(&self.log())?;
        Ok(log.lines().filter(|line| line.ends_with(UNIT)).count() as u64)
    }

    /// Starts the container of a database, or of a neighbor, which sees the whole data disk.
    pub fn start(&self, index: usize, job: &DatabaseJob, scheduler: Scheduler) -> Result<()> {
        // Possibly left by the boot that made the image.
        let _ = fs::remove_file(&self.socket);
        let (data, args) = if let Some(work) = job.neighbor {
            (data_dir(), vec!["/bin/bash", "-c", script(work)])
        } else {
            let options = COMMON.split(' ').chain(SERVE.split(' '));
            let program = std::iter::once("/usr/sbin/mariadbd");
            (home(index), program.chain(options).collect())
        };
        let bundle = Bundle {
            hostname: &self.id,
            cgroup: &format!("/app/{}", job.name),
            weight: job.weight,
            uid: 0,
            rootfs: &self.dir.join("rootfs"),
            args: &args,
            binds: &[Bind::new(data, "/data", true)],
        };
        container::run_crun(&self.name, &bundle, &self.dir, scheduler)
    }

    pub fn wait_until_ready(&self) -> Result<()> {
        let accepts = holds_within(START_TIMEOUT, Duration::from_millis(100), || {
            self.ensure_alive()?;
            Ok(UnixStream::connect(&self.socket).is_ok())
        })?;
        ensure!(
            accepts,
            "{} accepts no connections: {}",
            self.name,
            files::log_tail(&self.log(), container::LOG_LINES)
        );
        Ok(())
    }

    /// Fails if its processes are gone.
    pub fn ensure_alive(&self) -> Result<()> {
        ensure!(
            files::populated(&self.group),
            "container {} ended: {}",
            self.name,
            files::log_tail(&self.log(), container::LOG_LINES)
        );
        Ok(())
    }

    /// Reads the whole table once from within the container's cgroup, so that its pages are charged to it.
    pub fn read_all(&self, index: usize) -> Result<Child> {
        let mut command = Command::new("cat");
        command
            .arg(table(index))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        enter_group(&mut command, &self.group)?;
        command.spawn().context("cannot run cat")
    }

    /// Stops the container for good and removes its cgroup, as a container manager does. Its page cache then
    /// belongs to no group.
    pub fn stop(&self) -> Result<()> {
        files::write(&self.group.join("cgroup.kill"), "1")?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match fs::remove_dir(&self.group) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", self.group.display()))
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_stands_on_its_own_line() {
        let text = statements(7);
        assert!(text.lines().all(|line| line.ends_with(';')), "{text}");
        assert!(text.contains("seq_1_to_7;"));
    }

    #[test]
    fn bash_can_parse_what_a_neighbor_runs() {
        for work in [Neighbor::Backup, Neighbor::Log, Neighbor::Build] {
            let status = Command::new("bash")
                .args(["-n", "-c", script(work)])
                .status();
            assert!(status.unwrap().success(), "{work:?}");
        }
    }
}
