//! `justitia warm`: reads files into the page cache before they are needed.
//!
//! The kernel charges a page to the cgroup of its first reader. The command therefore reads from inside the
//! group that pays, its own or `--group`, and stops before that group holds more page cache than it is
//! entitled to. That is the larger of the agent's present entitlement and the group's weighted share when
//! everybody demands memory, or less if the group's own `memory.max` or `memory.high` leaves less. Pages that
//! are already cached cost nothing, whoever is charged for them, so they are read even then.
//!
//! It uses plain reads instead of `posix_fadvise`: they are no faster than the disk, and the pages are cached
//! when they return. Units: bytes, seconds.

mod files;

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::socket::{ask, require};
use justitia_agent::{Error, Result};
use justitia_cgroup::{Buffer, CgroupFs as _, Group, OwnGroup, RealFs, Want, Why};
use justitia_policy::units::{Bytes, Limit};
use justitia_report::status::{GroupStatus, Report};
use rustix::io::{preadv2, ReadWriteFlags};
use serde::Serialize;

use crate::output;
use crate::settings::{self, OutputArgs};

/// Bytes per read, and between two checks of the group's page cache.
const PIECE: usize = 1 << 20;
/// A run longer than this shows its progress.
const SILENT: Duration = Duration::from_secs(2);
/// Room left below a limit, so that the group does not hit it.
const MARGIN: Bytes = Bytes::mib(2);

/// Arguments of `justitia warm`.
#[derive(Debug, Args)]
#[command(after_help = "\
The pages are charged to the group that this command runs in, or to --group, into which it moves first (this needs \
root, and a group without child groups). It stops when the group holds the page cache that it is entitled to. It \
reads directories recursively and does not follow symbolic links. Needs a running agent that manages the group.

Examples:
  justitia warm /var/lib/mysql --group /app/db
  justitia warm /srv/index /srv/names --group cache --json")]
pub(crate) struct WarmArgs {
    /// Files, or directories with files
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Managed group that is charged, by its path, name or container ID [default: this command's]
    #[arg(long, value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Warmed {
    /// The group that is charged.
    group: String,
    /// Number of files found.
    files: usize,
    /// Size of all files found.
    total_bytes: u64,
    read_bytes: u64,
    /// All files were read completely.
    complete: bool,
    /// Page cache that the group may hold.
    entitled_bytes: u64,
    held_before_bytes: Option<u64>,
    held_after_bytes: Option<u64>,
    seconds: f64,
}

pub(crate) fn run(args: &WarmArgs) -> Result<()> {
    let found = files::find(&args.paths)?;
    let socket = settings::load(&args.output.config)?.socket();
    require(&socket, "the group's entitlement is not known")?;
    let report = ask(&socket)?;
    let own = OwnGroup::find()?;
    let name = args.group.as_deref().unwrap_or(&own.path);
    let status = payer(&report, name, args.group.is_some())?;
    let entitled = entitled(&report, status).ok_or_else(|| unknown(&report, status))?;
    let fs = RealFs::on_directory(&own.mount)?;
    let group = fs.open(&status.path)?;
    if args.group.is_some() {
        fs.join(&status.path).map_err(cannot_join)?;
    }
    let warmed = warm(&found, &group, entitled)?;
    if args.output.json {
        output::print_json(&warmed)?;
    } else if warmed.complete {
        output::print_line(format_args!("{}", words(&warmed)))?;
    }
    if warmed.complete {
        return Ok(());
    }
    Err(Error::failed(
        format!(
            "{} of {} read: {} then held all {entitled} of page cache that it is entitled to",
            Bytes(warmed.read_bytes),
            Bytes(warmed.total_bytes),
            warmed.group,
        ),
        "warm fewer files, give the group more weight, or raise its memory.max",
    ))
}

fn payer<'a>(report: &'a Report, name: &str, named: bool) -> Result<&'a GroupStatus> {
    if named {
        return report.named(name);
    }
    let mut groups = report.groups.iter();
    groups.find(|group| group.path == name).ok_or_else(|| {
        Error::failed(
            format!("this command runs in {name}, which the agent does not manage"),
            "use --group to name the group to charge; justitia status lists the managed groups",
        )
    })
}

/// Page cache that the group may hold, before its own limits: the agent's present entitlement, or the group's
/// weighted share when all groups demand memory, whichever is larger. `None`: unknown.
fn entitled(report: &Report, group: &GroupStatus) -> Option<Bytes> {
    let verdict = group.verdict.as_ref()?;
    let host = &report.host;
    let cache =
        Bytes(host.file_bytes?) + Bytes(host.free_bytes?) - Bytes(host.high_watermark_bytes?);
    let earned = cache.scale(verdict.proportion);
    Some(earned.max(Bytes(verdict.entitlement_bytes)))
}

/// The error for a group whose entitlement is not known.
fn unknown(report: &Report, group: &GroupStatus) -> Error {
    let path = &group.path;
    if report.divides(group) {
        let cause = format!("{path} divides its share among the groups in it");
        return Error::failed(cause, "name one of those with --group");
    }
    let cause = format!("the agent does not know yet what {path} is entitled to");
    Error::failed(cause, "try again in a second")
}

/// Room that the group's own limits leave for page cache.
fn below_limits(group: &Group, buffer: &mut Buffer) -> Option<Bytes> {
    let gauges = group.gauges(Want::ALL, buffer).ok()?;
    let limits = [gauges.knobs.high, gauges.knobs.max];
    let limits = limits.into_iter().flatten().filter_map(Limit::bytes);
    let lowest = limits.min()?;
    let other = gauges.memory.current? - gauges.memory.file?;
    Some(lowest - other - MARGIN)
}

fn held(group: &Group, buffer: &mut Buffer) -> Option<Bytes> {
    group.gauges(Want::MEMORY, buffer).ok()?.memory.file
}

/// Reads on in a file. In a group without room for a whole piece, it reads only what is cached; `None`: that is
/// nothing, or it is not known.
fn next_piece(
    file: &mut File,
    piece: &mut [u8],
    held: Option<Bytes>,
    most: Bytes,
    before: Option<Bytes>,
) -> io::Result<Option<usize>> {
    match held {
        Some(held) if held + Bytes(PIECE as u64) <= most => file.read(piece).map(Some),
        // The kernel begins to read what such a read does not find, and fills holes at once: the group grows.
        Some(held) if held <= most || Some(held) <= before => {
            let slices = &mut [IoSliceMut::new(piece)];
            // The offset is that of the file, which the read moves.
            Ok(preadv2(file, slices, u64::MAX, ReadWriteFlags::NOWAIT).ok())
        }
        _ => Ok(None),
    }
}

/// Reads file after file until the group has no room for what is not cached yet.
fn warm(found: &[files::Found], group: &Group, entitled: Bytes) -> Result<Warmed> {
    let mut buffer = Buffer::new();
    let most = below_limits(group, &mut buffer).map_or(entitled, |room| room.min(entitled));
    let before = held(group, &mut buffer);
    let total: u64 = found.iter().map(|file| file.bytes).sum();
    let began = Instant::now();
    let mut told = began;
    let mut progress = output::Progress::default();
    let mut piece = vec![0; PIECE];
    let mut read = 0;
    let mut complete = true;
    'files: for one in found {
        let mut file = match File::open(&one.path) {
            Ok(file) => file,
            // It was removed since it was found.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("read", &one.path, &error)),
        };
        // A file that grew meanwhile is read as far as it was found.
        let mut left = one.bytes;
        while left > 0 {
            let held = held(group, &mut buffer);
            match next_piece(&mut file, &mut piece, held, most, before) {
                Ok(Some(0)) => break,
                Ok(Some(bytes)) => {
                    read += bytes as u64;
                    left = left.saturating_sub(bytes as u64);
                }
                Ok(None) => {
                    complete = false;
                    break 'files;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", &one.path, &error)),
            }
            if told.elapsed() >= SILENT {
                told = Instant::now();
                let (read, total) = (Bytes(read), Bytes(total));
                progress.show(format_args!("{read} of {total} read "));
            }
        }
    }
    Ok(Warmed {
        group: group.path().to_owned(),
        files: found.len(),
        total_bytes: total,
        read_bytes: read,
        complete,
        entitled_bytes: most.0,
        held_before_bytes: before.map(|bytes| bytes.0),
        held_after_bytes: held(group, &mut buffer).map(|bytes| bytes.0),
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn words(warmed: &Warmed) -> String {
    format!(
        "{} in {} read in {:.1} s; {} holds {} of the {} of page cache that it is entitled to",
        Bytes(warmed.read_bytes),
        output::number(warmed.files, "file"),
        warmed.seconds,
        warmed.group,
        output::bytes(warmed.held_after_bytes),
        Bytes(warmed.entitled_bytes),
    )
}

fn cannot_join(error: justitia_cgroup::Error) -> Error {
    match error.why {
        Why::Busy(_) => Error::failed(
            format!(
                "{} has groups below it, so no process can be in it",
                error.path
            ),
            "name one of those with --group",
        ),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests;
