//! Entry points of the commands: run the agent, restore without one, look or watch without writing.

use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use justitia_cgroup::{Claim, Fs, Mount, RealFs, WriterConfig};
use justitia_discover::{Priors, RuntimeDirs};
use justitia_policy::config::Mode;
use justitia_report::text::{number, word};
use rustix::process::setpriority_process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::agent::{listener, operator_limits, setup, Agent};
use crate::apply::Writers;
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::handover::{self, Handover};
use crate::journal::{Damage, Journal};
use crate::lock::Lock;
use crate::log::Log;
use crate::notify::Notifier;
use crate::observe::Observer;
use crate::pace::Control;
use crate::pages;
use crate::restore::{restore, Restored};
use crate::socket::feed::{Feed, Place};
use crate::socket::{Board, Server, Step};
use crate::source::traffic_source;
use crate::status::{Problem, Report, Tick};

/// Above ordinary processes, below those of a real-time class.
const NICE: i32 = -10;

/// The host's cgroup2 mount, or why it cannot be used.
pub fn open_host(mode: Mode) -> Result<Fs> {
    Ok(Arc::new(open_mount(mode)?))
}

/// Like [`open_host`], for one agent alone on this host while the claim is held.
fn claim_host(mode: Mode) -> Result<(Fs, Claim)> {
    let fs = open_mount(mode)?;
    match fs.claim() {
        Ok(Some(claim)) => Ok((Arc::new(fs), claim)),
        Ok(None) => Err(Error::failed(
            "an agent runs already, with another state directory",
            "stop it first: systemctl stop justitia",
        )),
        Err(error) => Err(Error::environment(&error, error.remedy())),
    }
}

fn open_mount(mode: Mode) -> Result<RealFs> {
    let mount = Mount::detect()?;
    if mode != Mode::Observe {
        mount.check_writable()?;
    }
    RealFs::new(&mount).map_err(|error| Error::environment(&error, error.remedy()))
}

/// Time for which the first step waits for a runtime to report pods, so that their weights do not change
/// right after it.
const FIRST_WORD: Duration = Duration::from_millis(500);

/// Runs the agent on this host until it is told to stop. `wait`: also when no group matches yet. `page` is
/// the connection to a web process that was started with it. `reread` reads the settings again on SIGHUP.
pub fn run(
    settings: Settings,
    wait: bool,
    log: &Log,
    page: Option<UnixStream>,
    mut reread: impl FnMut() -> Result<Settings>,
) -> Result<()> {
    let lock = if settings.in_turn {
        Lock::take_in_turn(&settings.state_dir, log)?
    } else {
        Lock::take(&settings.state_dir)?
    };
    // From here on knobs are in this agent's charge: the agent before may hand over to one that waits. Every way out
    // restores them or hands them over. A signal that comes before the loop ends the loop at once.
    let signals = signals()?;
    let begun = claim_host(settings.mode).and_then(|(fs, claim)| {
        let source = traffic_source(settings.observer, &fs, log)?;
        Ok((fs, claim, source))
    });
    let (fs, claim, source) = begun.inspect_err(|_| restore_instead(&settings, log))?;
    let locked = stay_awake(log);
    let mode = word(&settings.mode);
    let (globs, socket) = (settings.manage.join(" "), settings.socket());
    let (place, feed_path) = (Place::from(&settings), settings.status_socket());
    let (hand_over, in_turn) = (settings.hand_over, settings.in_turn);
    let state_dir = settings.state_dir.clone();
    let left = settings.clone();
    let mut agent = Agent::new(
        fs,
        settings,
        RuntimeDirs::host(),
        &justitia_cgroup::boot_id(),
        log.clone(),
    )
    .inspect_err(|_| restore_instead(&left, log))?;
    agent.count_by(source);
    agent.listen(FIRST_WORD);
    let control = agent.control();
    let started = Server::listen(&socket, agent.board())
        .and_then(|server| Ok((server, handle_signals(signals, control)?)));
    let (server, signals) = match started {
        Ok(started) => started,
        Err(error) => {
            agent.finish()?;
            return Err(error);
        }
    };
    let mut feed = Feed::new(agent.board(), place);
    // The agent does its work without a page, too.
    if let Err(Error { cause, remedy, .. }) = feed.listen(&feed_path) {
        log.warn(format_args!(
            "no live page and no metrics: {cause}; {remedy}"
        ));
    }
    if let Some(page) = page {
        let _ = feed.add(page);
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        agent.tick();
        if agent.managed() == 0 {
            if !wait {
                return Err(no_group(&globs));
            }
            log.info("no cgroup to manage yet: waiting");
        }
        log.info(format_args!(
            "version {} manages {} in mode {mode}",
            env!("CARGO_PKG_VERSION"),
            number(agent.managed(), "group"),
        ));
        if locked {
            said_unless_kept(&pages::keep_what_is_used_now(), log);
        }
        agent.run(&Notifier::from_env(), || {
            let settings = reread()?;
            feed.follow(Place::from(&settings));
            Ok(settings)
        })
    }));
    let told = matches!(result, Ok(Ok(())));
    let hand_over = hand_over && told && (!in_turn || Lock::is_awaited(&state_dir));
    // The next agent, and `justitia restore`, look in the directory that the configuration names then.
    let hand_over = hand_over && reread().is_ok_and(|next| next.state_dir == state_dir);
    let restored = end(agent, hand_over, (server, feed));
    signals.close();
    drop((claim, lock));
    let restored = restored?;
    match result {
        Ok(result) => result?,
        Err(_) => {
            return Err(Error::failed(
                "the agent hit a bug and ended, after restoring every knob",
                "report this with its log",
            ))
        }
    }
    failed_if_any(&restored)
}

/// Restores or hands over the knobs, and drops the clients after that: no client and no thread can delay it.
pub fn end(agent: Agent, hand_over: bool, clients: impl Sized) -> Result<Restored> {
    let restored = if hand_over {
        agent.hand_over()
    } else {
        agent.finish()
    };
    drop(clients);
    restored
}

/// The prior values of an agent's knobs, for a program that observes the host beside it.
pub fn priors(settings: &Settings) -> Result<Priors> {
    Journal::priors(&settings.state_dir, &justitia_cgroup::boot_id())
}

/// True if an agent with these settings that starts now would take over the state of a previous one.
pub fn is_handed_over(settings: &Settings) -> bool {
    let (boot, now) = (justitia_cgroup::boot_id(), justitia_cgroup::now_boottime());
    let left = Handover::read(&settings.state_dir, &boot, now, settings.mode);
    matches!(left, Ok(Some(_)))
}

/// Restores what the agent before left in force for this one, which cannot begin.
fn restore_instead(settings: &Settings, log: &Log) {
    let restored = restore_locked(settings);
    let failed = restored.and_then(|restored| failed_if_any(&restored.unwrap_or_default()));
    if let Err(Error { cause, remedy, .. }) = failed {
        log.warn(format_args!("{cause}; {remedy}"));
    }
}

/// Restores what a dead agent left behind; `None` if there is no journal.
pub fn restore_host(settings: &Settings) -> Result<Option<Restored>> {
    let dir = &settings.state_dir;
    if !Journal::exists(dir)? && !handover::exists(dir)? {
        return Ok(None);
    }
    let _lock = Lock::take(dir)?;
    restore_locked(settings)
}

fn restore_locked(settings: &Settings) -> Result<Option<Restored>> {
    let dir = &settings.state_dir;
    handover::discard(dir)?;
    if !Journal::exists(dir)? {
        return Ok(None);
    }
    let mut journal = Journal::open(&settings.state_dir, &justitia_cgroup::boot_id())?;
    let mut restored = Restored::default();
    if !journal.entries().is_empty() {
        let (fs, _claim) = claim_host(Mode::Proportional)?;
        let writers = Writers::start(WriterConfig::default())?;
        restored = restore(&fs, &mut journal, &writers);
    }
    restored
        .problems
        .extend(journal.damaged().map(Damage::problem));
    if let Err(error) = journal.close() {
        restored.problems.push(Problem::general(&error));
    }
    Ok(Some(restored))
}

/// Observes twice, one interval apart, and reports what would be written. Writes nothing.
pub fn look(settings: &Settings) -> Result<Report> {
    let fs = open_host(Mode::Observe)?;
    let mut observer = Observer::new(fs, settings.discover(), RuntimeDirs::host())?;
    observer.listen_to(listener(settings, &Log::stderr(false), FIRST_WORD));
    look_by(observer, settings)
}

/// Like [`look`], with any observer.
pub fn look_by(mut observer: Observer, settings: &Settings) -> Result<Report> {
    observer.look_at_root(settings.guard.enabled);
    let board = Board::new(setup(settings, SystemTime::now()));
    let never = AtomicBool::new(false);
    watch_by(observer, settings, settings.mode, &never, |tick, _| {
        let first = tick.count == 1;
        board.post(tick);
        Ok(first)
    })?;
    Ok(board.report())
}

/// Observes and decides once an interval, in mode `observe`: writes nothing. Passes each step to `see` until
/// that returns `false` or `stop` is set.
pub fn watch(
    settings: &Settings,
    log: &Log,
    stop: &AtomicBool,
    see: impl FnMut(Tick, Step) -> Result<bool>,
) -> Result<()> {
    let fs = open_host(Mode::Observe)?;
    let source = traffic_source(settings.observer, &fs, log)?;
    let mut observer = Observer::new(fs, settings.discover(), RuntimeDirs::host())?;
    observer.count_by(source);
    observer.listen_to(listener(settings, log, FIRST_WORD));
    watch_by(observer, settings, Mode::Observe, stop, see)
}

/// Like [`watch`], with any observer, and decides as in `mode`.
pub fn watch_by(
    mut observer: Observer,
    settings: &Settings,
    mode: Mode,
    stop: &AtomicBool,
    mut see: impl FnMut(Tick, Step) -> Result<bool>,
) -> Result<()> {
    const SLICE: Duration = Duration::from_millis(50);
    observer.configure(settings);
    let policy = justitia_policy::Config {
        mode,
        ..settings.policy()
    };
    let mut before = Arc::new(justitia_policy::State::default());
    let mut last: Option<Instant> = None;
    for count in 1.. {
        let (began, at) = (Instant::now(), SystemTime::now());
        let elapsed = last.replace(began).map_or(Duration::ZERO, |at| began - at);
        // An agent beside us may take knobs at any time, and only root can read what their owners set.
        let (priors, unread) = match priors(settings) {
            Ok(priors) => (Arc::new(priors), None),
            Err(error) => (Arc::default(), Some(Problem::general(&error))),
        };
        observer.set_priors(Arc::clone(&priors));
        let mut seen = observer.observe();
        seen.problems.extend(unread);
        for group in &mut seen.snapshot.groups {
            group.knobs.operator = operator_limits(group, &priors);
        }
        if count == 1 && observer.managed() == 0 {
            return Err(no_group(&settings.manage.join(" ")));
        }
        let (state, plan) = justitia_policy::step(&before, &seen.snapshot, &policy, elapsed);
        let tick = Tick {
            snapshot: seen.snapshot,
            plan,
            problems: seen.problems,
            count,
            observer: Some(observer.counts_by()),
            missed_events: observer.missed_events(),
            names: observer.names(),
            ..Tick::default()
        };
        let step = Step {
            at,
            elapsed,
            policy,
            before: std::mem::replace(&mut before, Arc::new(state)),
        };
        if !see(tick, step)? {
            break;
        }
        while !stop.load(Ordering::Acquire) && began.elapsed() < settings.interval {
            thread::sleep(SLICE.min(settings.interval.saturating_sub(began.elapsed())));
        }
        if stop.load(Ordering::Acquire) {
            break;
        }
    }
    Ok(())
}

/// The error that there is nothing to manage.
pub fn no_group(globs: &str) -> Error {
    if globs.is_empty() {
        Error::failed(
            "no container, pod or VM was found",
            "start one, or name other cgroups with --manage '/app/*'; justitia run --wait waits for them",
        )
    } else {
        Error::failed(
            format!("no cgroup matches {globs}"),
            "name cgroups with --manage, relative to the cgroup2 mount, as /app/*; justitia run --wait waits for them",
        )
    }
}

/// Raises the agent's priority and locks its pages in memory. Returns whether the pages are locked. Without
/// the permission the agent is only slower.
fn stay_awake(log: &Log) -> bool {
    let _ = setpriority_process(None, NICE);
    said_unless_kept(&pages::keep(), log)
}

fn said_unless_kept(kept: &io::Result<()>, log: &Log) -> bool {
    if let Err(error) = kept {
        log.info(format_args!("cannot lock its pages in memory: {error}"));
    }
    kept.is_ok()
}

fn failed_if_any(restored: &Restored) -> Result<()> {
    match restored.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Error::failed(&problem.cause, &problem.remedy)),
    }
}

/// Takes the signals that end or reload the agent. Those that come before [`handle_signals`] wait for it.
fn signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Error::failed(format!("cannot handle signals: {error}"), "report this"))
}

fn handle_signals(mut signals: Signals, control: Control) -> Result<signal_hook::iterator::Handle> {
    let handle = signals.handle();
    thread::Builder::new()
        .name("signals".into())
        .stack_size(128 << 10)
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    control.reload();
                } else {
                    control.stop();
                }
            }
        })
        .map_err(|error| Error::failed(format!("cannot start a thread: {error}"), "report this"))?;
    Ok(handle)
}
