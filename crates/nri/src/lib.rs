//! Learns of pods from a container runtime: a plugin of the Node Resource Interface (NRI) that only listens.
//!
//! containerd (from 1.7) and CRI-O (from 1.26) accept plugins at a Unix socket. Two ttrpc connections share
//! it. The plugin registers over one. The runtime calls the plugin over the other: first with all pods and
//! containers, and from then on with each one that comes or goes. A call is answered at once with an empty
//! message. The plugin requests no adjustment and no update, and it does not subscribe to the calls in which
//! a plugin may.
//!
//! [`frame`] has the framing, [`message`] the parts of the messages that matter, and [`told`] what is known
//! from them (all three are pure). [`Listener`] is the thread. The agent never waits for it.
//!
//! Invariants: nothing here writes to a cgroup or changes a container. Data from the socket's other side has
//! a bound before it is kept. A runtime that is absent, silent, restarted or talks nonsense costs one line.

pub mod frame;
mod listen;
pub mod message;
pub mod told;

pub use listen::{Listener, SOCKET};
