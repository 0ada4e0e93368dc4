//! Arguments of `justitia web`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `justitia web`.
#[derive(Debug, Args)]
#[command(after_help = "\
Shows the report of a running agent and can change nothing. Started by root, it becomes nobody before it answers \
anybody. justitia run starts it by itself, and justitia.service has a unit of its own for it. Use this command for \
an agent that was started without it.

Examples:
  justitia web
  justitia web --listen 127.0.0.1:9700
  justitia web --listen unix:/run/page.sock")]
pub struct WebArgs {
    /// Address of the live page and the metrics, or unix:PATH [default: what the agent's configuration says]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Directory of the agent's socket [default: /run/justitia]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Wait until an agent runs
    #[arg(long, conflicts_with = "stdin")]
    pub wait: bool,
    /// Standard input is connected to the agent's socket
    #[arg(long, hide = true)]
    pub stdin: bool,
}
