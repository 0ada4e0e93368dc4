//! Drives asynchronous clients on the thread that measures.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::words::time;
use crate::Trouble;

/// The driver of one connection. The connection's half that reads and writes is a task of the runtime, which
/// ends with it.
pub(super) struct Driver {
    server: &'static str,
    limit: Duration,
    runtime: Runtime,
}

impl Driver {
    /// `limit`: for each piece of work, because these clients have no limits of their own.
    pub(super) fn new(server: &'static str, limit: Duration) -> Result<Driver, Trouble> {
        // One thread: the one that measures.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Trouble::failed(
                format!("{server}: the client cannot start: {error}"),
                "raise the limit of open files",
            )
        })?;
        Ok(Driver {
            server,
            limit,
            runtime,
        })
    }

    /// Does the work. `said` puts the client's error into words.
    pub(super) fn run<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
        said: impl FnOnce(&str, &E) -> Trouble,
    ) -> Result<T, Trouble> {
        let (server, limit) = (self.server, self.limit);
        let result = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, work).await });
        match result {
            Ok(result) => result.map_err(|error| said(server, &error)),
            Err(_) => Err(Trouble::failed(
                format!("{server}: no answer within {}", time(limit.as_secs_f64())),
                "check whether the server hangs; the probe keeps trying",
            )),
        }
    }
}
