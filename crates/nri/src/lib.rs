//! What a container runtime tells of pods: a plugin of the Node Resource Interface (NRI) that only listens.
//!
//! containerd (from 1.7) and CRI-O (from 1.26) accept plugins at a Unix socket. Two connections of ttrpc share
//! it: over one the plugin registers, over the other the runtime calls it, with all pods and containers at
//! first and with each one that comes or goes from then on. A call is answered at once with an empty message:
//! the plugin asks for no adjustment and no update, and it takes no part in the calls in which a plugin may.
//!
//! [`frame`] is the framing, [`message`] the parts of the messages that matter, [`told`] what they add up to
//! (all three pure), [`Listener`] the thread. The agent never waits for it.
//!
//! Invariants: nothing here writes to a cgroup or changes a container; what the socket's other side sends has a
//! bound before it is kept; a runtime that is absent, silent, restarted or talks nonsense costs one line.

pub mod frame;
mod listen;
pub mod message;
pub mod told;

pub use listen::{Listener, SOCKET};
