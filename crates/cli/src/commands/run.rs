//! `justitia run`: the agent in the foreground.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use anyhow::Result;
use justitia_agent::config::parse_observer;
use justitia_agent::{run, Error, Log};
use justitia_report::feed::parse_listen;

use crate::args::RunArgs;
use crate::{settings, sibling};

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let read = || {
        let mut settings = settings::with_policy(&args.config, &args.policy)?;
        settings.hand_over = args.hand_over;
        if let Some(listen) = &args.listen {
            settings.listen =
                parse_listen(listen).map_err(|(cause, remedy)| Error::usage(cause, remedy))?;
        }
        if let Some(observer) = &args.observer {
            settings.observer = parse_observer(observer)?;
        }
        Ok(settings)
    };
    let (settings, log) = (read()?, Log::stderr(args.verbose));
    let (mut page, mut stream) = (None, None);
    if settings.listen.is_some() {
        (page, stream) = Page::start(&log).unzip();
    }
    let done = run::run(settings, args.wait, &log, stream, read);
    drop(page);
    Ok(done?)
}

/// The web process beside an agent that nobody else starts one for. It becomes nobody, and its only way to the
/// agent is the connection it is born with.
struct Page(Child);

impl Page {
    /// Before the agent has locked anything, and while it has one thread. What stands in the way is told and
    /// no reason to stop.
    fn start(log: &Log) -> Option<(Page, UnixStream)> {
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            log.info("started by a service manager: the live page is justitia-web.service's");
            return None;
        }
        let started = sibling::find("justitia-web").and_then(|program| {
            let (ours, theirs) = UnixStream::pair()
                .map_err(|error| Error::io("make a connection to", &program, &error))?;
            let child = Command::new(&program)
                .arg("--stdin")
                .stdin(OwnedFd::from(theirs))
                .spawn()
                .map_err(|error| Error::io("start", &program, &error))?;
            Ok((Page(child), ours))
        });
        match started {
            Ok(started) => Some(started),
            Err(Error { cause, remedy, .. }) => {
                log.warn(format_args!(
                    "no live page and no metrics: {cause}; {remedy}"
                ));
                None
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
