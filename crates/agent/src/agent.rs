//! The agent's step (observe, decide, apply, post), its start and its end.
//!
//! [`crate::pace`] decides when steps happen.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use justitia_cgroup::{Fs, WriterConfig};
use justitia_discover::kubernetes::Nri;
use justitia_discover::RuntimeDirs;
use justitia_nri::{Listener, SOCKET};
use justitia_observe::TrafficSource;
use justitia_policy::config::Mode;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{Group, OperatorLimits, Snapshot};

use crate::apply::{Applier, Writers};
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::handover::{self, Handover};
use crate::journal::Journal;
use crate::log::Log;
use crate::notify::Notifier;
use crate::observe::{Change, Observer};
use crate::pace::{Control, Pace, Woken};
use crate::reserve::{self, Reservations};
use crate::restore::{restore, Restored};
use crate::socket::{Board, Step};
use crate::status::{source_words, Priors, Problem, Setup, Tick};
use crate::watch::Withdrawn;

pub struct Agent {
    fs: Fs,
    boot: String,
    settings: Settings,
    runtime: RuntimeDirs,
    log: Log,
    observer: Observer,
    applier: Applier,
    state: Arc<justitia_policy::State>,
    pace: Pace,
    board: Arc<Board>,
    since: SystemTime,
    count: u64,
    observed_at: Option<Instant>,
    longest: Duration,
    /// For some groups it is not known whether they are gone.
    unsure: bool,
    reservations: Reservations,
    /// The last request over the socket; it overrides the configuration.
    gate_asked: Option<bool>,
    withdrawn: Withdrawn,
    /// Time at which the state for the next agent was last saved, since this boot.
    saved_at: Duration,
}

impl Agent {
    /// A new agent. It takes over the state that the previous agent handed over. Without such a state it
    /// restores the knobs that an earlier agent left behind.
    pub fn new(
        fs: Fs,
        settings: Settings,
        runtime: RuntimeDirs,
        boot: &str,
        log: Log,
    ) -> Result<Agent> {
        let mut journal = Journal::open(&settings.state_dir, boot)?;
        let writers = Writers::start(WriterConfig::default())?;
        if let Some(damage) = journal.damaged() {
            let Problem { cause, remedy, .. } = damage.problem();
            log.warn(format_args!("{cause}; {remedy}"));
        }
        let (now, mode) = (fs.now_boottime(), settings.mode);
        let left = Handover::take(&settings.state_dir, boot, now, mode);
        let left = left.unwrap_or_else(|why| {
            log.warn(format_args!(
                "cannot continue from the previous agent: {why}; its knobs are restored and gains learned anew"
            ));
            None
        });
        // A damaged journal has lost knobs of ours. After a takeover they would count as another program's.
        let left = left.filter(|_| journal.damaged().is_none());
        if left.is_none() && !journal.entries().is_empty() {
            let restored = restore(&fs, &mut journal, &writers);
            tell(&log, "an earlier agent did not end well", &restored);
        }
        let mut observer = Observer::new(fs.clone(), settings.discover(), runtime.clone())?;
        observer.configure(&settings);
        let pace = Pace::new(&fs, &log)?;
        let since = SystemTime::now();
        let board = Arc::new(Board::new(setup(&settings, since)));
        let mut agent = Agent {
            fs,
            boot: boot.to_owned(),
            settings,
            runtime,
            observer,
            applier: Applier::new(journal, writers, log.clone()),
            log,
            state: Arc::default(),
            pace,
            board,
            since,
            count: 0,
            observed_at: None,
            longest: Duration::ZERO,
            unsure: false,
            reservations: Reservations::default(),
            gate_asked: None,
            withdrawn: Withdrawn::default(),
            saved_at: now,
        };
        if let Some(left) = left {
            agent.take_over(left);
        }
        Ok(agent)
    }

    /// Takes over the state of the previous agent.
    fn take_over(&mut self, left: Handover) {
        let held = self.applier.priors().len();
        self.log.info(format_args!(
            "continues from the previous agent: {held} knobs stay in force"
        ));
        self.state = Arc::new(left.state);
        self.applier.owners = left.owners;
        let gone_s = self.fs.now_boottime().saturating_sub(left.at).as_secs_f64();
        for mut reservation in left.reservations {
            reservation.left_s -= gone_s;
            self.reservations.take_in(reservation, Instant::now());
        }
        self.gate_asked = left.gate_asked;
        // Groups may have gone since, or may not be managed any more.
        self.unsure = true;
    }

    /// The handle to stop or reload it while it runs.
    pub fn control(&self) -> Control {
        self.pace.control().clone()
    }

    /// The board to which it posts each tick.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Counts traffic by this source from now on.
    pub fn count_by(&mut self, source: Box<dyn TrafficSource>) {
        self.observer.count_by(source);
    }

    /// Takes reports of pods from the runtime that the settings name. Waits at most `patience` for the first
    /// report.
    pub fn listen(&mut self, patience: Duration) {
        let runtime = listener(&self.settings, &self.log, patience);
        self.observer.listen_to(runtime);
    }

    /// Number of managed groups.
    pub fn managed(&self) -> usize {
        self.observer.managed()
    }

    /// Steps until told to stop. `reread` reads the settings again for a reload.
    pub fn run(
        &mut self,
        notifier: &Notifier,
        mut reread: impl FnMut() -> Result<Settings>,
    ) -> Result<()> {
        if self.count == 0 {
            self.tick();
        }
        notifier.ready();
        let mut last = self.observed_at.unwrap_or_else(Instant::now);
        let mut due = last + self.settings.interval;
        while !self.pace.control().is_stopped() {
            notifier.alive();
            let woken = self
                .pace
                .wait(last, due, &mut self.observer, notifier, &self.log);
            if woken == Woken::Told {
                if self.pace.control().take_reload() {
                    self.reload(reread());
                    due = due.min(last + self.settings.interval);
                }
                continue;
            }
            let late = due.elapsed();
            last = Instant::now();
            self.tick();
            // After an early step, a whole interval passes. Otherwise the schedule is kept, unless a whole
            // interval was missed.
            due = match woken {
                Woken::Due if late < self.settings.interval => due + self.settings.interval,
                _ => last + self.settings.interval,
            };
        }
        notifier.stopping();
        Ok(())
    }

    /// One step: observe, decide, apply, post.
    pub fn tick(&mut self) {
        let (began, at) = (Instant::now(), SystemTime::now());
        let elapsed = self.observed_at.map_or(Duration::ZERO, |at| began - at);
        self.observed_at = Some(began);
        self.count += 1;
        let mut problems = self.applier.settle(&mut self.observer);
        for (group, spoken) in self.board.take_calls() {
            self.observer.hear_color(group, spoken);
        }
        for asked in self.board.take_asked() {
            self.log.info(reserve::words(&asked));
            self.reservations.take_in(asked, began);
        }
        let reservations = self.reservations.holding(began);
        let guarding = self.settings.guard.enabled || !reservations.is_empty();
        self.observer.look_at_root(guarding);
        self.observer.set_priors(self.applier.priors());
        let observation = self.observer.observe();
        if self.count == 1 {
            self.applier.tell_foreign(&mut self.observer);
        }
        let observed = began.elapsed();
        problems.extend(observation.problems);
        self.follow(&observation.change, &mut problems);
        problems.extend(
            self.applier
                .check(&observation.knobs_read, &mut self.observer),
        );
        problems.extend(self.hold_gate());
        let mut snapshot = observation.snapshot;
        snapshot.gate = self.applier.gate.seen();
        if self.settings.guard.enabled && snapshot.outside.is_some_and(|root| !root.reclaim) {
            self.log.warn_once(
                "page cache of the root cgroup and of unmanaged groups is not bounded: under the \
                 multi-generational LRU, reclaim from the root takes from protected groups too",
            );
        }
        problems.extend(moves_nothing(self.settings.mode, &snapshot));
        snapshot.reservations = reservations;
        // Knobs that somebody took over are known by now; the snapshot must say so.
        let priors = self.applier.priors();
        for group in &mut snapshot.groups {
            if let Some(seen) = self.observer.seen(group.id) {
                group.knobs.foreign = seen.knobs.foreign;
            }
            group.knobs.operator = operator_limits(group, &priors);
        }
        for disk in &mut snapshot.devices {
            disk.foreign = self.observer.disk(disk.id).is_some_and(|seen| seen.foreign);
        }
        let policy = self.settings.policy();
        let (state, plan) = justitia_policy::step(&self.state, &snapshot, &policy, elapsed);
        let before = std::mem::replace(&mut self.state, Arc::new(state));
        let decided = began.elapsed();
        let writes = self.settings.mode != Mode::Observe;
        if writes {
            problems.extend(self.applier.apply(&plan, &mut self.observer));
        }
        problems.extend(self.applier.gate.apply(&plan.gate, &self.log));
        self.pace.learn(&plan, writes, &mut self.observer);
        self.warn_of(&problems);
        let watched: &[_] = if writes { &plan.watch } else { &[] };
        self.withdrawn.log(watched, &self.log);
        let took = began.elapsed();
        self.longest = self.longest.max(took);
        if self.log.is_verbose() {
            self.log.debug(format_args!(
                "step {} after {:.3} s: observe {:.1}, decide {:.1}, apply {:.1} ms",
                self.count,
                elapsed.as_secs_f64(),
                observed.as_secs_f64() * 1e3,
                decided.saturating_sub(observed).as_secs_f64() * 1e3,
                took.saturating_sub(decided).as_secs_f64() * 1e3,
            ));
        }
        let tick = Tick {
            snapshot,
            plan,
            priors: self.applier.priors(),
            names: self.observer.names(),
            problems,
            count: self.count,
            took,
            longest: self.longest,
            observer: Some(self.observer.counts_by()),
            missed_events: self.observer.missed_events(),
            writes_total: self.applier.submitted(),
            reclaimed: self.applier.reclaimed(),
            gate: self.applier.gate.read(),
        };
        let step = Step {
            at,
            elapsed,
            policy,
            before,
        };
        self.board.post_step(tick, step);
        self.keep_state();
    }

    fn warn_of(&self, problems: &[Problem]) {
        for Problem { cause, remedy, .. } in problems {
            self.log.warn_once(format_args!("{cause}; {remedy}"));
        }
    }

    /// Saves the state for the next agent every [`handover::SAVE_EVERY`] and when it would be older than the journal, in
    /// case this one is killed.
    fn keep_state(&mut self) {
        let now = self.fs.now_boottime();
        // At once after a knob became the user's: the next agent must not take it back.
        let mut due = now.saturating_sub(self.saved_at) >= handover::SAVE_EVERY
            || std::mem::take(&mut self.applier.gave_up);
        // The next agent must not find a knob held by a decision that the state does not know.
        let is_saved = || matches!(handover::exists(&self.settings.state_dir), Ok(true));
        due |= std::mem::take(&mut self.applier.new_hold) && is_saved();
        if !self.settings.hand_over || !due {
            return;
        }
        self.saved_at = now;
        if let Err(Error { cause, remedy, .. }) = self.save() {
            self.log.warn_once(format_args!("{cause}; {remedy}"));
            // The next agent would go on from decisions that are older than the knobs.
            let _ = handover::discard(&self.settings.state_dir);
        }
    }

    /// Saves the state for the next agent.
    fn save(&mut self) -> Result<()> {
        let now = Instant::now();
        let observed_at = self.observed_at.unwrap_or(now);
        let seen = now.saturating_duration_since(observed_at);
        let left = Handover {
            mode: self.settings.mode,
            at: self.fs.now_boottime().saturating_sub(seen),
            state: &*self.state,
            owners: self.applier.owners.clone(),
            // Their time left counts from the same time.
            reservations: self.reservations.holding(observed_at),
            gate_asked: self.gate_asked,
        };
        left.save(&self.settings.state_dir, &self.boot)
    }

    /// Takes or releases the kernel module's gate, as the configuration or `justitia gate` says.
    fn hold_gate(&mut self) -> Option<Problem> {
        self.gate_asked = self.board.take_gate_asked().or(self.gate_asked);
        let knows_weights = self.settings.mode.knows_weights();
        let wanted = self.gate_asked.unwrap_or(self.settings.gate.enabled) && knows_weights;
        let settings = wanted.then_some(&self.settings.gate);
        let interval = self.settings.interval;
        let gate = &mut self.applier.gate;
        gate.hold(&self.fs, settings, interval, &self.log)
    }

    /// Leaves the knobs in force and the learned state to the next agent. If the state cannot be saved,
    /// restores everything.
    pub fn hand_over(mut self) -> Result<Restored> {
        self.applier.gate.let_go(&self.log);
        self.applier.quiesce();
        if let Err(Error { cause, remedy, .. }) = self.save() {
            self.log
                .warn(format_args!("nothing is handed over: {cause}; {remedy}"));
            return self.finish();
        }
        let held = self.applier.priors().len();
        self.log.info(format_args!(
            "ended: {held} knobs stay in force for the next agent"
        ));
        Ok(Restored::default())
    }

    /// Restores everything and closes the journal.
    pub fn finish(mut self) -> Result<Restored> {
        // The gate goes first: no writer waits at it while the rest is restored.
        self.applier.gate.let_go(&self.log);
        let (journal, writers) = self.applier.quiesce();
        let mut restored = restore(&self.fs, journal, writers);
        if let Err(error) = handover::discard(&self.settings.state_dir) {
            restored.problems.push(Problem::general(&error));
        }
        if let Err(error) = self.applier.into_journal().close() {
            restored.problems.push(Problem::general(&error));
        }
        tell(&self.log, "stopped", &restored);
        Ok(restored)
    }

    /// Logs changes of the groups and restores the knobs of groups that are no longer managed.
    fn follow(&mut self, change: &Change, problems: &mut Vec<Problem>) {
        for (path, weight, source) in &change.joined {
            let source = source_words(*source);
            self.log
                .info(format_args!("{path} joined: weight {weight} ({source})"));
        }
        for (path, weight, source) in &change.reweighted {
            let source = source_words(*source);
            self.log
                .info(format_args!("{path} has weight {weight} now ({source})"));
        }
        for path in &change.left {
            self.log.info(format_args!("{path} left"));
        }
        if !change.left.is_empty() {
            self.applier.retain_foreign(&self.observer);
            self.pace
                .retain(|group| self.observer.group(group).is_some());
        }
        if !change.left.is_empty() || self.unsure {
            self.let_go(problems);
        }
    }

    /// Forgets the knobs of groups that are gone, and begins to restore those of groups that are no longer
    /// watched.
    fn let_go(&mut self, problems: &mut Vec<Problem>) {
        let (unwatched, unsure) = self.applier.forget_vanished(&self.fs, &self.observer);
        self.unsure = !unsure.is_empty();
        problems.extend(unsure);
        if !unwatched.is_empty() {
            let concerns = |group| unwatched.contains(&group);
            let left = self.applier.put_back(&self.fs, concerns);
            self.unsure |= !left.is_empty();
            problems.extend(left);
        }
    }

    fn reload(&mut self, settings: Result<Settings>) {
        match settings.and_then(|settings| self.adopt(settings)) {
            Ok(()) => self.log.info("configuration reloaded"),
            Err(error) => {
                let remedy = &error.remedy;
                self.log.warn(format_args!(
                    "configuration not reloaded: {error}; {remedy}"
                ));
            }
        }
    }

    /// Applies new settings.
    fn adopt(&mut self, mut settings: Settings) -> Result<()> {
        // The journal and the socket stay where they are.
        for (key, same) in [
            ("state_dir", settings.state_dir == self.settings.state_dir),
            ("socket", settings.socket == self.settings.socket),
            ("observer", settings.observer == self.settings.observer),
        ] {
            if !same {
                self.log
                    .info(format_args!("restart the agent to use another {key}"));
            }
        }
        let held = self.settings.state_dir.display();
        if settings.state_dir != self.settings.state_dir {
            // The unit's last resort looks into the directory that the file names.
            self.log.warn(format_args!(
                "if the agent is killed before, restore the knobs with 'justitia restore --state-dir {held}'"
            ));
        }
        settings.state_dir.clone_from(&self.settings.state_dir);
        settings.socket.clone_from(&self.settings.socket);
        settings.observer = self.settings.observer;
        self.observer
            .reconfigure(settings.discover(), self.runtime.clone())?;
        self.observer.configure(&settings);
        let other = settings.kubernetes.nri != self.settings.kubernetes.nri;
        // Knobs of the old mode do not stay in force in the new one.
        if settings.mode != self.settings.mode {
            let problems = self.applier.put_back(&self.fs, |_| true);
            self.warn_of(&problems);
            self.observer.doubt_knobs();
            self.pace.retain(|_| false);
        }
        self.settings = settings;
        if other {
            self.listen(Duration::ZERO);
        }
        self.board.set_up(setup(&self.settings, self.since));
        Ok(())
    }
}

/// Connects to the runtime that the settings name.
pub(crate) fn listener(settings: &Settings, log: &Log, patience: Duration) -> Option<Listener> {
    let (socket, required) = match &settings.kubernetes.nri {
        Nri::Auto => (Path::new(SOCKET), false),
        Nri::Off => return None,
        Nri::At(socket) => (socket.as_path(), true),
    };
    let listener = Listener::start(socket, required)
        .map_err(|error| {
            log.warn(format_args!(
                "cannot start the thread that listens for pods: {error}"
            ));
        })
        .ok()?;
    listener.settle(patience);
    Some(listener)
}

/// The knobs of a group before Justitia: the recorded prior values, or the present values of knobs that are
/// not held.
pub(crate) fn operator_limits(group: &Group, priors: &Priors) -> OperatorLimits {
    let (first, last) = (Knob::ALL[0], Knob::ALL[Knob::ALL.len() - 1]);
    let mut before = group.knobs;
    for (&(_, knob), &value) in priors.range((group.id, first)..=(group.id, last)) {
        before.set(knob, value);
    }
    let mut operator = OperatorLimits::default();
    for knob in Knob::of_groups() {
        match before.get(knob) {
            Some(Value::Limit(limit)) => {
                if let Some(field) = operator.limit(knob) {
                    *field = Some(limit);
                }
            }
            // `io.bfq.weight` comes after `io.weight`, and takes precedence where it exists.
            Some(Value::Weight(weight)) => operator.block_weight = Some(weight),
            _ => {}
        }
    }
    operator
}

pub(crate) fn setup(settings: &Settings, since: SystemTime) -> Setup {
    Setup {
        mode: settings.mode,
        objective: settings.objective,
        interval: settings.interval,
        since,
    }
}

fn tell(log: &Log, what: &str, restored: &Restored) {
    log.info(format_args!("{what}: {}", restored.summary()));
    for knob in &restored.foreign {
        log.info(format_args!("{knob} was set by somebody else: left alone"));
    }
    for Problem { cause, remedy, .. } in &restored.problems {
        log.warn(format_args!("{cause}; {remedy}"));
    }
}

/// The problem of mode `memoplight` on a kernel that cannot reclaim from a group.
fn moves_nothing(mode: Mode, snapshot: &Snapshot) -> Option<Problem> {
    let mut groups = snapshot.groups.iter();
    let stuck = !snapshot.groups.is_empty() && !groups.any(|group| group.knobs.reclaim);
    (mode == Mode::Memoplight && stuck).then(|| Problem {
        group: None,
        cause: "mode memoplight moves no memory: this kernel has no memory.reclaim".into(),
        remedy: "boot Linux 5.19 or later, or choose mode proportional".into(),
    })
}
