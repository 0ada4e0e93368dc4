//! `justitia run`: the agent in the foreground.

use anyhow::Result;
use justitia_agent::{run, Log};

use crate::args::RunArgs;
use crate::settings;

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let read = || settings::with_policy(&args.config, &args.policy);
    run::run(read()?, args.wait, &Log::stderr(args.verbose), read)?;
    Ok(())
}
