//! `justitia record`: records the agent's steps, or its own, into a file.
//!
//! With an agent it follows the agent's socket. When the agent ends, it waits for the next one. Each agent is
//! one session of the file. Without an agent it observes once an interval, and writes to no cgroup.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use justitia_agent::socket::{is_listening, ticks, Step};
use justitia_agent::{run, Log, Result, Settings};
use justitia_policy::units::Bytes;
use justitia_record::{Remembered, Session, Source, Tick, Writer, KEYFRAME_EVERY};
use justitia_report::status;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output::{self, Page, Progress};
use crate::settings::{self, ConfigArgs, GlobArgs, PolicyArgs};

/// Arguments of `justitia record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Records the running agent's steps until Ctrl-C: its input, its state, its decisions and their reasons. Without an \
agent, or with options of its own, it observes by itself, in mode observe: it writes nothing to any cgroup. A \
recorder that is too slow misses steps, and the record says so; the agent never waits for it. The record survives \
kill -9 of the recorder.

Examples:
  justitia record /var/tmp/friday.jrec
  justitia record --append --seconds 600 /var/tmp/friday.jrec
  justitia record --manage '/app/*' --interval 500ms /tmp/app.jrec")]
pub(crate) struct RecordArgs {
    /// The file; it must not exist yet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Append to an existing record
    #[arg(long)]
    pub(crate) append: bool,
    /// End after this many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Observe these cgroups without the agent.
    #[command(flatten)]
    pub(crate) globs: GlobArgs,
    /// Observe without the agent, this often, 100ms to 60s
    #[arg(long, value_name = "TIME", value_parser = settings::interval)]
    pub(crate) interval: Option<Duration>,
}

/// Interval of attempts to reach the next agent.
const RETRY: Duration = Duration::from_secs(1);

/// Records until SIGINT or SIGTERM.
pub(crate) fn run(args: &RecordArgs) -> Result<()> {
    let policy = PolicyArgs {
        globs: args.globs.clone(),
        interval: args.interval,
        ..PolicyArgs::default()
    };
    let settings = settings::with_policy(&args.config, &policy)?;
    let stop = stop_on_signals()?;
    let own = policy.any() || args.config.config.is_some() || !is_listening(&settings.socket());
    // Contact the agent before creating the file: the agent may refuse.
    let agent = if own {
        None
    } else {
        Some(ticks::follow(&settings.socket())?)
    };
    let writer = Writer::open(&args.file, args.append)?;
    let mut recorder = Recorder::new(writer, args);
    let done = match agent {
        Some(agent) => {
            recorder.set_deadline(&stop);
            recorder.follow(agent, &settings, &stop)
        }
        None => recorder.observe(&settings, &stop),
    };
    if let Err(error) = done {
        if recorder.ticks == 0 {
            recorder.writer.abandon();
        }
        return Err(error);
    }
    let summary = recorder.summary(&args.file);
    recorder.writer.finish()?;
    summary.print()
}

/// Returns the flag that SIGINT or SIGTERM sets. A second signal ends the process at once.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(output::unexpected)?;
    }
    Ok(stop)
}

struct Recorder {
    writer: Writer,
    /// Length of the file before this recording, bytes.
    length: u64,
    began: Instant,
    end: Option<Duration>,
    ticks: u64,
    missed: u64,
    /// Groups, summed over ticks.
    groups: u64,
    progress: Progress,
}

impl Recorder {
    fn new(writer: Writer, args: &RecordArgs) -> Recorder {
        Recorder {
            length: writer.length(),
            writer,
            began: Instant::now(),
            end: args.seconds.map(Duration::from_secs),
            ticks: 0,
            missed: 0,
            groups: 0,
            progress: Progress::default(),
        }
    }

    /// Sets `stop` when the time to record is over, even if no tick comes.
    fn set_deadline(&self, stop: &Arc<AtomicBool>) {
        if let Some(end) = self.end {
            let stop = Arc::clone(stop);
            thread::spawn(move || {
                thread::sleep(end);
                stop.store(true, Ordering::Release);
            });
        }
    }

    /// Records an agent's ticks, and after its end the ticks of the next agent.
    fn follow(
        &mut self,
        mut agent: ticks::Ticks,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<()> {
        loop {
            let (version, interval) = (agent.version().to_owned(), agent.interval());
            self.session(Source::Agent, Some(version), interval)?;
            while let Some(tick) = agent.next::<Tick>(stop)? {
                self.tick(&tick)?;
            }
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            self.progress
                .show(format_args!("the agent ended; waiting for it to come back"));
            self.progress = Progress::default();
            agent = loop {
                let tried = Instant::now();
                if let Ok(agent) = ticks::follow(&settings.socket()) {
                    break agent;
                }
                while tried.elapsed() < RETRY {
                    if stop.load(Ordering::Acquire) {
                        return Ok(());
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            };
        }
    }

    /// Records its own observations.
    fn observe(&mut self, settings: &Settings, stop: &Arc<AtomicBool>) -> Result<()> {
        let mut begun = false;
        run::watch(settings, &Log::stderr(false), stop, |tick, step| {
            if !std::mem::replace(&mut begun, true) {
                // Loading the BPF programs may take longer than the time to record, so the time begins after
                // it.
                self.began = Instant::now();
                self.set_deadline(stop);
                self.session(Source::Own, None, settings.interval)?;
            }
            self.tick(&own_tick(tick, &step))?;
            Ok(true)
        })
    }

    fn session(&mut self, source: Source, agent: Option<String>, interval: Duration) -> Result<()> {
        let kernel = rustix::system::uname();
        let session = Session {
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            agent,
            boot_id: justitia_cgroup::boot_id(),
            kernel: kernel.release().to_string_lossy().into_owned(),
            started_unix_ms: Tick::unix_ms(SystemTime::now()),
            interval_s: interval.as_secs_f64(),
            source,
        };
        self.writer.session(&session)
    }

    fn tick(&mut self, tick: &Tick) -> Result<()> {
        self.writer.tick(tick)?;
        self.ticks += 1;
        self.missed += tick.missed;
        self.groups += tick.snapshot.groups.len() as u64;
        let bytes = Bytes(self.writer.length() - self.length);
        let seconds = self.began.elapsed().as_secs();
        self.progress
            .show(format_args!("{} ticks, {seconds} s, {bytes} ", self.ticks));
        Ok(())
    }

    fn summary(&mut self, file: &Path) -> Page {
        let bytes = self.writer.length() - self.length;
        let mut text = Page::new();
        self.progress = Progress::default();
        if self.writer.dropped() > 0 {
            let dropped = self.writer.dropped();
            writeln!(text, "cut off {dropped} incomplete bytes at the end");
        }
        write!(
            text,
            "recorded {} ticks in {:.0} s into {}: {}",
            self.ticks,
            self.began.elapsed().as_secs_f64(),
            file.display(),
            Bytes(bytes),
        );
        if self.groups > 0 {
            let each = bytes as f64 / self.groups as f64;
            write!(text, ", {each:.0} bytes for each group and tick");
        }
        text.push_str("\n");
        if self.missed > 0 {
            writeln!(text, "{} ticks were missed", self.missed);
        }
        text
    }
}

/// Converts a step of this command into a record's tick.
fn own_tick(tick: status::Tick, step: &Step) -> Tick {
    let key = tick.count % KEYFRAME_EVERY == 1;
    Tick {
        count: tick.count,
        missed: 0,
        at_unix_ms: Tick::unix_ms(step.at),
        elapsed_ns: u64::try_from(step.elapsed.as_nanos()).unwrap_or(u64::MAX),
        config: step.policy,
        snapshot: tick.snapshot,
        plan: tick.plan,
        before: key.then(|| Remembered::new(&step.before)).flatten(),
    }
}

#[cfg(test)]
mod tests;
