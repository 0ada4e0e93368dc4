//! The program `justitia web`: started by systemd or by `justitia run` with a connection to the agent as its
//! standard input, or by hand.
//!
//! Input from the network is read without any privilege: root connects to the agent and binds the port, and
//! becomes nobody before the first thread starts.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use justitia_args::web::WebArgs;
use justitia_report::feed::parse_listen;
use justitia_report::{Error, Log, Result};
use justitia_web::{Feed, Page, Place};
use rustix::process::{geteuid, Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The default state directory of the agent.
const STATE_DIR: &str = "/run/justitia";
/// The kernel's overflow user ID, which owns nothing.
const NOBODY: u32 = 65534;

/// Serve the live page and the metrics of an agent that was started without them
#[derive(Parser)]
#[command(
    name = "justitia web",
    bin_name = "justitia web",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    web: WebArgs,
}

fn main() -> ExitCode {
    justitia_args::main(|cli: &Cli| run(&cli.web))
}

/// Serves until the agent ends.
fn run(args: &WebArgs) -> Result<()> {
    let place = match &args.listen {
        Some(listen) => Place::At(parse_listen(listen)?),
        None => Place::AsTold,
    };
    let mut feed = if args.stdin {
        Feed::stdin()?
    } else {
        let state_dir = args.state_dir.as_deref().unwrap_or(Path::new(STATE_DIR));
        Feed::connect(state_dir, args.wait)?
    };
    let Some(first) = feed.read()? else {
        if args.stdin {
            return Ok(());
        }
        return Err(Error::failed(
            "the agent ended the connection without a report",
            "start it again; if the agent runs, stop another justitia-web first",
        ));
    };
    // An agent that started this process may name an address later.
    if !args.stdin && place.or(first.listen.clone()).is_none() {
        return Err(Error::usage(
            "the page has no address: listen is off",
            "name one, for example --listen 127.0.0.1:9619",
        ));
    }
    let mut page = Page::bind(first, place, Log::stderr(false));
    give_up_root()?;
    page.serve();
    while let Some(frame) = feed.read()? {
        page.follow(frame);
    }
    Log::stderr(false).info("the agent ended, and the page with it");
    Ok(())
}

/// Becomes nobody irrevocably. Credentials are per thread, so the process must have only one.
fn give_up_root() -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid))
        .and_then(|()| set_no_new_privs(true))
        .map_err(|error| {
            Error::environment(
                format!("cannot become nobody: {error}"),
                "start it as another user than root: systemctl start justitia-web",
            )
        })
}
