//! Drives asynchronous clients on the thread that measures.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::words::time;
use crate::Trouble;

/// The runtime of one connection. The connection's half that reads and writes is a task of it, which ends
/// with it.
pub(super) fn runtime(server: &str) -> Result<Runtime, Trouble> {
    // One thread: the one that measures.
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Trouble::failed(
                format!("{server}: the client cannot start: {error}"),
                "raise the limit of open files",
            )
        })
}

/// Does the work within a time limit: these clients have no limits of their own.
pub(super) fn within<T, E>(
    runtime: &Runtime,
    limit: Duration,
    server: &str,
    work: impl Future<Output = Result<T, E>>,
    said: impl FnOnce(&E) -> Trouble,
) -> Result<T, Trouble> {
    let result = runtime.block_on(async { tokio::time::timeout(limit, work).await });
    match result {
        Ok(result) => result.map_err(|error| said(&error)),
        Err(_) => Err(Trouble::failed(
            format!("{server}: no answer within {}", time(limit.as_secs_f64())),
            "check whether the server hangs; the probe keeps trying",
        )),
    }
}
