//! The live page with made-up groups, for work on the page:
//! `cargo run -p justitia-agent --example page -- [GROUPS] [ADDRESS]`, 8 groups by default.
//!
//! An interrupt from the keyboard ends it. To see what the page does when the agent is stuck,
//! stop it (`kill -STOP`); when it is gone, end it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use justitia_agent::socket::Board;
use justitia_agent::status::{Problem, Reading, Reclaimed, Setup, Tick};
use justitia_agent::web::{Server, DEFAULT_LISTEN};

#[path = "../src/web/example.rs"]
mod example;

const INTERVAL: Duration = Duration::from_secs(1);

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let groups = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(8);
    let listen = arguments.next().and_then(|address| address.parse().ok());
    let board = Arc::new(Board::new(Setup {
        mode: justitia_policy::config::Mode::Proportional,
        objective: justitia_policy::config::Objective::Fair,
        interval: INTERVAL,
        since: SystemTime::now(),
    }));
    let server = Server::start(listen.unwrap_or(DEFAULT_LISTEN), Arc::clone(&board))?;
    println!("http://{}/", server.address());
    for count in 1.. {
        board.post(example::tick(count, groups));
        thread::sleep(INTERVAL);
    }
    Ok(())
}
