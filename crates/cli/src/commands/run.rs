//! `justitia run`: the agent in the foreground.

use anyhow::Result;
use justitia_agent::config::parse_observer;
use justitia_agent::web::parse_listen;
use justitia_agent::{run, Error, Log};

use crate::args::RunArgs;
use crate::settings;

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let read = || {
        let mut settings = settings::with_policy(&args.config, &args.policy)?;
        if let Some(listen) = &args.listen {
            settings.listen =
                parse_listen(listen).map_err(|(cause, remedy)| Error::usage(cause, remedy))?;
        }
        if let Some(observer) = &args.observer {
            settings.observer = parse_observer(observer)?;
        }
        Ok(settings)
    };
    run::run(read()?, args.wait, &Log::stderr(args.verbose), read)?;
    Ok(())
}
