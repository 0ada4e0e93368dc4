//! The lab's program inside the guest: the driver of an experiment, and the load generator inside its containers.

use std::path::Path;
use std::process::ExitCode;

use justitia_lab::{guest, load};

const USAGE: &str = "usage: justitia-lab-guest load SPEC.json\n       \
                     justitia-lab-guest waits CGROUP SECONDS\n       \
                     justitia-lab-guest attack PART PLAN [CGROUP]\n       \
                     (without arguments, in a guest of the lab: does the job on the job disk and\n       \
                     switches the guest off)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() && guest::is_guest() {
        guest::drive();
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["load", spec] => load::run(Path::new(spec)),
        ["attack", ref rest @ ..] => load::attack::run(rest),
        ["waits", group, seconds] => match seconds.parse() {
            Ok(seconds) => guest::wait_profile::look(Path::new(group), seconds),
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    match done {
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
