//! `justitia reserve`: requests free memory from the running agent for a group that is about to start.
//!
//! The agent reclaims page cache from groups above their share until the memory is free, and limits them at
//! their share meanwhile. It forgets the reservation when the group has taken the memory or the time is over.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::config::{parse_size, parse_time};
use justitia_agent::socket::reserve::{reserve, Reserved, LONGEST, SHORTEST};
use justitia_agent::{Error, Result};
use justitia_policy::units::Bytes;
use serde::Serialize;

use crate::output::{self, Page};
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia reserve`.
#[derive(Debug, Args)]
#[command(after_help = "\
justitia status shows when the memory is free. The kernel has to write dirty pages first, at the speed of the disk: \
reserve that much earlier. The reservation shrinks by what the group takes, expires after --for, and protects \
nothing else. Needs a running agent.

Examples:
  justitia reserve /app/db 4G --for 60s
  justitia reserve db 512M
  justitia reserve /app/later 2G --for 5m   a group that is not there yet
  justitia reserve /app/db --clear")]
pub(crate) struct ReserveArgs {
    /// Path of the group relative to the cgroup2 mount; its name or container ID if it is managed
    #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: String,
    /// Size, such as 4G or 512M
    #[arg(
        value_name = "SIZE",
        required_unless_present = "clear",
        allow_negative_numbers = true,
        value_parser = size
    )]
    pub(crate) size: Option<Bytes>,
    /// Time after which the reservation expires, 1s to 1h
    #[arg(
        long = "for",
        value_name = "TIME",
        default_value = "60s",
        allow_negative_numbers = true,
        value_parser = time
    )]
    pub(crate) time: Duration,
    /// Cancel the reservation
    #[arg(long, conflicts_with = "size")]
    pub(crate) clear: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Printed {
    path: String,
    bytes: u64,
    for_s: f64,
    managed: bool,
}

pub(crate) fn run(args: &ReserveArgs) -> Result<()> {
    let bytes = args.size.unwrap_or_default();
    let socket = settings::load(&args.output.config)?.socket();
    let reserved = reserve(&socket, &args.group, bytes, args.time)?;
    if args.output.json {
        return output::print_json(&Printed {
            path: reserved.path,
            bytes: reserved.bytes.0,
            for_s: Duration::from_millis(reserved.for_ms).as_secs_f64(),
            managed: reserved.managed,
        });
    }
    words(&reserved).print()
}

fn time(text: &str) -> Result<Duration> {
    Ok(parse_time("--for", text, SHORTEST..=LONGEST)?)
}

fn size(text: &str) -> Result<Bytes> {
    let bytes = parse_size("SIZE", text)?.page_aligned();
    if bytes == Bytes::ZERO {
        return Err(Error::usage(
            "no size to reserve",
            "name a size such as 512M, or --clear to cancel a reservation",
        ));
    }
    Ok(bytes)
}

fn words(reserved: &Reserved) -> Page {
    let path = &reserved.path;
    let mut text = Page::new();
    if reserved.bytes == Bytes::ZERO {
        writeln!(text, "no memory is reserved for {path} any more");
        return text;
    }
    writeln!(
        text,
        "{} reserved for {path}, for {} s",
        reserved.bytes,
        reserved.for_ms as f64 / 1000.0
    );
    if !reserved.managed {
        text.push_str(
            "  the group does not exist yet, or nothing in it is managed: the reservation does not shrink by what it takes\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_printed_and_whether_its_group_is_managed() {
        let mut reserved = Reserved {
            path: "/app/db".into(),
            bytes: Bytes::mib(512),
            for_ms: 60_000,
            managed: true,
        };
        assert_eq!(
            &*words(&reserved),
            "512.0 MiB reserved for /app/db, for 60 s\n"
        );
        reserved.managed = false;
        assert!(words(&reserved).contains("nothing in it is managed"));
        reserved.bytes = Bytes::ZERO;
        assert!(words(&reserved).starts_with("no memory is reserved"));
    }
}
