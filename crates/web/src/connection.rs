//! The connection of one client: its request, its answer, its deadlines.
//!
//! Never blocks. A client holds at most 8 KiB of request, the buffers of TLS ([`Wire`]), and the unsent part
//! of an answer. Each stage has a fixed deadline, which partial progress does not extend.

use std::io::ErrorKind;
use std::iter;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::http::{parse, Answer, Body, Names, Parsed, Piece, Request, Status, LONGEST_HEAD};
use super::wire::Wire;

/// Time for a client to send its request, and again for the request to wait for its turn.
const ASKING: Duration = Duration::from_secs(3);
/// Time for a client to read the answer.
const SENDING: Duration = Duration::from_secs(10);
/// Time to read one of more than [`LARGE`] bytes, such as the history of a page that was just opened.
pub(super) const SENDING_LARGE: Duration = Duration::from_secs(30);
const LARGE: usize = 256 << 10;
/// Time for a client to close its end after the answer.
const LEAVING: Duration = Duration::from_secs(1);

pub(super) struct Connection {
    pub(super) wire: Wire,
    stage: Stage,
    /// Latest end of the current stage.
    pub(super) deadline: Instant,
}

enum Stage {
    Asking(Vec<u8>),
    /// The request is complete and waits for its turn.
    Asked(Request),
    Sending(Sending),
    /// The answer is sent. Further input is discarded: closing with unread input would reset the connection,
    /// and the client might lose the answer.
    Leaving,
    Gone,
}

struct Sending {
    piece: Piece,
    /// Bytes sent of the piece.
    sent: usize,
    /// The pieces after it.
    next: Box<dyn Iterator<Item = Piece> + Send>,
    heavy: bool,
}

impl Connection {
    pub(super) fn new(wire: Wire, now: Instant) -> Connection {
        Connection {
            wire,
            stage: Stage::Asking(Vec::new()),
            deadline: now + ASKING,
        }
    }

    /// The events to poll for.
    pub(super) fn interest(&self) -> PollFlags {
        match self.stage {
            Stage::Asking(_) if self.wire.wants_write() => PollFlags::OUT,
            Stage::Asking(_) | Stage::Leaving => PollFlags::IN,
            Stage::Sending(_) => PollFlags::OUT,
            Stage::Asked(_) | Stage::Gone => PollFlags::empty(),
        }
    }

    /// Time since which the request has been incomplete; `None`: it is complete.
    pub(super) fn asking_since(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asking(_) => self.deadline.checked_sub(ASKING),
            _ => None,
        }
    }

    /// True if the connection is to be closed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Gone) || now >= self.deadline
    }

    /// The complete request that waits for its turn.
    pub(super) fn asked(&self) -> Option<&Request> {
        match &self.stage {
            Stage::Asked(request) => Some(request),
            _ => None,
        }
    }

    /// True if it is sending an answer that holds memory.
    pub(super) fn is_heavy(&self) -> bool {
        matches!(&self.stage, Stage::Sending(sending) if sending.heavy)
    }

    /// Makes progress on the events that poll reported.
    pub(super) fn proceed(&mut self, ready: PollFlags, names: &Names, now: Instant) {
        if ready.intersects(PollFlags::ERR | PollFlags::NVAL) {
            self.stage = Stage::Gone;
        } else if ready.contains(PollFlags::OUT) && matches!(self.stage, Stage::Sending(_)) {
            self.send(now);
        } else if ready.intersects(PollFlags::IN | PollFlags::OUT | PollFlags::HUP) {
            self.receive(names, now);
        }
    }

    fn receive(&mut self, names: &Names, now: Instant) {
        let mut buffer = [0; 2048];
        loop {
            let count = match self.wire.read(&mut buffer) {
                Ok(Some(0)) => break self.stage = Stage::Gone,
                Ok(Some(count)) => count,
                Ok(None) => return self.refuse(Status::NoTls, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break self.stage = Stage::Gone,
            };
            let Stage::Asking(bytes) = &mut self.stage else {
                // One buffer per turn: a client that sends without end must not delay the others.
                return;
            };
            let room = LONGEST_HEAD - bytes.len();
            bytes.extend_from_slice(&buffer[..count.min(room)]);
            match parse(bytes, names) {
                Parsed::Partial => {}
                Parsed::Request(request) => {
                    self.stage = Stage::Asked(request);
                    self.deadline = now + ASKING;
                    return;
                }
                Parsed::Refused(status) => return self.refuse(status, now),
            }
        }
    }

    /// Begins to send an answer. `heavy`: the answer holds memory until it is sent.
    pub(super) fn answer(&mut self, answer: Answer, head_only: bool, heavy: bool, now: Instant) {
        let large = !head_only && answer.body.length() > Some(LARGE);
        self.stage = Stage::Sending(Sending {
            piece: Box::new(answer.head()),
            sent: 0,
            next: match answer.body {
                _ if head_only => Box::new(iter::empty()),
                Body::Whole(piece) => Box::new(iter::once(piece)),
                Body::Pieces(scrape) => Box::new(scrape.map(|text| Box::new(text) as Piece)),
            },
            heavy,
        });
        self.deadline = now + if large { SENDING_LARGE } else { SENDING };
        self.send(now);
    }

    fn send(&mut self, now: Instant) {
        let Stage::Sending(sending) = &mut self.stage else {
            return;
        };
        loop {
            let rest = &(*sending.piece).as_ref()[sending.sent..];
            if rest.is_empty() {
                let Some(piece) = sending.next.next() else {
                    break;
                };
                (sending.piece, sending.sent) = (piece, 0);
                continue;
            }
            match self.wire.write(rest) {
                Ok(count) => sending.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.stage = Stage::Gone,
            }
        }
        self.stage = match self.wire.end() {
            Ok(()) => Stage::Leaving,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => Stage::Gone,
        };
        self.deadline = now + LEAVING;
    }

    /// Answers with a status and its explanation.
    pub(super) fn refuse(&mut self, status: Status, now: Instant) {
        self.answer(Answer::status(status), false, false, now);
    }
}

/// A client must not take the beginning of an answer for the whole. Metrics in text have no length and no end
/// mark.
impl Drop for Connection {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Sending(_)) {
            self.wire.cut();
        }
    }
}
