//! `justitia gate`: shows and controls the optional kernel module's gate, at which buffered writers wait by
//! weight.
//!
//! `status` prints the running agent's view of the gate, or reads the module itself if no agent holds it.
//! `enable` and `disable` ask the agent: only the agent changes the gate.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Args, Subcommand};
use justitia_agent::socket::{ask, gate, is_listening};
use justitia_agent::{Error, Result};
use justitia_cgroup::gate::GateError;
use justitia_report::status::{GateDeviceStatus, GateMemberStatus, GateStatus, Reading, Report};
use serde::Serialize;

use crate::output::{self, bytes, Page, Screen, Table};
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia gate`.
#[derive(Debug, Args)]
#[command(after_help = "\
The gate is the optional kernel module justitia.ko. Buffered writers wait there for their turn by weight. It acts at \
once, where memory.high needs seconds. Without it everything works as before. The agent holds the gate if [gate] in \
the configuration says so or after justitia gate enable, until it ends or justitia gate disable. When the agent's \
heartbeat is missing, the gate opens and every writer passes.

Examples:
  justitia gate status
  justitia gate enable
  justitia gate status --json | jq '.gate.devices[] | {device, waiting}'")]
pub(crate) struct GateArgs {
    /// The command.
    #[command(subcommand)]
    command: GateCommand,
}

/// Commands of the gate.
#[derive(Debug, Subcommand)]
enum GateCommand {
    /// Show whether the gate is closed, its queues, and how long each group waited
    Status(OutputArgs),
    /// Make the running agent hold the gate and feed it weights, until the agent stops
    Enable(OutputArgs),
    /// Make the running agent release the gate: writers pass, and the module can be unloaded
    Disable(OutputArgs),
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Printed {
    /// An agent runs.
    agent: bool,
    /// The module is loaded.
    #[serde(skip)]
    loaded: bool,
    gate: GateStatus,
    groups: Vec<PrintedGroup>,
}

#[derive(Debug, Serialize)]
struct PrintedGroup {
    /// `None`: unknown without an agent.
    path: Option<String>,
    id: u64,
    #[serde(flatten)]
    member: GateMemberStatus,
}

pub(crate) fn run(args: &GateArgs) -> Result<()> {
    let (options, on) = match &args.command {
        GateCommand::Status(options) => (options, None),
        GateCommand::Enable(options) => (options, Some(true)),
        GateCommand::Disable(options) => (options, Some(false)),
    };
    let socket = settings::load(&options.config)?.socket();
    let printed = match on {
        // If the agent let the gate go, show the module's remaining state; a module that is already
        // unloaded is not an error.
        Some(on) => of_report(&gate::set(&socket, on)?).unwrap_or_else(|| {
            Reading::beside().map_or_else(|_| nothing_held(), |reading| of_reading(&reading, true))
        }),
        None => look(&socket)?,
    };
    output::print(options.json, &printed, |screen| words(&printed, screen))
}

/// The state from the agent, or else from the module.
fn look(socket: &Path) -> Result<Printed> {
    // If the agent does not answer, fall back to the module.
    if let Some(printed) = ask(socket).ok().as_ref().and_then(of_report) {
        return Ok(printed);
    }
    let reading = Reading::beside().map_err(|error| gate_error(&error))?;
    Ok(of_reading(&reading, is_listening(socket)))
}

fn gate_error(error: &GateError) -> Error {
    match error {
        GateError::Refused { .. } => Error::failed(error, error.remedy()),
        error => Error::environment(error, error.remedy()),
    }
}

fn of_report(report: &Report) -> Option<Printed> {
    let gate = report.gate.clone()?;
    let groups = report.groups.iter().filter_map(|group| {
        Some(PrintedGroup {
            path: Some(group.path.clone()),
            id: group.id,
            member: group.gate?,
        })
    });
    Some(Printed {
        agent: true,
        loaded: true,
        gate,
        groups: groups.collect(),
    })
}

fn of_reading(reading: &Reading, agent: bool) -> Printed {
    let ids: BTreeSet<u64> = reading.members.iter().map(|m| m.cgroup_id).collect();
    let groups = ids.into_iter().filter_map(|id| {
        Some(PrintedGroup {
            path: None,
            id,
            member: GateMemberStatus::of(reading, id)?,
        })
    });
    Printed {
        agent,
        loaded: true,
        gate: GateStatus::of(reading),
        groups: groups.collect(),
    }
}

/// The output if the module is not loaded, perhaps right after the agent let it go.
fn nothing_held() -> Printed {
    Printed {
        agent: true,
        loaded: false,
        gate: GateStatus {
            state: "disabled".into(),
            ..GateStatus::default()
        },
        groups: Vec::new(),
    }
}

/// The gate's state as a sentence; `justitia status` prints it too.
pub(crate) fn sentence(gate: &GateStatus) -> String {
    let what = match gate.state.as_str() {
        "closed" => format!(
            "closed: writers of {} groups wait in order {}",
            gate.groups, gate.order
        ),
        "disabled" => "open: nobody enabled it".into(),
        "no-heartbeat" => "open: its holder sent no heartbeat".into(),
        "no-thresholds" => "open: the kernel's dirty thresholds are not known".into(),
        _ => "open".into(),
    };
    let sum = |of: fn(&GateDeviceStatus) -> u64| gate.devices.iter().map(of).sum::<u64>();
    let (waiting, timed_out) = (
        sum(|device| device.waiting),
        sum(|device| device.timed_out_total),
    );
    format!(
        "gate: {what}; {waiting} tasks wait, {timed_out} waits timed out, dirty pages held at {}",
        bytes(gate.setpoint_bytes),
    )
}

fn words(printed: &Printed, screen: Screen) -> Page {
    let mut text = Page::on(screen);
    writeln!(text, "{}", sentence(&printed.gate));
    if !printed.gate.held {
        text.push_str(match (printed.agent, printed.loaded) {
            (true, true) => "  the agent does not hold it: run justitia gate enable\n",
            (true, false) => "",
            (false, _) => "  no agent runs here to hold it\n",
        });
    }
    if !printed.gate.devices.is_empty() {
        text.push_str("\n");
        devices(&mut text, &printed.gate.devices);
    }
    if !printed.groups.is_empty() {
        text.push_str("\n");
        groups(&mut text, &printed.groups);
    }
    if printed.gate.heartbeats_lost_total > 0 {
        write!(
            text,
            "\nit opened {} times because its holder sent no heartbeat\n",
            printed.gate.heartbeats_lost_total
        );
    }
    text
}

fn devices(text: &mut Page, devices: &[GateDeviceStatus]) {
    let table = Table::of(devices)
        .left("DEVICE", 0, |d| d.device.clone())
        .right("HELD AT", 2, |d| bytes(d.setpoint_bytes))
        .right("DIRTY", 1, |d| bytes(d.dirty_bytes))
        .right("IN FLIGHT", 2, |d| bytes(d.writeback_bytes))
        .right("WAITING", 0, |d| d.waiting.to_string())
        .right("LONGEST QUEUE", 3, |d| d.longest_queue.to_string())
        .right("GRANTED", 1, |d| d.granted_total.to_string())
        .right("REORDERED", 1, |d| d.reordered_total.to_string())
        .right("TIMED OUT", 0, |d| d.timed_out_total.to_string())
        .right("LONGEST WAIT", 2, |d| {
            format!("{:.3} s", d.longest_wait_us as f64 / 1e6)
        });
    text.table(&table);
}

fn groups(text: &mut Page, groups: &[PrintedGroup]) {
    let id = |group: &PrintedGroup| format!("id {}", group.id);
    let table = Table::of(groups)
        .left("GROUP", 0, |g| g.path.clone().unwrap_or_else(|| id(g)))
        .right("WEIGHT", 0, |g| g.member.weight.to_string())
        .right("WAITING", 0, |g| g.member.waiting.to_string())
        .right("DIRTIED", 1, |g| bytes(g.member.dirtied_total_bytes))
        .right("WAITS", 2, |g| g.member.waits_total.to_string())
        .right("WAITED", 1, |g| {
            format!("{:.1} s", g.member.waited_total_us as f64 / 1e6)
        })
        .right("TIMED OUT", 2, |g| g.member.timed_out_total.to_string());
    text.table(&table);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed() -> Printed {
        Printed {
            agent: true,
            loaded: true,
            gate: GateStatus {
                held: true,
                state: "closed".into(),
                order: "stride".into(),
                groups: 2,
                setpoint_bytes: 64 << 20,
                devices: vec![GateDeviceStatus {
                    device: "253:16".into(),
                    waiting: 7,
                    granted_total: 900,
                    longest_wait_us: 1_250_000,
                    ..GateDeviceStatus::default()
                }],
                ..GateStatus::default()
            },
            groups: vec![PrintedGroup {
                path: Some("/app/db".into()),
                id: 41,
                member: GateMemberStatus {
                    weight: 812,
                    waited_total_us: 3_500_000,
                    ..GateMemberStatus::default()
                },
            }],
        }
    }

    fn text(printed: &Printed) -> Page {
        words(printed, Screen::FILE)
    }

    #[test]
    fn a_closed_gate_says_who_waits_where() {
        let text = text(&printed());
        let first = "gate: closed: writers of 2 groups wait in order stride; 7 tasks wait, \
                     0 waits timed out, dirty pages held at 64.0 MiB";
        assert_eq!(text.lines().next().unwrap(), first);
        for word in ["253:16", "1.250 s", "/app/db", "812", "3.5 s"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn an_open_gate_says_why_and_how_it_is_closed() {
        let mut open = printed();
        open.gate.state = "disabled".into();
        open.gate.held = false;
        assert!(text(&open).contains("open: nobody enabled it"));
        assert!(text(&open).contains("justitia gate enable"));
        assert!(!text(&nothing_held()).contains("justitia gate enable"));
        open.agent = false;
        open.gate.state = "no-heartbeat".into();
        let words = text(&open);
        assert!(
            words.contains("no heartbeat") && words.contains("no agent runs"),
            "{words}"
        );
    }
}
