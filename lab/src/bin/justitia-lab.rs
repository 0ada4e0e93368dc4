//! `justitia lab` as a program of its own; `justitia` executes it.

use std::process::ExitCode;

use clap::Parser;
use justitia_lab::args::LabArgs;
use justitia_report::say::two_lines;

/// Run the papers' experiments on stock kernels in virtual machines
#[derive(Parser)]
#[command(
    name = "justitia lab",
    bin_name = "justitia lab",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    lab: LabArgs,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return justitia_args::answer::<Cli>(&error),
    };
    match justitia_lab::main(&cli.lab) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            two_lines(error.cause(), error.remedy());
            ExitCode::from(error.exit_code())
        }
    }
}
