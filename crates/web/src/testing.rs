//! Frames of a made-up agent, for tests.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use justitia_policy::config::{Mode, Objective};
use justitia_report::feed::{Frame, Listen, Tls};
use justitia_report::own::Own;
use justitia_report::status::{Report, Setup, Tick};

use crate::latest::Told;

/// The report of a tick, from an agent that started five seconds after the epoch.
pub(crate) fn report(tick: &Tick, interval: Duration) -> Report {
    let setup = Setup {
        mode: Mode::Proportional,
        objective: Objective::Fair,
        interval,
        since: UNIX_EPOCH + Duration::from_secs(5),
    };
    Report::new(&setup, tick)
}

/// The content of a frame, with an interval of one second.
pub(crate) fn told(tick: &Tick) -> Told {
    Told {
        own: Own::default(),
        report: report(tick, Duration::from_secs(1)),
    }
}

/// The agent's frame of a tick.
pub(crate) fn frame(tick: &Tick, listen: Option<&str>) -> Frame<Report> {
    Frame {
        listen: listen.map(|address| address.parse().unwrap()),
        tls: None,
        own: Own::default(),
        report: told(tick).report,
    }
}

pub(crate) fn address(listen: &Listen) -> SocketAddr {
    match listen {
        Listen::Tcp(address) => *address,
        Listen::Unix(path) => panic!("listens at {}", path.display()),
    }
}

/// A self-signed certificate for 127.0.0.1 and its key, in PEM.
pub(crate) fn certificate() -> Tls {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    Tls::Pem {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}
