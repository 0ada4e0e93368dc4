//! Probes measure how well an application is, by its own standard.
//!
//! MemOpLight, section IV-B: a probe collects, compares with an objective, communicates. Here, a [`Target`]
//! measures ([`targets`]), the [`Objective`] gives one measurement a color, and the [`Judge`] combines these
//! colors into one that does not flap. [`run()`] declares that color once a period through a [`Sink`], which
//! is normally the extended attribute of a cgroup.
//!
//! Units: seconds as `f64` where a value may be infinite (a request that failed), [`Duration`] otherwise;
//! rates per second. Work that waits is counted, not timed.
//!
//! Invariants: a value that was not measured is not declared, so a dead target's color goes stale. A target
//! that hangs blocks only its own thread. [`judge`] and [`objective`] are pure.
//!
//! Left out on purpose: any decision about memory.
//!
//! [`Duration`]: std::time::Duration

pub mod declare;
pub mod judge;
pub mod measure;
pub mod objective;
pub mod run;
mod sampler;
pub mod secret;
pub mod stats;
pub mod targets;
pub mod tls;
pub mod words;

pub use declare::{Sink, XattrSink};
pub use judge::Judge;
pub use justitia_report::error::{Error, Exit};
pub use measure::Measurement;
pub use objective::Objective;
pub use run::{once, run, Config, Happening};
pub use sampler::{Event, Open};
pub use targets::Target;
pub use tls::Tls;

/// The error of a measurement that failed this time. The probe goes on; any other error ends it.
pub type Trouble = Error;
