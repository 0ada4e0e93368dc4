//! Serves the live page with made-up groups, for work on the page:
//! `cargo run -p justitia-web --example page -- [GROUPS] [ADDRESS]`, 8 groups by default.
//!
//! Ctrl-C ends it. To see the page with a stuck agent, stop the process (`kill -STOP`); to see it without an
//! agent, end the process.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use justitia_report::feed::{Frame, Listen, DEFAULT_LISTEN};
use justitia_report::own::Own;
use justitia_report::status::{Report, Setup};
use justitia_report::{example, say};
use justitia_web::{Latest, Listener, Server};

const INTERVAL: Duration = Duration::from_secs(1);

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let groups = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(8);
    let listen = arguments.next().and_then(|address| address.parse().ok());
    let setup = Setup {
        interval: INTERVAL,
        since: SystemTime::now(),
        ..Setup::default()
    };
    let told = |count| Frame {
        listen: None,
        tls: None,
        own: Own::read(),
        report: Report::new(&setup, &example::tick(count, groups)),
    };
    let latest = Arc::new(Latest::new(told(0)));
    let listener = Listener::bind(&listen.unwrap_or(Listen::Tcp(DEFAULT_LISTEN)))?;
    let server = Server::start(listener, None, Arc::clone(&latest))?;
    say::line(format_args!("http://{}/", server.at()))?;
    for count in 1.. {
        latest.post(told(count));
        thread::sleep(INTERVAL);
    }
    Ok(())
}
