//! Redis and Valkey.
//!
//! - Throughput: growth of `total_commands_processed`.
//! - Latency: that of a PING. Redis serves one command after the other, so a PING waits behind all commands
//!   that wait, and its time is that of everybody's commands. While the dataset is loading, no command is
//!   served, and the PING counts as failed.
//! - Waiting: writes that had to wait for the disk since the last look (`aof_delayed_fsync`), and, if
//!   configured, clients in a blocking command (`blocked_clients`). These mostly wait for another client and
//!   not for the server, so they do not count by default.

use std::time::Duration;

use justitia_report::error::plain;
use redis::{Client, ClientTlsConfig, Connection, ErrorKind, RedisError, ServerErrorKind};
use redis::{ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo, TlsCertificates};

use super::{client_limit, now_seconds, timed, Connected, Server};
use crate::measure::{Measurement, Rate};
use crate::secret::Secret;
use crate::tls::{self, Check, Tls};
use crate::Trouble;

/// The server's address and login.
#[derive(Debug, Clone)]
pub struct Config {
    /// Host name or address, or the path of its socket.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User of the access control list; `None`: the default user.
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// TLS; never used on a socket.
    pub tls: Option<Tls>,
    /// True if clients in blocking commands count as work that waits.
    pub blocked: bool,
    /// The probe's timeout.
    pub timeout: Duration,
}

/// A connection, and what was counted over it.
pub struct Session {
    connection: Connection,
    work: Rate,
    /// Delayed writes at the last look.
    delayed: Option<f64>,
}

pub type Redis = Connected<Config>;

impl Server for Config {
    type Session = Session;

    fn connect(&self) -> Result<Session, Trouble> {
        let limit = client_limit(self.timeout);
        let client = self.client()?;
        let begin = || -> Result<Session, RedisError> {
            let mut connection = client.get_connection_with_timeout(limit)?;
            connection.set_read_timeout(Some(limit))?;
            connection.set_write_timeout(Some(limit))?;
            if let Some(password) = &self.password {
                let mut auth = redis::cmd("AUTH");
                auth.arg(&self.user).arg(&password.0);
                auth.query::<()>(&mut connection)?;
            }
            Ok(Session {
                connection,
                work: Rate::default(),
                delayed: None,
            })
        };
        begin().map_err(|error| self.said(&error))
    }

    fn look(&self, session: &mut Session) -> Result<Measurement, Trouble> {
        self.ask(session).map_err(|error| self.said(&error))
    }
}

impl Config {
    fn client(&self) -> Result<Client, Trouble> {
        let Config {
            host, port, tls, ..
        } = self;
        let address = if host.starts_with('/') {
            ConnectionAddr::Unix(host.clone().into())
        } else if let Some(tls) = tls {
            ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: tls.check == Check::Nothing,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host.clone(), *port)
        };
        // The client must not send a command while it connects, because no time limit holds yet.
        let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        let said = |error| self.said(&error);
        let info = address.into_connection_info().map_err(said)?;
        let info = info.set_redis_settings(settings);
        match tls.as_ref().filter(|_| !host.starts_with('/')) {
            Some(tls) => Client::build_with_tls(info, certificates(tls)?),
            None => Client::open(info),
        }
        .map_err(said)
    }

    /// The error in words. TLS shakes hands at the first command, and a server without TLS then waits for the
    /// end of what it takes for a command.
    fn said(&self, error: &RedisError) -> Trouble {
        let server = match self.host.strip_prefix('/') {
            Some(_) => format!("Redis at {}", self.host),
            None => format!("Redis at {}:{}", self.host, self.port),
        };
        if self.tls.is_some() && error.is_timeout() {
            let (what, remedy) = tls::no_tls();
            return Trouble::failed(
                format!("{server}: no answer; if it does not hang, {what}"),
                remedy,
            );
        }
        tls::said(&server, error).unwrap_or_else(|| said(&server, error))
    }

    fn ask(&self, session: &mut Session) -> Result<Measurement, RedisError> {
        let connection = &mut session.connection;
        let ping = timed(|| redis::cmd("PING").query::<String>(connection));
        let (latency, note) = match ping {
            Ok((_, seconds)) => (seconds, None),
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading) => {
                (f64::INFINITY, Some("loading".to_owned()))
            }
            Err(error) => return Err(error),
        };
        let info: String = redis::cmd("INFO").query(connection)?;
        let info = Info::parse(&info);
        Ok(Measurement {
            per_second: info
                .commands
                .and_then(|commands| session.work.of(commands, now_seconds())),
            latency_seconds: Some(latency),
            waiting: info.waiting(&mut session.delayed, self.blocked),
            note: Tls::noted(self.tls.as_ref(), note),
            ..Measurement::default()
        })
    }
}

/// The files for the client, checked here: the client's own error for a bad file does not name its path.
fn certificates(tls: &Tls) -> Result<TlsCertificates, Trouble> {
    if tls.check != Check::Nothing {
        tls.roots()?;
    }
    tls.shown()?;
    let client_tls = match &tls.identity {
        Some(identity) => Some(ClientTlsConfig {
            client_cert: tls::read(&identity.certificate)?,
            client_key: tls::read(&identity.key)?,
        }),
        None => None,
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert: tls.ca.as_deref().map(tls::read).transpose()?,
    })
}

/// The values that we read from the text of INFO.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Info {
    commands: Option<f64>,
    blocked: Option<f64>,
    delayed: Option<f64>,
}

impl Info {
    /// Parses lines of `key:value`; sections begin with `#`.
    fn parse(text: &str) -> Info {
        let mut info = Info::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim().parse::<f64>().ok().filter(|n| n.is_finite());
            match key {
                "total_commands_processed" => info.commands = value,
                "blocked_clients" => info.blocked = value,
                "aof_delayed_fsync" => info.delayed = value,
                _ => {}
            }
        }
        info
    }

    /// Work that waits, given the delayed writes at the last look. Without an append-only file, no write
    /// waits for it. Without any value that we count, nothing is known.
    fn waiting(self, last: &mut Option<f64>, blocked: bool) -> Option<f64> {
        let delayed = self.delayed.map(|delayed| {
            let before = last.replace(delayed).unwrap_or(delayed);
            (delayed - before).max(0.0)
        });
        let blocked = self.blocked.filter(|_| blocked);
        match (delayed, blocked) {
            (None, None) => None,
            (delayed, blocked) => Some(delayed.unwrap_or(0.0) + blocked.unwrap_or(0.0)),
        }
    }
}

fn said(server: &str, error: &RedisError) -> Trouble {
    let remedy = match error.kind() {
        ErrorKind::AuthenticationFailed => "check --user and --password-file",
        _ if error.is_io_error() => "check that the server runs, and check --host and --port",
        _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => {
            "give the user and the password with --user and --password-file"
        }
        _ if error.code() == Some("NOPERM") => "allow the user the commands PING and INFO",
        _ => "see the server's message",
    };
    Trouble::failed(format!("{server}: {}", plain(error)), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "# Clients\r\nconnected_clients:3\r\nblocked_clients:2\r\n\r\n# Stats\r\n\
        total_commands_processed:1234\r\ninstantaneous_ops_per_sec:7\r\n";

    #[test]
    fn the_text_of_info_is_understood() {
        assert_eq!(
            Info::parse(TEXT),
            Info {
                commands: Some(1234.0),
                blocked: Some(2.0),
                delayed: None
            }
        );
    }

    #[test]
    fn blocked_clients_count_as_waiting_only_if_configured() {
        let info = Info::parse(TEXT);
        assert_eq!(info.waiting(&mut None, true), Some(2.0));
        assert_eq!(info.waiting(&mut None, false), None);
    }

    #[test]
    fn writes_delayed_since_the_last_look_wait() {
        let mut last = None;
        let at = |delayed| Info {
            delayed: Some(delayed),
            ..Info::default()
        };
        assert_eq!(at(5.0).waiting(&mut last, false), Some(0.0));
        assert_eq!(at(8.0).waiting(&mut last, false), Some(3.0));
        assert_eq!(at(0.0).waiting(&mut last, false), Some(0.0));
    }

    proptest! {
        #[test]
        fn any_text_can_be_parsed(text in "\\PC*") {
            let _ = Info::parse(&text).waiting(&mut None, true);
        }
    }
}
