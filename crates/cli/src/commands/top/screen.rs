//! The terminal: a thread that queries the agent, one that reads keys, one for signals, and the loop that
//! handles their messages and draws.
//!
//! The terminal is restored however the program ends: by a key, a signal, an error or a panic (by ratatui's
//! panic hook). The agent may take seconds to answer; keys never wait for it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use justitia_agent::socket::ask;
use justitia_agent::{Error, Result};
use justitia_report::error::plain;
use justitia_report::status::Report;
use ratatui::crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use rustix::process::{getpid, kill_process, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::app::{Action, App};
use super::{following, view};

/// An event for the loop.
enum Message {
    Input(Event),
    Answer(Box<Result<Report>>),
    Stop,
}

/// Tells the loop to end when its thread ends, even by a panic.
struct Voice(Sender<Message>);

impl Drop for Voice {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Stop);
    }
}

/// The terminal while it is ours.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn open() -> Result<Terminal> {
        ratatui::try_init().map(Terminal).map_err(|error| {
            // The terminal may be partly set up.
            let _ = ratatui::try_restore();
            unusable(&error)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The panic hook already restored the terminal and printed the panic. Restoring it again would move
        // the cursor back over that output.
        if !thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}

/// Shows the screen until a key or a signal ends it.
pub(crate) fn run(mut app: App, socket: PathBuf, interval: Duration) -> Result<()> {
    // Handle signals before changing the terminal: a signal in between must not leave it changed.
    let (sender, receiver) = mpsc::channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| unusable(&error))?;
    let voice = Voice(sender.clone());
    start("signals", move || {
        signals.forever().next();
        drop(voice);
        // A second signal exits at once: the terminal may be blocked.
        if signals.forever().next().is_some() {
            std::process::exit(1);
        }
    })?;
    let mut terminal = Terminal::open()?;
    let voice = Voice(sender.clone());
    start("keys", move || read_keys(&voice))?;
    let voice = Voice(sender);
    start("ask", move || ask_on(&voice, &socket, interval))?;
    let ended = serve(&mut terminal, &mut app, &receiver);
    drop(terminal);
    ended.map_err(|error| unusable(&error))
}

fn serve(terminal: &mut Terminal, app: &mut App, receiver: &Receiver<Message>) -> io::Result<()> {
    loop {
        terminal.0.draw(|frame| view::draw(frame, app))?;
        let Ok(first) = receiver.recv() else {
            return Ok(());
        };
        // Handle all queued messages before drawing once.
        for message in std::iter::once(first).chain(receiver.try_iter()) {
            let action = match message {
                Message::Input(Event::Key(key)) => app.key(key),
                Message::Input(_) => Action::Draw,
                Message::Answer(answer) => {
                    app.take(answer.map_err(|error| error.cause));
                    Action::Draw
                }
                Message::Stop => Action::Quit,
            };
            match action {
                Action::Draw => {}
                Action::Redraw => terminal.0.clear()?,
                Action::Suspend => suspend(terminal)?,
                Action::Quit => return Ok(()),
            }
        }
    }
}

/// Stops the process as Ctrl-Z does, and goes on here when it is continued.
fn suspend(terminal: &mut Terminal) -> io::Result<()> {
    ratatui::try_restore()?;
    kill_process(getpid(), Signal::TSTP)?;
    terminal.0 = ratatui::try_init()?;
    terminal.0.clear()
}

fn read_keys(voice: &Voice) {
    while event::read().is_ok_and(|event| voice.0.send(Message::Input(event)).is_ok()) {}
}

fn ask_on(voice: &Voice, socket: &std::path::Path, interval: Duration) {
    let mut next = Instant::now();
    loop {
        next = following(next, interval, Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let answer = Box::new(ask(socket));
        if voice.0.send(Message::Answer(answer)).is_err() {
            return;
        }
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(|_| ()).map_err(|error| {
        let cause = format!("cannot start a thread: {}", plain(&error));
        Error::environment(cause, "raise the limit of tasks, or free memory")
    })
}

fn unusable(error: &io::Error) -> Error {
    Error::environment(
        format!("the terminal cannot be used: {}", plain(error)),
        "use --once or --json",
    )
}
