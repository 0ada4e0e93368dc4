//! PostgreSQL 10 and later.
//!
//! - Throughput: growth of `xact_commit` of one database, or of all.
//! - Latency: that of a query of the user's, otherwise that of `SELECT 1`.
//! - Waiting: client statements active beyond those that may run at once, or those that wait for a lock, a
//!   buffer or the disk (`wait_event_type`). The larger of the two counts. Only members of `pg_monitor` see
//!   other users' sessions; without that right, it is not known what waits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use justitia_report::error::plain;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::driven::Driver;
use super::{beyond, client_limit, now_seconds, Connected, Server, CANARY, CANARY_NOTE};
use crate::measure::{Measurement, Rate};
use crate::secret::Secret;
use crate::tls::{self, Check, Tls};
use crate::Trouble;

const LOOK: &str = "\
SELECT (SELECT sum(xact_commit) FROM pg_stat_database
        WHERE $1::text IS NULL OR datname = $1::text)::float8,
       (count(*) FILTER (WHERE backend_type = 'client backend' AND state = 'active'))::float8,
       (count(*) FILTER (WHERE backend_type = 'client backend' AND state = 'active'
          AND wait_event_type IN ('Lock', 'LWLock', 'BufferPin', 'BufferIO', 'IO', 'IPC')))::float8,
       count(*) FILTER (WHERE query = '<insufficient privilege>') > 0
FROM pg_stat_activity WHERE pid <> pg_backend_pid()";

/// The server's address, the login, and the values to read.
#[derive(Debug, Clone)]
pub struct Config {
    /// Host name or address, or the directory of its socket.
    pub host: String,
    /// Port, also part of the socket's name.
    pub port: u16,
    pub user: String,
    pub password: Option<Secret>,
    /// TLS; never used on a socket.
    pub tls: Option<Tls>,
    /// Database to connect to.
    pub database: String,
    /// True if only the work of that database counts.
    pub one_database: bool,
    /// Query whose latency counts.
    pub query: Option<String>,
    /// True if the objective needs the latency.
    pub latency: bool,
    /// Statements that may run at once before more of them wait.
    pub parallel: f64,
    /// The probe's timeout.
    pub timeout: Duration,
}

/// A connection. Its half that reads and writes is a task of the runtime, which ends with it.
pub struct Session {
    client: Client,
    look: Statement,
    query: Option<Statement>,
    driver: Driver,
    work: Rate,
}

pub type Postgres = Connected<Config>;

impl Server for Config {
    type Session = Session;

    fn connect(&self) -> Result<Session, Trouble> {
        let limit = client_limit(self.timeout);
        let mut options = tokio_postgres::Config::new();
        options
            .port(self.port)
            .user(&self.user)
            .dbname(&self.database)
            .application_name("justitia-probe")
            // The server gives up our statements, too.
            .options(format!("-c statement_timeout={}", limit.as_millis()));
        if self.host.starts_with('/') {
            options.host_path(PathBuf::from(&self.host));
        } else {
            options.host(&self.host);
        }
        if let Some(password) = &self.password {
            options.password(&password.0);
        }
        let mode = match self.tls.as_ref().map(|tls| tls.optional) {
            None => SslMode::Disable,
            Some(true) => SslMode::Prefer,
            Some(false) => SslMode::Require,
        };
        // The client requests no TLS on a socket, and the system's store may be missing.
        let tls = self.tls.as_ref().filter(|_| !self.host.starts_with('/'));
        let unused = Tls {
            check: Check::Nothing,
            ..Tls::default()
        };
        options.ssl_mode(mode);
        let connector = MakeRustlsConnect::new(tls.unwrap_or(&unused).config()?);
        let canary = self.query.as_deref();
        let canary = canary.or(self.latency.then_some(CANARY));
        let driver = Driver::new("PostgreSQL", limit)?;
        let work = async {
            let (client, connection) = options.connect(connector).await?;
            tokio::spawn(connection);
            let look = client.prepare(LOOK).await?;
            let query = match canary {
                Some(query) => Some(client.prepare(query).await?),
                None => None,
            };
            Ok((client, look, query))
        };
        let (client, look, query) = driver.run(work, |_, error| self.refused(error))?;
        Ok(Session {
            client,
            look,
            query,
            driver,
            work: Rate::default(),
        })
    }

    fn look(&self, session: &mut Session) -> Result<Measurement, Trouble> {
        let database = self.one_database.then_some(&self.database);
        let Session { client, .. } = session;
        let work = async {
            let row = client.query_one(&session.look, &[&database]).await?;
            let start = Instant::now();
            let latency = match &session.query {
                Some(query) => {
                    client.query(query, &[]).await?;
                    Some(start.elapsed().as_secs_f64())
                }
                None => None,
            };
            Ok((row, latency))
        };
        let (row, latency) = session.driver.run(work, said)?;
        let number = |column| {
            row.try_get::<_, Option<f64>>(column)
                .map_err(|error| said("PostgreSQL", &error))
        };
        let (commits, active, stuck) = (number(0)?, number(1)?, number(2)?);
        let hidden: bool = row.try_get(3).map_err(|error| said("PostgreSQL", &error))?;
        let waiting = active
            .zip(stuck)
            .map(|(active, stuck)| beyond(active, self.parallel).max(stuck));
        let says_little = self.latency && self.query.is_none();
        let note = if hidden {
            Some("waits are hidden: grant pg_monitor to the user".to_owned())
        } else {
            says_little.then(|| CANARY_NOTE.to_owned())
        };
        Ok(Measurement {
            per_second: commits.and_then(|commits| session.work.of(commits, now_seconds())),
            latency_seconds: latency,
            waiting: waiting.filter(|_| !hidden),
            note: Tls::noted(self.tls.as_ref(), note),
            ..Measurement::default()
        })
    }
}

impl Config {
    fn refused(&self, error: &Error) -> Trouble {
        use std::error::Error as _;
        let server = format!("PostgreSQL at {}:{}", self.host, self.port);
        let source = error.source().map(ToString::to_string);
        let (what, remedy) = match source.as_deref() {
            Some("server does not support TLS") => tls::no_tls(),
            Some("password missing") => (
                "it asks for a password".to_owned(),
                "name the password's file with --password-file, or set PGPASSWORD",
            ),
            _ => return tls::said(&server, error).unwrap_or_else(|| said(&server, error)),
        };
        Trouble::failed(format!("{server}: {what}"), remedy)
    }
}

fn said(server: &str, error: &Error) -> Trouble {
    use std::error::Error as _;
    let cause = match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{server}: {}", said.message()),
        (None, Some(source)) => format!("{server}: {error}: {}", plain(&source)),
        (None, None) => format!("{server}: {error}"),
    };
    let remedy = match error.code().map(SqlState::code) {
        Some("28P01" | "28000") => {
            "check --user, --password-file or --tls-cert, --sslmode and the server's pg_hba.conf"
        }
        Some("3D000") => "name a database that exists with --database",
        Some("57P03") => "the server is starting or stopping; the probe keeps trying",
        Some("53300") => "the server has no free connection; raise max_connections",
        Some("42501") => "grant the user what the query reads",
        Some("57014") => "the query takes longer than --timeout",
        Some(_) => "see the server's message",
        None => "check that the server runs, and check --host and --port",
    };
    Trouble::failed(cause, remedy)
}
