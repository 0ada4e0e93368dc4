//! `justitia weight`: lists, shows, sets or unsets weights.
//!
//! A weight is set as the extended attribute `user.justitia.weight` of the cgroup's directory. For a container, and
//! for a directory that root delegated, it is `security.justitia.weight`, which only the host's root can set.
//! A running agent finds it at its next scan, and without an agent it stays for the next one.

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::{run, Error, Result};
use justitia_cgroup::{xattr, Fs, Group};
use justitia_discover::{Discovered, Kind, RuntimeDirs, Scanner, Weighed};
use justitia_policy::config::Mode;
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;
use justitia_report::status::source_words;
use serde::Serialize;

use crate::output::{self, Page, Screen, Table};
use crate::settings::{self, ConfigArgs};

/// Arguments of `justitia weight`.
#[derive(Debug, Args)]
#[command(after_help = "\
A weight set here is stored in an extended attribute of the cgroup's directory:
security.justitia.weight for containers and below directories that root delegated,
user.justitia.weight for other cgroups. A running agent applies it within ten seconds. It
disappears with the cgroup. The configuration file takes precedence over it.

Examples:
  justitia weight                   every managed group, and where its weight comes from
  justitia weight /app/db
  justitia weight /app/db 800
  justitia weight /app/db --unset")]
pub(crate) struct WeightArgs {
    /// Path of the group relative to the cgroup2 mount, or the name of a managed group that no tenant made
    #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,
    /// The new weight, 1 to 10000
    #[arg(value_name = "N", requires = "group", allow_negative_numbers = true, value_parser = parse_weight)]
    pub(crate) weight: Option<Weight>,
    /// Remove the weight set here
    #[arg(long, requires = "group", conflicts_with = "weight")]
    pub(crate) unset: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Cgroups that are managed, when the configuration does not say
    #[arg(long, value_name = "GLOB", value_parser = settings::glob)]
    pub(crate) manage: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// One group's weight, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct WeightRecord {
    path: String,
    id: u64,
    weight: u32,
    weight_source: WeightSource,
    /// `None`: the group is not managed.
    kind: Option<Kind>,
    /// It divides its weight among managed groups in it.
    divides: bool,
    #[serde(skip)]
    label: String,
}

impl WeightRecord {
    fn of(found: &Discovered) -> WeightRecord {
        WeightRecord {
            kind: Some(found.kind),
            label: found.alias.as_ref().unwrap_or(&found.path).clone(),
            ..WeightRecord::of_unmanaged(&found.group, found.weight, found.source)
        }
    }

    fn of_unmanaged(group: &Group, weight: Weight, weight_source: WeightSource) -> WeightRecord {
        WeightRecord {
            path: group.path().to_owned(),
            id: group.id().0,
            weight: weight.get(),
            weight_source,
            kind: None,
            divides: false,
            label: group.path().to_owned(),
        }
    }

    /// A group above managed ones, which has a weight.
    fn of_ancestor(group: &Group, found: &Weighed) -> WeightRecord {
        WeightRecord {
            divides: true,
            ..WeightRecord::of_unmanaged(group, found.weight, found.source)
        }
    }
}

pub(crate) fn run(args: &WeightArgs) -> Result<()> {
    let mut settings = settings::load(&args.config)?;
    settings::override_globs(&mut settings.manage, &args.manage);
    let fs = run::open_host(Mode::Observe)?;
    let mut scanner = Scanner::new(fs.clone(), settings.discover(), RuntimeDirs::host())
        .map_err(|error| Error::usage(error, justitia_agent::config::GLOB_REMEDY))?;
    scanner.set_priors(run::priors(&settings)?);
    scanner.rescan()?;
    let Some(name) = &args.group else {
        return list(&fs, &scanner, &settings.manage.join(" "), args.json);
    };
    let group = find(&fs, &scanner, name)?;
    if let Some(weight) = args.weight {
        group.set_xattr(scanner.attribute_of(group.path()), &weight.to_string())?;
    } else if args.unset {
        for name in [xattr::WEIGHT, xattr::WEIGHT_OF_DELEGATED] {
            group.remove_xattr(name)?;
        }
    }
    if args.weight.is_some() || args.unset {
        scanner.rescan()?;
    }
    let record = record(&scanner, &group)?;
    if args.json {
        return output::print_json(&record);
    }
    let from = source_words(record.weight_source);
    let mut text = Page::new();
    writeln!(
        text,
        "{} has weight {} from {from}",
        record.path, record.weight
    );
    if record.kind.is_none() && !record.divides {
        text.push_str("it is not among the managed groups\n");
    } else if args.weight.is_some_and(|new| new.get() != record.weight) {
        text.push_str("it takes precedence over the weight set here\n");
    }
    if record.divides {
        text.push_str("it divides this weight among the managed groups in it\n");
    }
    text.print()
}

fn list(fs: &Fs, scanner: &Scanner, globs: &str, json: bool) -> Result<()> {
    let records = records(fs, scanner);
    if json {
        return output::print_json(&records);
    }
    if records.is_empty() {
        return Err(run::no_group(globs));
    }
    Table::of(&records)
        .left("GROUP", 0, |group| group.label.clone())
        .right("WEIGHT", 0, |group| group.weight.to_string())
        .left("FROM", 1, |group| source_words(group.weight_source))
        .left("KIND", 2, |group| {
            group.kind.map_or("divides".into(), |kind| kind.to_string())
        })
        .render(Screen::stdout())
        .print()
}

/// All managed groups, and then those above them that have a weight.
fn records(fs: &Fs, scanner: &Scanner) -> Vec<WeightRecord> {
    let managed = scanner.groups().iter().map(WeightRecord::of);
    let above = scanner.weighed().iter();
    let above = above.filter_map(|found| {
        let group = fs.open(&found.path).ok()?;
        Some(WeightRecord::of_ancestor(&group, found))
    });
    managed.chain(above).collect()
}

/// Finds a group by the name of a managed one, or else by its path below the mount.
fn find(fs: &Fs, scanner: &Scanner, name: &str) -> Result<Group> {
    let managed = scanner.find(name).map(|found| found.group.clone());
    managed.or_else(|| below_mount(fs, name)).ok_or_else(|| {
        Error::usage(
            format!("there is no cgroup {name}"),
            "name a path below the cgroup2 mount; justitia weight lists the managed ones",
        )
    })
}

/// The group with this path below the mount.
pub(crate) fn below_mount(fs: &Fs, name: &str) -> Option<Group> {
    let name = name.trim_matches('/');
    let path = (!name.is_empty()).then(|| format!("/{name}"))?;
    fs.open(&path).ok()
}

fn record(scanner: &Scanner, group: &Group) -> Result<WeightRecord> {
    if let Some(found) = scanner.groups().iter().find(|found| found.id == group.id()) {
        return Ok(WeightRecord::of(found));
    }
    let mut above = scanner.weighed().iter();
    if let Some(found) = above.find(|found| found.path == group.path()) {
        return Ok(WeightRecord::of_ancestor(group, found));
    }
    let mut set = None;
    for name in [xattr::WEIGHT, xattr::WEIGHT_OF_DELEGATED] {
        let text = group.xattr(name)?;
        set = text.and_then(|text| parse_weight(&text).ok()).or(set);
    }
    let default = (Weight::DEFAULT, WeightSource::Default);
    let (weight, source) = set.map_or(default, |weight| (weight, WeightSource::Xattr));
    Ok(WeightRecord::of_unmanaged(group, weight, source))
}

fn parse_weight(text: &str) -> Result<Weight> {
    let what = format!("weight {text}");
    Ok(justitia_agent::config::parse_weight(&what, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_cgroup::FakeFs;
    use justitia_discover::DiscoverConfig;

    fn scanner(fs: Fs) -> Scanner {
        let config = DiscoverConfig::managing(&["/app/*"]);
        let mut scanner = Scanner::new(fs, config, RuntimeDirs::none()).unwrap();
        scanner.rescan().unwrap();
        scanner
    }

    #[test]
    fn a_weight_set_on_a_group_is_what_it_has() {
        let fake = FakeFs::new();
        fake.mkdir("/app");
        fake.mkdir("/app/db");
        let fs: Fs = fake;
        let group = find(&fs, &scanner(fs.clone()), "db").unwrap();
        assert_eq!(record(&scanner(fs.clone()), &group).unwrap().weight, 100);
        group.set_xattr(xattr::WEIGHT, "800").unwrap();
        let record = record(&scanner(fs.clone()), &group).unwrap();
        assert_eq!(
            (record.weight, record.weight_source),
            (800, WeightSource::Xattr)
        );
    }

    #[test]
    fn a_weight_of_a_delegated_group_counts_before_the_one_its_owner_set() {
        let fake = FakeFs::new();
        fake.mkdir("/other");
        let fs: Fs = fake;
        let group = find(&fs, &scanner(fs.clone()), "/other").unwrap();
        group.set_xattr(xattr::WEIGHT, "800").unwrap();
        group.set_xattr(xattr::WEIGHT_OF_DELEGATED, "300").unwrap();
        let record = record(&scanner(fs.clone()), &group).unwrap();
        assert_eq!(record.weight, 300);
    }

    #[test]
    fn a_slice_above_managed_groups_shows_the_weight_that_it_divides() {
        let fake = FakeFs::new();
        fake.mkdir("/batch.slice");
        fake.mkdir("/batch.slice/job");
        let fs: Fs = fake;
        let config = DiscoverConfig {
            weights: vec![("/batch.slice".into(), Weight::new(400).unwrap())],
            ..DiscoverConfig::managing(&["/batch.slice/*"])
        };
        let mut scanner = Scanner::new(fs.clone(), config, RuntimeDirs::none()).unwrap();
        scanner.rescan().unwrap();
        let group = find(&fs, &scanner, "/batch.slice").unwrap();
        let slice = record(&scanner, &group).unwrap();
        assert_eq!((slice.weight, slice.divides, slice.kind), (400, true, None));
        assert_eq!(records(&fs, &scanner)[1], slice);
    }

    #[test]
    fn a_group_that_is_not_managed_can_be_named_by_path_only() {
        let fake = FakeFs::new();
        fake.mkdir("/other");
        let fs: Fs = fake;
        let group = find(&fs, &scanner(fs.clone()), "/other").unwrap();
        assert_eq!(record(&scanner(fs.clone()), &group).unwrap().kind, None);
        assert!(find(&fs, &scanner(fs.clone()), "/nowhere").is_err());
        assert!(find(&fs, &scanner(fs.clone()), "/").is_err());
    }

    #[test]
    fn weights_out_of_range_are_wrong_usage() {
        for text in ["0", "10001", "-1", "heavy", ""] {
            assert_eq!(
                parse_weight(text).unwrap_err().exit,
                justitia_agent::Exit::Usage
            );
        }
    }
}
