//! The parts that matter of the messages of ttrpc and of `nri.pkg.api.v1alpha1`. Other fields are skipped.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use prost::Message;

/// The service that a plugin calls.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// A call of ttrpc.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub service: String,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    /// Time for which the caller waits, in nanoseconds.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// The answer to a call of ttrpc.
#[derive(Clone, PartialEq, Message)]
pub struct Response {
    /// The reason if there is no result.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The result.
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A code of gRPC; 0 is success.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `RegisterPlugin`.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterPlugin {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Two digits: its place in the order in which plugins are called.
    #[prost(string, tag = "2")]
    pub index: String,
}

/// The answer to `Configure`.
#[derive(Clone, PartialEq, Message)]
pub struct Configured {
    /// A bit for each event that the plugin subscribes to.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// `Synchronize`. Its items are not decoded, because a few bytes could encode any number of items.
#[derive(Clone, PartialEq, Message)]
pub struct Synchronize {
    /// A [`PodSandbox`] in each.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub pods: Vec<Bytes>,
    /// A [`Container`] in each.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub containers: Vec<Bytes>,
    /// More parts follow.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// The answer to `Synchronize`.
#[derive(Clone, PartialEq, Message)]
pub struct Synchronized {
    /// More parts are accepted.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// `StateChange`.
#[derive(Clone, PartialEq, Message)]
pub struct StateChange {
    /// A number of [`event`].
    #[prost(int32, tag = "1")]
    pub event: i32,
    /// The pod; for an event of a container, its pod.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// The argument of the calls that newer runtimes make instead of `StateChange`.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// The pod; for an event of a container, its pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    /// The sandbox's ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The pod's name.
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
    #[prost(string, tag = "4")]
    pub namespace: String,
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    /// The sandbox of its pod.
    #[prost(string, tag = "2")]
    pub sandbox: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Numbers of events.
pub mod event {
    /// A pod's sandbox runs.
    pub const RUN_POD: i32 = 1;
    /// A pod's sandbox was removed.
    pub const REMOVE_POD: i32 = 3;
    /// A container was created; it does not run yet.
    pub const CREATED: i32 = 5;
    /// A container was removed.
    pub const REMOVED: i32 = 11;

    /// The bits of the events that this plugin subscribes to.
    pub const ALL: i32 = bit(RUN_POD) | bit(REMOVE_POD) | bit(CREATED) | bit(REMOVED);

    const fn bit(event: i32) -> i32 {
        1 << (event - 1)
    }
}
