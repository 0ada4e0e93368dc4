//! What a made-up agent tells.

use std::time::{Duration, UNIX_EPOCH};

use justitia_policy::config::{Mode, Objective};
use justitia_report::feed::Frame;
use justitia_report::own::Own;
use justitia_report::status::{Report, Setup, Tick};

use crate::latest::Told;

/// The report of a tick, of an agent that began five seconds after 1970.
pub(crate) fn report(tick: &Tick, interval: Duration) -> Report {
    let setup = Setup {
        mode: Mode::Proportional,
        objective: Objective::Fair,
        interval,
        since: UNIX_EPOCH + Duration::from_secs(5),
    };
    Report::new(&setup, tick)
}

/// A tick as it is told, once a second.
pub(crate) fn told(tick: &Tick) -> Told {
    Told {
        own: Own::default(),
        report: report(tick, Duration::from_secs(1)),
    }
}

/// The same as it comes from the agent.
pub(crate) fn frame(tick: &Tick, listen: Option<&str>) -> Frame<Report> {
    Frame {
        listen: listen.map(|address| address.parse().unwrap()),
        own: Own::default(),
        report: told(tick).report,
    }
}
