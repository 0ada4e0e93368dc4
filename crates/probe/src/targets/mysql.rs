//! MySQL and MariaDB.
//!
//! - Throughput: growth of a counter of `SHOW GLOBAL STATUS`, `Com_commit` by default.
//! - Latency: that of a query of the user's; otherwise the mean of all statements since the last look, where
//!   the performance schema is on and the user may read it (times there are picoseconds); otherwise that of
//!   `SELECT 1`, which tells
//!   little more than that the server answers.
//! - Waiting: statements running beyond those that may run at once (`Threads_running` without our own), pages
//!   being read (`Innodb_data_pending_reads`), or transactions that wait for row locks
//!   (`Innodb_row_lock_current_waits`). The largest of these counts: they overlap, so they are not added.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use justitia_report::error::plain;
use mysql_async::prelude::{FromRow, Queryable as _};
use mysql_async::{ClientIdentity, Conn, DriverError, Error, IoError, OptsBuilder, SslOpts};

use super::driven::Driver;
use super::{beyond, client_limit, now_seconds, timed, Connected, Server, CANARY, CANARY_NOTE};
use crate::measure::{Measurement, Rate};
use crate::secret::Secret;
use crate::tls::{self, Check, Identity, Tls};
use crate::Trouble;

const RUNNING: &str = "Threads_running";
const PENDING_READS: &str = "Innodb_data_pending_reads";
const ROW_LOCK_WAITS: &str = "Innodb_row_lock_current_waits";
/// Picoseconds in a second.
const PICO: f64 = 1e12;

/// The server's address, the login, and the values to read.
#[derive(Debug, Clone)]
pub struct Config {
    /// Host name or address; ignored with a socket.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path of the server's socket.
    pub socket: Option<PathBuf>,
    pub user: String,
    pub password: Option<Secret>,
    /// TLS; never used on a socket.
    pub tls: Option<Tls>,
    /// Database the query runs in.
    pub database: Option<String>,
    /// Status counter of the work.
    pub count: String,
    /// Query whose latency counts.
    pub query: Option<String>,
    /// True if the objective needs the latency.
    pub latency: bool,
    /// Statements that may run at once before more of them wait.
    pub parallel: f64,
    /// The probe's timeout.
    pub timeout: Duration,
}

/// A connection, what drives it, and what was counted over it.
pub struct Session {
    connection: Conn,
    driver: Driver,
    work: Rate,
    /// Number of statements and their total time at the last look.
    statements: Option<(f64, f64)>,
    /// True if the performance schema is on and the user may read it; `None`: not known yet.
    schema: Option<bool>,
}

pub type Mysql = Connected<Config>;

impl Server for Config {
    type Session = Session;

    fn connect(&self) -> Result<Session, Trouble> {
        let tls = self.tls.as_ref().filter(|_| self.socket.is_none());
        let options = OptsBuilder::default()
            .ip_or_hostname(self.host.clone())
            .tcp_port(self.port)
            .socket(self.socket.as_ref().map(|path| path.to_string_lossy()))
            // Otherwise the client moves from TCP to a socket that the server names. In a container that is
            // another container's path.
            .prefer_socket(false)
            .user(Some(self.user.clone()))
            .pass(self.password.clone().map(|secret| secret.0))
            .db_name(self.database.clone());
        let secure = tls.map(of_tls).transpose()?;
        let any_name = tls.is_some_and(|tls| tls.check == Check::Chain);
        let driver = Driver::new("MySQL", client_limit(self.timeout))?;
        let work = async {
            let first = Conn::new(options.clone().ssl_opts(secure.clone())).await;
            let Err(error) = first else { return first };
            if let Error::Driver(DriverError::NoClientSslFlagFromServer) = error {
                if tls.is_some_and(|tls| tls.optional) {
                    return Conn::new(options).await;
                }
            }
            // The client cannot skip the check of the name. The name is checked last, so the chain is good,
            // and the name in the certificate is as good as ours.
            let name = any_name.then(|| tls::presented(&error)).flatten();
            let (Some(name), Some(secure)) = (name, secure) else {
                return Err(error);
            };
            Conn::new(options.ssl_opts(secure.with_danger_tls_hostname_override(Some(name)))).await
        };
        let connection = driver.run(work, |_, error| self.refused(error))?;
        Ok(Session {
            connection,
            driver,
            work: Rate::default(),
            statements: None,
            schema: None,
        })
    }

    fn look(&self, session: &mut Session) -> Result<Measurement, Trouble> {
        let count = &self.count;
        let sql = format!(
            "SHOW GLOBAL STATUS WHERE Variable_name IN \
             ('{count}', '{RUNNING}', '{PENDING_READS}', '{ROW_LOCK_WAITS}')"
        );
        let rows: Vec<(String, String)> = session.rows(&sql)?;
        let status = numbers(&rows);
        let Some(work) = status.get(&count.to_lowercase()).copied() else {
            return Err(Trouble::failed(
                format!("the server has no status counter {count}"),
                "name one of SHOW GLOBAL STATUS with --count",
            ));
        };
        let latency_seconds = self.latency(session)?;
        let note = self.says_little(session).then(|| CANARY_NOTE.to_owned());
        Ok(Measurement {
            per_second: session.work.of(work, now_seconds()),
            latency_seconds,
            waiting: waiting(&status, self.parallel),
            note: Tls::noted(self.tls.as_ref(), note),
            ..Measurement::default()
        })
    }
}

impl Config {
    fn refused(&self, error: &Error) -> Trouble {
        let server = match &self.socket {
            Some(socket) => format!("MySQL at {}", socket.display()),
            None => format!("MySQL at {}:{}", self.host, self.port),
        };
        if let Error::Driver(DriverError::NoClientSslFlagFromServer) = error {
            let (what, remedy) = tls::no_tls();
            return Trouble::failed(format!("{server}: {what}"), remedy);
        }
        tls::said(&server, error).unwrap_or_else(|| said(&server, error))
    }

    /// True if the latency is that of a query that reads nothing.
    fn says_little(&self, session: &Session) -> bool {
        self.latency && self.query.is_none() && session.schema == Some(false)
    }

    fn latency(&self, session: &mut Session) -> Result<Option<f64>, Trouble> {
        if let Some(query) = &self.query {
            return session.time_of(query).map(Some);
        }
        if !self.latency {
            return Ok(None);
        }
        if session.schema.is_none() {
            let on = session.rows::<u8>("SELECT @@performance_schema");
            session.schema = Some(on.is_ok_and(|rows| rows == [1]));
        }
        if session.schema != Some(true) {
            return session.time_of(CANARY).map(Some);
        }
        let work = session.connection.query(
            "SELECT CAST(SUM(count_star) AS DOUBLE), CAST(SUM(sum_timer_wait) AS DOUBLE) FROM \
             performance_schema.events_statements_summary_global_by_event_name",
        );
        let mut denied = false;
        let totals = session.driver.run(work, |server, error| {
            // The user lacks the right to read.
            denied = matches!(error, Error::Server(said) if matches!(said.code, 1044 | 1142));
            said(server, error)
        });
        if denied {
            session.schema = Some(false);
            return session.time_of(CANARY).map(Some);
        }
        let totals: Vec<(Option<f64>, Option<f64>)> = totals?;
        Ok(match totals[..] {
            [(Some(count), Some(time))] => mean(&mut session.statements, count, time / PICO),
            _ => None,
        })
    }
}

impl Session {
    fn rows<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Result<Vec<T>, Trouble> {
        self.driver.run(self.connection.query(sql), said)
    }

    fn time_of(&mut self, query: &str) -> Result<f64, Trouble> {
        let work = self.connection.query_drop(query);
        timed(|| self.driver.run(work, said)).map(|((), seconds)| seconds)
    }
}

/// TLS settings for the client. The files are read here, too, because the client's own errors for them are
/// unclear.
fn of_tls(tls: &Tls) -> Result<SslOpts, Trouble> {
    let unchecked = tls.check == Check::Nothing;
    let mut options = SslOpts::default().with_danger_accept_invalid_certs(unchecked);
    if !unchecked {
        let roots = tls.roots()?;
        options = options
            .with_root_certs(roots.iter().map(|root| root.to_vec().into()).collect())
            .with_disable_built_in_roots(true);
    }
    tls.shown()?;
    let identity = tls.identity.clone();
    Ok(options.with_client_identity(
        identity.map(|Identity { certificate, key }| {
            ClientIdentity::new(certificate.into(), key.into())
        }),
    ))
}

/// The mean time per statement since the last totals; `None` if there are none, or no new statement.
fn mean(last: &mut Option<(f64, f64)>, count: f64, time: f64) -> Option<f64> {
    let (before, then) = last.replace((count, time))?;
    (count > before && time >= then).then(|| (time - then) / (count - before))
}

/// The numbers of a status listing, by lower-case name.
fn numbers(rows: &[(String, String)]) -> HashMap<String, f64> {
    rows.iter()
        .filter_map(|(name, value)| Some((name.to_lowercase(), value.parse().ok()?)))
        .collect()
}

/// Work that waits; `None` without `Threads_running`.
fn waiting(status: &HashMap<String, f64>, parallel: f64) -> Option<f64> {
    let of = |name: &str| status.get(&name.to_lowercase()).copied();
    let others = of(RUNNING)? - 1.0;
    let engine = [PENDING_READS, ROW_LOCK_WAITS].into_iter().filter_map(of);
    Some(engine.fold(beyond(others, parallel), f64::max))
}

fn said(server: &str, error: &Error) -> Trouble {
    let remedy = match error {
        Error::Server(said) => match said.code {
            1044 | 1045 | 1698 => {
                "check --user and --password-file, and the user's host and REQUIRE"
            }
            1142 | 1143 => "grant the user SELECT on the tables that the query reads",
            1226 | 1040 => "the server has no free connection; raise max_connections",
            _ => "see the server's message",
        },
        Error::Io(_) | Error::Driver(_) => {
            "check that the server runs, and check --socket, or --host and --port"
        }
        _ => "check that a MySQL or MariaDB server listens there",
    };
    let words = match error {
        Error::Io(IoError::Io(error)) => plain(error),
        error => error.to_string(),
    };
    Trouble::failed(format!("{server}: {words}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pairs: &[(&str, &str)]) -> HashMap<String, f64> {
        let rows: Vec<(String, String)> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        numbers(&rows)
    }

    #[test]
    fn statements_beyond_those_that_may_run_wait_and_ours_does_not_count() {
        let running = |n| waiting(&status(&[("Threads_running", n)]), 2.0);
        assert_eq!(running("1"), Some(0.0));
        assert_eq!(running("3"), Some(0.0));
        assert_eq!(running("8"), Some(5.0));
        assert_eq!(waiting(&status(&[]), 2.0), None);
    }

    #[test]
    fn one_statement_that_waits_for_the_disk_is_enough() {
        let seen = status(&[("THREADS_RUNNING", "2"), ("Innodb_data_pending_reads", "1")]);
        assert_eq!(waiting(&seen, 8.0), Some(1.0));
    }

    #[test]
    fn a_waiting_statement_is_not_counted_twice() {
        let seen = status(&[
            ("Threads_running", "5"),
            ("Innodb_data_pending_reads", "3"),
            ("Innodb_row_lock_current_waits", "2"),
        ]);
        assert_eq!(waiting(&seen, 1.0), Some(3.0));
    }

    #[test]
    fn the_mean_is_that_of_the_statements_since_the_last_look() {
        let mut last = None;
        assert_eq!(mean(&mut last, 100.0, 5.0), None);
        assert_eq!(mean(&mut last, 110.0, 6.0), Some(0.1));
        assert_eq!(mean(&mut last, 110.0, 6.0), None);
        assert_eq!(mean(&mut last, 3.0, 1.0), None);
    }
}
