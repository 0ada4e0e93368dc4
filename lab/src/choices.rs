//! Words of the command line as the lab's own values.

use crate::args::{AttackArg, ClockArg, KeysArg, LruArg, SchedulerArg};
use crate::databases::protocol::Keys;
use crate::protocol::{Attack, Lru, Scheduler};
use justitia_machine::qemu::Clock;

impl From<AttackArg> for Attack {
    fn from(arg: AttackArg) -> Self {
        match arg {
            AttackArg::Records => Attack::Records,
            AttackArg::Attributes => Attack::Attributes,
            AttackArg::Groups => Attack::Groups,
            AttackArg::Memory => Attack::Memory,
            AttackArg::Depth => Attack::Depth,
            AttackArg::Names => Attack::Names,
        }
    }
}

impl From<KeysArg> for Keys {
    fn from(arg: KeysArg) -> Self {
        match arg {
            KeysArg::Uniform => Keys::Uniform,
            KeysArg::Special => Keys::Special,
        }
    }
}

impl From<LruArg> for Lru {
    fn from(arg: LruArg) -> Self {
        match arg {
            LruArg::Classic => Lru::Classic,
            LruArg::Mglru => Lru::Mglru,
        }
    }
}

/// The guest's clock.
pub(crate) fn clock(arg: ClockArg) -> Clock {
    match arg {
        ClockArg::Host => Clock::Host,
        ClockArg::Instructions => Clock::Instructions {
            shift: 0,
            jumps: false,
        },
        ClockArg::Jumping => Clock::Instructions {
            shift: 0,
            jumps: true,
        },
    }
}

impl From<SchedulerArg> for Scheduler {
    fn from(arg: SchedulerArg) -> Self {
        match arg {
            SchedulerArg::Bfq => Scheduler::Bfq,
            SchedulerArg::None => Scheduler::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::fixture::{run_args, Cli};

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_contracts_command_line_is_understood() {
        let line = "fileserver --kernel 6.12 --policies conventional,proportional \
                    --weights 100,200 --seconds 60 --memory 768M --cpus 2 --disk-mbps 40 \
                    --lru mglru --scheduler none --seed 7 --agent-arg --interval=2s";
        let run = run_args(line);
        assert_eq!(run.weights, [100, 200]);
        assert_eq!(run.policies, ["conventional", "proportional"]);
        assert_eq!(run.guest.memory, Some(768 << 20));
        assert_eq!(Lru::from(run.guest.lru), Lru::Mglru);
        assert_eq!(
            run.guest.scheduler.map(Scheduler::from),
            Some(Scheduler::None)
        );
        assert_eq!(run.agent.agent_arg, ["--interval=2s"]);
    }
}
