//! `justitia lab`: the papers' experiments.

use anyhow::Result;
use justitia_lab::args::LabArgs;

/// Hands over to the lab.
pub(crate) fn run(args: &LabArgs) -> Result<()> {
    Ok(justitia_lab::run::main(args)?)
}
