//! The `justitia` command: wires arguments to commands.

mod args;
mod cells;
mod commands;
mod output;
mod settings;
mod sibling;

use std::process::ExitCode;

use args::{Cli, Command};

fn main() -> ExitCode {
    justitia_args::main(|cli: &Cli| match &cli.command {
        Command::Run(args) => commands::run::run(args),
        Command::Try(args) => commands::trial::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Explain(args) => commands::explain::run(args),
        Command::Worth(args) => commands::worth::run(args),
        Command::Weight(args) => commands::weight::run(args),
        Command::Color(args) => commands::color::run(args),
        Command::Probe(_) => sibling::hand_over("justitia-probe"),
        Command::Web(_) => sibling::hand_over("justitia-web"),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Reserve(args) => commands::reserve::run(args),
        Command::Warm(args) => commands::warm::run(args),
        Command::Vm(args) => commands::vm::run(args),
        Command::Gate(args) => commands::gate::run(args),
        Command::Record(args) => commands::record::run(args),
        Command::Replay(args) => commands::replay::run(args),
        Command::Restore(args) => commands::restore::run(args),
        Command::Lab(_) => sibling::hand_over("justitia-lab"),
        Command::Man { dir } => commands::generate::man(dir),
        Command::Completions { shell } => commands::generate::completions(*shell),
    })
}
