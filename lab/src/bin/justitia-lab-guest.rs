//! The lab's program inside the guest: the driver of an experiment, and the load generator inside its containers.

use std::path::Path;
use std::process::ExitCode;

use justitia_lab::{guest, load};

const USAGE: &str = "usage: justitia-lab-guest load SPEC.json\n       \
                     (without arguments, in a guest of the lab: does the job in the mailbox and\n       \
                     switches the guest off)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() && guest::is_guest() {
        guest::drive();
    }
    let [command, spec] = &arguments[..] else {
        return usage();
    };
    if command != "load" {
        return usage();
    }
    match load::run(Path::new(spec)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("justitia-lab-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
