//! The parts that matter of the messages of ttrpc and of `nri.pkg.api.v1alpha1`. Fields that are not here are
//! skipped.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use prost::Message;

/// The service that a plugin calls.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// A call.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// Whose method it is.
    #[prost(string, tag = "1")]
    pub service: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub method: String,
    /// Its argument.
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    /// How long the caller waits, nanoseconds.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// An answer.
#[derive(Clone, PartialEq, Message)]
pub struct Response {
    /// Why there is none.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The result.
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A code of gRPC; 0 is none.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `RegisterPlugin`.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterPlugin {
    /// The plugin's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Two digits: when it is called among plugins.
    #[prost(string, tag = "2")]
    pub index: String,
}

/// The answer to `Configure`.
#[derive(Clone, PartialEq, Message)]
pub struct Configured {
    /// A bit for each event to be told.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// `Synchronize`, its lists not taken apart: a few bytes could make any number of items.
#[derive(Clone, PartialEq, Message)]
pub struct Synchronize {
    /// [`PodSandbox`] each.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub pods: Vec<Bytes>,
    /// [`Container`] each.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub containers: Vec<Bytes>,
    /// There are more to come.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// The answer to it.
#[derive(Clone, PartialEq, Message)]
pub struct Synchronized {
    /// More are welcome.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// `StateChange`.
#[derive(Clone, PartialEq, Message)]
pub struct StateChange {
    /// A number of [`event`].
    #[prost(int32, tag = "1")]
    pub event: i32,
    /// The pod, also of a container.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodSandbox>,
    /// The container.
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// The argument of the calls that newer runtimes make in place of `StateChange`.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// The pod, also of a container.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// A pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    /// The sandbox's id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The pod's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its uid.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
}

/// A container.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its pod's sandbox.
    #[prost(string, tag = "2")]
    pub sandbox: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Numbers of events.
pub mod event {
    /// A pod's sandbox runs.
    pub const RUN_POD: i32 = 1;
    /// It is gone.
    pub const REMOVE_POD: i32 = 3;
    /// A container was made; it does not run yet.
    pub const CREATED: i32 = 5;
    /// It is gone.
    pub const REMOVED: i32 = 11;

    /// The bits of those that this plugin asks for.
    pub const ALL: i32 = bit(RUN_POD) | bit(REMOVE_POD) | bit(CREATED) | bit(REMOVED);

    const fn bit(event: i32) -> i32 {
        1 << (event - 1)
    }
}
