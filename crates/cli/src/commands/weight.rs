//! `justitia weight`: lists, shows, sets or unsets weights.
//!
//! A weight is set as the extended attribute `user.justitia.weight` of the cgroup's directory. For a container, and
//! for a directory that root delegated, it is `security.justitia.weight`, which only the host's root can set.
//! A running agent finds it at its next scan, and without an agent it stays for the next one.

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::socket::{ask, is_listening};
use justitia_agent::{run, Error, Result, Settings};
use justitia_cgroup::{xattr, Fs, Group};
use justitia_discover::{Discovered, Kind, RuntimeDirs, Scanner, Weighed};
use justitia_policy::config::Mode;
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;
use justitia_report::status::{source_words, Report};
use serde::Serialize;

use crate::output::{self, Page, Screen, Table};
use crate::settings::{self, ConfigArgs};

/// Arguments of `justitia weight`.
#[derive(Debug, Args)]
#[command(after_help = "\
A weight set here is stored in an extended attribute of the cgroup's directory: security.justitia.weight for \
containers and below directories that root delegated, user.justitia.weight for other cgroups. A running agent \
applies it within ten seconds. It disappears with the cgroup. The configuration file takes precedence over it.

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
    fn of(found: &Discovered, agent: Option<&Report>) -> WeightRecord {
        use WeightSource::{Config, PodAnnotation, PodCap, QosClass, Xattr};
        let known = agent.and_then(|agent| agent.groups.iter().find(|of| of.id == found.id.0));
        let label = found.alias.as_ref().unwrap_or(&found.path);
        let record = WeightRecord {
            kind: Some(found.kind),
            label: known.map_or(label.as_str(), |known| known.label()).into(),
            ..WeightRecord::of_unmanaged(&found.group, found.weight, found.source)
        };
        match known.map(|known| (known.weight, known.weight_source)) {
            // Only the agent knows the pods that a runtime reported.
            Some((weight, weight_source @ (PodAnnotation | PodCap | QosClass)))
                if !matches!(found.source, Config | Xattr) =>
            {
                WeightRecord {
                    weight,
                    weight_source,
                    ..record
                }
            }
            _ => record,
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
    let configured = settings.clone();
    let agent = match args.manage[..] {
        [] => follow_agent(&mut settings)?,
        _ => None,
    };
    let agent = agent.as_ref();
    let fs = run::open_host(Mode::Observe)?;
    let mut scanner = scan(&fs, &settings)?;
    let Some(name) = &args.group else {
        let records = records(&fs, &scanner, agent);
        if records.is_empty() && agent.is_none() && !args.json {
            return Err(run::no_group(&settings.manage.join(" ")));
        }
        return output::print(args.json, &records, |screen| table(&records, screen));
    };
    let known = agent.and_then(|agent| agent.find(name));
    let mut group = find(&fs, &scanner, known.map_or(name, |known| &known.path));
    if group.is_err() && agent.is_some() {
        // The agent finds a container that was just started at its next scan.
        scanner = scan(&fs, &configured)?;
        group = find(&fs, &scanner, name);
    }
    let group = group?;
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
    let record = record(&scanner, &group, agent)?;
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

/// A scanner that has seen the host.
fn scan(fs: &Fs, settings: &Settings) -> Result<Scanner> {
    let mut scanner = Scanner::new(fs.clone(), settings.discover(), RuntimeDirs::host())
        .map_err(|error| Error::usage(error, justitia_agent::config::GLOB_REMEDY))?;
    scanner.set_priors(run::priors(settings)?);
    scanner.rescan()?;
    Ok(scanner)
}

/// Puts the groups and configured weights of the running agent in place of the configuration's: the agent may have been
/// started with others. Returns its report.
fn follow_agent(settings: &mut Settings) -> Result<Option<Report>> {
    let socket = settings.socket();
    if !is_listening(&socket) {
        return Ok(None);
    }
    let report = ask(&socket)?;
    // A tenant may use these characters in a name. No glob matches itself with them, but a `?` matches each.
    let exactly = |path: &str| path.replace(['*', '[', ']', '{', '}'], "?");
    // A group without names has a weight, but only groups in it are managed.
    let managed = report.groups.iter().filter(|group| group.names.is_some());
    settings.manage = managed.map(|group| exactly(&group.path)).collect();
    settings.manage_also.clear();
    settings.exclude.clear();
    if settings.manage.is_empty() {
        settings.exclude.push("**".into());
    }
    let configured = report.groups.iter();
    let configured = configured.filter(|group| group.weight_source == WeightSource::Config);
    let weight = |weight| Weight::new(weight).unwrap_or(Weight::DEFAULT);
    settings.weights = configured
        .map(|group| (exactly(&group.path), weight(group.weight)))
        .collect();
    Ok(Some(report))
}

fn table(records: &[WeightRecord], screen: Screen) -> Page {
    Table::of(records)
        .left("GROUP", 0, |group| group.label.clone())
        .right("WEIGHT", 0, |group| group.weight.to_string())
        .left("FROM", 1, |group| source_words(group.weight_source))
        .left("KIND", 2, |group| {
            group.kind.map_or("divides".into(), |kind| kind.to_string())
        })
        .render_groups(screen)
}

/// All managed groups, and then those above them that have a weight.
fn records(fs: &Fs, scanner: &Scanner, agent: Option<&Report>) -> Vec<WeightRecord> {
    let managed = scanner.groups().iter();
    let managed = managed.map(|found| WeightRecord::of(found, agent));
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

fn record(scanner: &Scanner, group: &Group, agent: Option<&Report>) -> Result<WeightRecord> {
    if let Some(found) = scanner.groups().iter().find(|found| found.id == group.id()) {
        return Ok(WeightRecord::of(found, agent));
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
    use justitia_agent::socket::{Board, Server};
    use justitia_cgroup::FakeFs;
    use justitia_discover::DiscoverConfig;
    use justitia_report::example;
    use justitia_report::status::{Names, Setup};

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
        assert_eq!(
            record(&scanner(fs.clone()), &group, None).unwrap().weight,
            100
        );
        group.set_xattr(xattr::WEIGHT, "800").unwrap();
        let record = record(&scanner(fs.clone()), &group, None).unwrap();
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
        let record = record(&scanner(fs.clone()), &group, None).unwrap();
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
        let slice = record(&scanner, &group, None).unwrap();
        assert_eq!((slice.weight, slice.divides, slice.kind), (400, true, None));
        assert_eq!(records(&fs, &scanner, None)[1], slice);
    }

    #[test]
    fn a_group_that_is_not_managed_can_be_named_by_path_only() {
        let fake = FakeFs::new();
        fake.mkdir("/other");
        let fs: Fs = fake;
        let group = find(&fs, &scanner(fs.clone()), "/other").unwrap();
        assert_eq!(
            record(&scanner(fs.clone()), &group, None).unwrap().kind,
            None
        );
        assert!(find(&fs, &scanner(fs.clone()), "/nowhere").is_err());
        assert!(find(&fs, &scanner(fs.clone()), "/").is_err());
    }

    #[test]
    fn beside_an_agent_its_groups_names_and_weights_count() {
        let dir = tempfile::tempdir().unwrap();
        let of_file = || Settings {
            state_dir: dir.path().to_owned(),
            exclude: vec!["/app/*".into()],
            ..Settings::default()
        };
        let mut settings = of_file();
        assert!(follow_agent(&mut settings).unwrap().is_none());
        assert_eq!(settings, of_file());

        let fake = FakeFs::new();
        for path in ["/app/web", "/app/db", "/app/mail"] {
            fake.mkdir(path);
        }
        let fs: Fs = fake;
        let mut tick = example::tick(1, 3);
        let names = ["shop/web-0", "db", "mail"].map(|name| Names {
            kind: "pod".into(),
            name: name.into(),
            ..Names::default()
        });
        for (group, source) in tick.snapshot.groups.iter_mut().zip([
            WeightSource::PodAnnotation,
            WeightSource::Config,
            WeightSource::Default,
        ]) {
            group.id = fs.open(&group.path).unwrap().id();
            group.weight_source = source;
        }
        let groups = tick.snapshot.groups.iter().map(|group| group.id);
        // The third has no names: it only holds groups.
        tick.names = std::sync::Arc::new(groups.take(2).zip(names).collect());
        let board = Board::new(Setup::default());
        board.post(tick);
        let _server = Server::listen(&settings.socket(), board.into()).unwrap();

        let agent = follow_agent(&mut settings).unwrap();
        let mut scanner =
            Scanner::new(fs.clone(), settings.discover(), RuntimeDirs::none()).unwrap();
        scanner.rescan().unwrap();
        let records = records(&fs, &scanner, agent.as_ref());
        let seen = records
            .iter()
            .map(|of| (&of.label[..], of.weight, of.weight_source));
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [
                ("/app/db", 400, WeightSource::Config),
                ("shop/web-0", 800, WeightSource::PodAnnotation),
            ]
        );
        let agent = agent.unwrap();
        assert_eq!(agent.find("shop/web-0").unwrap().path, "/app/web");
        let web = find(&fs, &scanner, "/app/web").unwrap();
        web.set_xattr(xattr::WEIGHT, "700").unwrap();
        scanner.rescan().unwrap();
        let set = record(&scanner, &web, Some(&agent)).unwrap();
        assert_eq!((set.weight, set.weight_source), (700, WeightSource::Xattr));
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
