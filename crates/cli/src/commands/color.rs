//! `justitia color`: lists, shows, declares or clears colors.
//!
//! If an agent runs, the color is sent over its socket, which needs no delegated attribute and accepts a time
//! to live. Otherwise it is set as the extended attribute `user.justitia.color` of the cgroup's directory,
//! where the next agent finds it.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::config::{parse_color, parse_time};
use justitia_agent::socket::color::LONGEST_TIME_TO_LIVE;
use justitia_agent::socket::{ask, clear_color, declare_color, is_listening};
use justitia_agent::{run, Error, Result, Settings};
use justitia_cgroup::parse::color::{declaration, reason, LONGEST};
use justitia_cgroup::{xattr, Attribute, Buffer, Fs, Group};
use justitia_policy::color::{ColorSource, Declared, Standing};
use justitia_policy::config::Mode;
use justitia_policy::Color;
use justitia_report::status::{GroupStatus, Report};
use serde::Serialize;

use super::weight::below_mount;
use crate::output::{self, Page, Screen, Table};
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia color`.
#[derive(Debug, Args)]
#[command(after_help = "\
green: satisfied, would not benefit from more
yellow: satisfied, would do better with more
red: not satisfied
While a group is red and memory is scarce, memory flows to it from green groups, then yellow ones. A color counts \
for color_ttl (5 s) unless --for says otherwise: declare it again before it expires. A container declares its own in \
the xattr user.justitia.color of its cgroup.

Examples:
  justitia color                            every managed group
  justitia color /app/db
  justitia color /app/db green --reason 'p99 3 ms'
  justitia color /app/db red --for 10m
  justitia color /app/db --clear")]
pub(crate) struct ColorArgs {
    /// Path of the group relative to the cgroup2 mount; its name or container ID if an agent runs
    #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,
    /// green, yellow or red
    #[arg(value_name = "COLOR", requires = "group", value_parser = parse_color)]
    pub(crate) color: Option<Color>,
    /// Reason, for people
    #[arg(long, value_name = "TEXT", requires = "color", default_value = "")]
    pub(crate) reason: String,
    /// Time for which the color counts, up to seven days, such as 10s, 5m or 2h
    #[arg(long = "for", value_name = "TIME", requires = "color", value_parser = time_to_live)]
    pub(crate) time: Option<Duration>,
    /// Remove the declared color
    #[arg(long, requires = "group", conflicts_with = "color")]
    pub(crate) clear: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// One group's color, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ColorRecord {
    path: String,
    id: u64,
    /// `None`: the agent has not made its first step, or the group holds groups.
    color: Option<Color>,
    color_source: Option<ColorSource>,
    declared: Option<Declared>,
}

/// Lists, shows, declares or clears.
pub(crate) fn run(args: &ColorArgs) -> Result<()> {
    let settings = settings::load(&args.output.config)?;
    let socket = settings.socket();
    let Some(name) = &args.group else {
        let report = ask(&socket)?;
        let records: Vec<ColorRecord> = report.groups.iter().map(record).collect();
        return output::print(args.output.json, &records, |screen| table(&report, screen));
    };
    if !is_listening(&socket) {
        return without_agent(args, &settings, name);
    }
    if let Some(color) = args.color {
        let heard = declare_color(&socket, name, color, &args.reason, args.time)?;
        return said(args, &heard.path, &format!("declares {color}"));
    }
    if args.clear {
        let heard = clear_color(&socket, name)?;
        // Remove the attribute too: a user may have set it without an agent, or the container itself.
        let fs = run::open_host(Mode::Observe)?;
        if let Ok(group) = fs.open(&heard.path) {
            remove(&group)?;
        }
        return said(args, &heard.path, "declares no color any more");
    }
    let report = ask(&socket)?;
    let group = report.named(name)?;
    output::print(args.output.json, &record(group), |_| {
        Page::of(format_args!("{}: {}", group.path, words(&report, group)))
    })
}

fn table(report: &Report, screen: Screen) -> Page {
    let groups = report.groups.iter();
    Table::of(groups.map(|group| (group, group.verdict.as_ref())))
        .left("GROUP", 0, |(g, _)| g.label())
        .left("COLOR", 0, |(_, v)| {
            v.map(|v| (v.color.to_string(), Some(v.color)))
        })
        .left("BY", 1, |(_, v)| v.map(|v| v.color_source.to_string()))
        .left("DECLARED", 2, |(g, _)| {
            g.declared.as_ref().map_or_else(String::new, told)
        })
        .render_groups(screen)
}

/// The color of a group, its source and its reason, in one line.
pub(crate) fn words(report: &Report, group: &GroupStatus) -> String {
    let mut text = match &group.verdict {
        None if report.divides(group) => {
            "no color: it divides its share among the groups in it".to_owned()
        }
        None => "no color before the first step".to_owned(),
        Some(verdict) => format!("{}, {}", verdict.color, verdict.color_source),
    };
    if let Some(declared) = &group.declared {
        let _ = write!(text, "; {}", told(declared));
    }
    text
}

/// A declaration and its standing, in words.
fn told(declared: &Declared) -> String {
    let ago = format!("{:.1} s", declared.unchanged_s);
    let channel = declared.channel;
    let mut text = match (declared.standing, declared.color) {
        (Standing::Fresh, _) => format!("{channel}, {ago} ago"),
        (Standing::Stale, Some(color)) => format!("{channel} says {color}, stale: same for {ago}"),
        (standing, Some(color)) => {
            let standing = standing.words();
            format!("{channel} {standing} since {ago}, {color} before")
        }
        (standing, None) => format!("{channel} {} since {ago}", standing.words()),
    };
    if !declared.reason.is_empty() {
        let _ = write!(text, ": {}", declared.reason);
    }
    text
}

fn record(group: &GroupStatus) -> ColorRecord {
    let verdict = group.verdict.as_ref();
    ColorRecord {
        path: group.path.clone(),
        id: group.id,
        color: verdict.map(|verdict| verdict.color),
        color_source: verdict.map(|verdict| verdict.color_source),
        declared: group.declared.clone(),
    }
}

/// Shows, sets or removes the attribute, without an agent.
fn without_agent(args: &ColorArgs, settings: &Settings, name: &str) -> Result<()> {
    if args.time.is_some() {
        let cause = format!("no agent listens at {}", settings.socket().display());
        let remedy = "leave out --for: without an agent the color is stored as an xattr";
        return Err(Error::failed(cause, remedy));
    }
    let fs = run::open_host(Mode::Observe)?;
    let group = open(&fs, name)?;
    if let Some(color) = args.color {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let value = value(color, now.unwrap_or_default().as_secs(), &args.reason);
        group.set_xattr(xattr::COLOR, &value)?;
        let what = format!("declares {color} to the next agent: none listens now");
        return said(args, group.path(), &what);
    }
    if args.clear {
        remove(&group)?;
        return said(args, group.path(), "declares no color any more");
    }
    let text = read(&group)?;
    if args.output.json {
        return output::print_json(&serde_json::json!({
            "path": group.path(),
            "id": group.id(),
            "xattr": text,
        }));
    }
    output::print_line(format_args!("{}: {text}; no agent listens", group.path()))
}

/// The attribute of a group, in words.
fn read(group: &Group) -> Result<String> {
    let mut buffer = Buffer::new();
    let found = group.read_xattr(xattr::COLOR, &mut buffer)?;
    Ok(match (found, declaration(buffer.bytes())) {
        (Attribute::Unset, _) => "declares no color".into(),
        (Attribute::Longer, _) => "declares a color that is too long".into(),
        (Attribute::Set, Ok(said)) => format!("declares {} {}", said.color, said.reason)
            .trim_end()
            .into(),
        (Attribute::Set, Err(_)) => "declares an unknown color".into(),
    })
}

fn remove(group: &Group) -> Result<()> {
    Ok(group.remove_xattr(xattr::COLOR)?)
}

fn said(args: &ColorArgs, path: &str, what: &str) -> Result<()> {
    let record = serde_json::json!({ "path": path });
    output::print(args.output.json, &record, |_| {
        Page::of(format_args!("{path} {what}"))
    })
}

/// The attribute's value. The time makes each value differ from the one before.
fn value(color: Color, now_unix_s: u64, text: &str) -> String {
    let mut value = format!("{color} {now_unix_s} {}", reason(text));
    value.truncate(LONGEST);
    value.truncate(value.trim_end().len());
    value
}

fn open(fs: &Fs, name: &str) -> Result<Group> {
    below_mount(fs, name).ok_or_else(|| {
        Error::usage(
            format!("there is no cgroup {name}, and no agent that knows it by a shorter name"),
            "name a path below the cgroup2 mount, or start the agent",
        )
    })
}

fn time_to_live(text: &str) -> Result<Duration> {
    let range = Duration::from_millis(100)..=LONGEST_TIME_TO_LIVE;
    Ok(parse_time("--for", text, range)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::status::tests::example;
    use justitia_cgroup::FakeFs;
    use justitia_policy::color::Channel;

    fn declared(standing: Standing, color: Option<Color>) -> Declared {
        Declared {
            standing,
            color,
            channel: Channel::Xattr,
            unchanged_s: 12.0,
            reason: "p99 3 ms".into(),
        }
    }

    pub(crate) fn rendered(report: &Report) -> crate::output::Page {
        table(report, Screen::FILE)
    }

    #[test]
    fn a_declaration_that_does_not_count_is_printed_with_its_reason_and_time() {
        let words = |group: &_| super::words(&example(), group);
        let mut group = example().groups.remove(0);
        assert_eq!(words(&group), "red, inferred");
        group.declared = Some(declared(Standing::Stale, Some(Color::Green)));
        assert_eq!(
            words(&group),
            "red, inferred; xattr says green, stale: same for 12.0 s: p99 3 ms"
        );
        for (standing, word) in [
            (Standing::Removed, "removed"),
            (Standing::Malformed, "malformed"),
            (Standing::TooLong, "too long"),
            (Standing::Unreadable, "unreadable"),
        ] {
            group.declared = Some(declared(standing, None));
            let text = words(&group);
            assert!(
                text.contains(&format!("xattr {word} since 12.0 s")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_group_that_holds_groups_has_no_color() {
        let mut report = example();
        assert!(words(&report, &report.groups[1]).contains("before the first step"));
        report.groups[1].path = "/".into();
        assert!(words(&report, &report.groups[1]).contains("divides its share"));
    }

    #[test]
    fn the_list_has_every_group() {
        let text = table(&example(), Screen::FILE);
        assert!(
            text.contains("/app/db") && text.contains("/app/new"),
            "{text}"
        );
        assert!(text.contains("inferred"), "{text}");
    }

    #[test]
    fn a_color_set_without_an_agent_is_understood_by_one() {
        let fake = FakeFs::new();
        fake.mkdir("/app");
        let fs: Fs = fake;
        let group = open(&fs, "app").unwrap();
        assert_eq!(read(&group).unwrap(), "declares no color");
        let text = value(Color::Yellow, 1_763_654_400, &"queue \u{7}17 ".repeat(60));
        assert!(text.len() <= LONGEST, "{}", text.len());
        group.set_xattr(xattr::COLOR, &text).unwrap();
        let said = declaration(text.as_bytes()).unwrap();
        assert_eq!(said.color, Color::Yellow);
        assert!(
            said.reason.starts_with("queue ?17 queue"),
            "{}",
            said.reason
        );
        assert!(read(&group).unwrap().starts_with("declares yellow queue"));
        remove(&group).unwrap();
        assert_eq!(read(&group).unwrap(), "declares no color");
        assert!(open(&fs, "/").is_err() && open(&fs, "/nowhere").is_err());
    }

    #[test]
    fn a_time_is_bounded() {
        assert_eq!(time_to_live("2m").unwrap(), Duration::from_secs(120));
        for text in ["0", "8000h", "soon"] {
            let error = time_to_live(text).unwrap_err();
            assert_eq!(error.exit, justitia_agent::Exit::Usage, "{text}");
        }
    }
}
