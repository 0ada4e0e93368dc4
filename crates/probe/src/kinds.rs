//! Makes targets from arguments: finds passwords, sets objectives, and refuses unusable arguments.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use justitia_probe::secret::{self, MysqlDefaults};
use justitia_probe::targets::{exec, http, log, mysql, postgres, prometheus, redis};
use justitia_probe::{Error, Objective, Open, Target, Tls};

use justitia_args::probe::{
    CommonArgs, ExecArgs, HttpArgs, Kind, LogArgs, MysqlArgs, PostgresArgs, PrometheusArgs,
    RedisArgs, Threshold, ThresholdArgs, WaitingArgs, WorkArgs,
};

use super::secure::{self, of_home};

/// Where the servers' probes take a user and a password from.
const BY_OPTIONS: &str = "use --user and --password-file";
/// The default of MySQL's own clients. They take `localhost` for a socket, so it is not used.
const MYSQL_HOST: &str = "127.0.0.1";
const MYSQL_PORT: u16 = 3306;
const REDIS_PORT: u16 = 6379;
/// Time from the command's own timeout until the probe gives it up.
const AFTER_EXEC: Duration = Duration::from_millis(500);

/// A target that can be opened, its objective, and the command to end when the probe ends.
pub(super) struct Chosen {
    pub(super) open: Open,
    pub(super) objective: Objective,
    pub(super) timeout: Duration,
    pub(super) running: exec::Running,
    /// The check of the server's certificate that is off; `None` if none is, or if TLS is not used.
    pub(super) unchecked: Option<&'static str>,
}

/// The parts of [`Chosen`]: target, objective, TLS.
type Made = (Open, Objective, Option<Tls>);

/// The arguments that all kinds have.
pub(super) fn common(kind: &Kind) -> &CommonArgs {
    match kind {
        Kind::Mysql(args) => &args.common,
        Kind::Postgres(args) => &args.common,
        Kind::Redis(args) => &args.common,
        Kind::Http(args) => &args.common,
        Kind::Log(args) => &args.common,
        Kind::Prometheus(args) => &args.common,
        Kind::Exec(args) => &args.common,
    }
}

pub(super) fn choose(kind: &Kind) -> Result<Chosen, Error> {
    let common = common(kind);
    let slack = common.slack / 100.0;
    let timeout = common.timeout;
    let running = exec::Running::default();
    let (open, objective, tls) = match kind {
        Kind::Mysql(args) => of_mysql(args, timeout)?,
        Kind::Postgres(args) => of_postgres(args, timeout)?,
        Kind::Redis(args) => of_redis(args, timeout)?,
        Kind::Http(args) => of_http(args, timeout)?,
        Kind::Log(args) => of_log(args),
        Kind::Prometheus(args) => of_prometheus(args, timeout)?,
        Kind::Exec(args) => (
            of_exec(args, timeout, &running)?,
            of_limits(&args.limits)?,
            None,
        ),
    };
    Ok(Chosen {
        open,
        objective: Objective { slack, ..objective },
        timeout: if matches!(kind, Kind::Exec(_)) {
            timeout + AFTER_EXEC
        } else {
            timeout
        },
        running,
        unchecked: tls.as_ref().and_then(Tls::note),
    })
}

/// Opens the target anew each time that the probe needs it.
fn opener<C, T>(config: C, new: fn(C) -> T) -> Open
where
    C: Clone + Send + Sync + 'static,
    T: Target + 'static,
{
    Arc::new(move || Box::new(new(config.clone())))
}

fn of_performance(
    min_per_second: Option<f64>,
    max_latency: Option<Duration>,
    max_waiting: f64,
) -> Objective {
    Objective {
        min_per_second,
        max_latency,
        max_waiting,
        ..Objective::default()
    }
}

fn of_work(args: &WorkArgs) -> Objective {
    of_performance(args.min_tps, args.max_latency, args.waiting.max_waiting)
}

fn of_limits(args: &ThresholdArgs) -> Result<Objective, Error> {
    let red_first = match (args.red, args.yellow) {
        (Some(Threshold::Above(red)), Some(Threshold::Above(yellow))) => red <= yellow,
        (Some(Threshold::Below(red)), Some(Threshold::Below(yellow))) => yellow <= red,
        _ => false,
    };
    if red_first {
        return Err(Error::usage(
            "every number beyond --yellow is beyond --red too: yellow would never be declared",
            "set --yellow to a number that the target reaches before --red",
        ));
    }
    Ok(Objective {
        red: args.red,
        yellow: args.yellow,
        ..Objective::default()
    })
}

/// By default the number of CPUs that this process may use, which are the server's if it runs beside it.
fn parallel(args: &WaitingArgs) -> f64 {
    args.parallel.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64)
    })
}

fn of_mysql(args: &MysqlArgs, timeout: Duration) -> Result<Made, Error> {
    secret::refuse_in_address(args.host.as_deref().unwrap_or_default(), BY_OPTIONS)?;
    let defaults = match args.defaults_file.clone().or_else(|| of_home(".my.cnf")) {
        Some(path) => MysqlDefaults::parse(&readable(&path)?),
        None => MysqlDefaults::default(),
    };
    let password = secret::find(args.password_file.as_deref(), "MYSQL_PWD")?;
    let socket = mysql_socket(args, &defaults);
    let host = args.host.clone().or(defaults.host.clone());
    let host = host.unwrap_or_else(|| MYSQL_HOST.to_owned());
    let tls = match &socket {
        None => secure::of_mysql(args.ssl_mode, &args.tls, &defaults, &host)?,
        Some(_) => None,
    };
    let user = args.user.clone().or(defaults.user);
    let config = mysql::Config {
        host,
        port: args.port.or(defaults.port).unwrap_or(MYSQL_PORT),
        socket,
        user: user.unwrap_or_else(|| "root".to_owned()),
        password: password.or(defaults.password),
        tls: tls.clone(),
        database: args.database.clone(),
        count: args.count.clone(),
        query: args.work.query.clone(),
        latency: args.work.max_latency.is_some(),
        parallel: parallel(&args.work.waiting),
        timeout,
    };
    Ok((opener(config, mysql::Mysql::new), of_work(&args.work), tls))
}

/// A host or a port on the command line means TCP, whatever the file says of a socket. MySQL's own clients take
/// the file's socket only if its host is this one.
fn mysql_socket(args: &MysqlArgs, defaults: &MysqlDefaults) -> Option<PathBuf> {
    let local = defaults
        .host
        .as_deref()
        .is_none_or(|host| host == "localhost");
    let of_file = args.host.is_none() && args.port.is_none() && local;
    let socket = defaults.socket.clone().filter(|_| of_file);
    args.socket.clone().or(socket)
}

fn of_postgres(args: &PostgresArgs, timeout: Duration) -> Result<Made, Error> {
    secret::refuse_in_address(&args.host, BY_OPTIONS)?;
    let mut password = secret::find(args.password_file.as_deref(), "PGPASSWORD")?;
    if password.is_none() {
        let file = std::env::var_os("PGPASSFILE").map(PathBuf::from);
        if let Some(path) = file.or_else(|| of_home(".pgpass")) {
            // libpq calls a socket in the standard place localhost there.
            let host = if args.host.starts_with('/') {
                "localhost"
            } else {
                &args.host
            };
            let text = readable(&path)?;
            password = secret::pgpass(&text, host, args.port, &args.database, &args.user);
        }
    }
    let tls = if args.host.starts_with('/') {
        None
    } else {
        secure::of_postgres(args.ssl_mode, &args.tls, &args.host)?
    };
    let config = postgres::Config {
        host: args.host.clone(),
        port: args.port,
        user: args.user.clone(),
        password,
        tls: tls.clone(),
        database: args.database.clone(),
        one_database: args.one_database,
        query: args.work.query.clone(),
        latency: args.work.max_latency.is_some(),
        parallel: parallel(&args.work.waiting),
        timeout,
    };
    Ok((
        opener(config, postgres::Postgres::new),
        of_work(&args.work),
        tls,
    ))
}

fn of_redis(args: &RedisArgs, timeout: Duration) -> Result<Made, Error> {
    secret::refuse_in_address(&args.host, BY_OPTIONS)?;
    let (host, port, secure_url) = redis_address(&args.host)?;
    let tls = if host.starts_with('/') {
        None
    } else {
        secure::of_redis(args, secure_url)?
    };
    let config = redis::Config {
        host,
        port: args.port.or(port).unwrap_or(REDIS_PORT),
        user: args.user.clone(),
        password: secret::find(args.password_file.as_deref(), "REDISCLI_AUTH")?,
        tls: tls.clone(),
        blocked: args.blocked,
        timeout,
    };
    let objective = of_performance(None, args.max_latency, args.max_waiting);
    Ok((opener(config, redis::Redis::new), objective, tls))
}

/// Host, port and whether TLS is used, from a host or a URL.
fn redis_address(text: &str) -> Result<(String, Option<u16>, bool), Error> {
    let secure = match text.split_once("://") {
        None => return Ok((text.to_owned(), None, false)),
        Some(("redis", _)) => false,
        Some(("rediss", _)) => true,
        Some(_) => {
            return Err(Error::usage(
                format!("{text} is neither a redis:// nor a rediss:// URL"),
                "name the host, or rediss://HOST:PORT for TLS",
            ))
        }
    };
    // The number of a database does not change what is measured.
    let info = text.into_connection_info();
    match info.as_ref().map(ConnectionInfo::addr) {
        Ok(ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) => {
            Ok((host.clone(), Some(*port), secure))
        }
        _ => Err(Error::usage(
            format!("{text} is not a URL of a Redis server"),
            "write rediss://HOST:PORT",
        )),
    }
}

fn of_http(args: &HttpArgs, timeout: Duration) -> Result<Made, Error> {
    for url in std::iter::once(&args.url).chain(&args.status_url) {
        check_url(url)?;
    }
    let tls = secure::of_url(args.insecure, &args.tls)?;
    let config = http::Config {
        tls: tls.clone(),
        url: args.url.clone(),
        status_url: args.status_url.clone(),
        parallel: parallel(&args.waiting),
        timeout,
    };
    let objective = of_performance(args.min_tps, args.max_latency, args.waiting.max_waiting);
    let tls = config.is_secure().then_some(tls);
    Ok((opener(config, http::Http::new), objective, tls))
}

fn of_log(args: &LogArgs) -> Made {
    let config = log::Config {
        path: args.file.clone(),
        field: args.time_field.clone(),
        unit: args.time_unit,
        percentile: args.percentile,
    };
    let objective = of_performance(None, args.max_latency, 0.0);
    (opener(config, log::Log::new), objective, None)
}

fn of_prometheus(args: &PrometheusArgs, timeout: Duration) -> Result<Made, Error> {
    check_url(&args.url)?;
    let tls = secure::of_url(args.insecure, &args.tls)?;
    let secure = http::is_secure(&args.url);
    let config = prometheus::Config {
        url: args.url.clone(),
        tls: tls.clone(),
        query: args.query.clone(),
        timeout,
    };
    let open = opener(config, prometheus::Prometheus::new);
    Ok((open, of_limits(&args.limits)?, secure.then_some(tls)))
}

fn of_exec(args: &ExecArgs, timeout: Duration, running: &exec::Running) -> Result<Open, Error> {
    let program = args.command.first();
    if program.is_none_or(|program| program.is_empty()) {
        return Err(Error::usage(
            "the command has no program",
            "give a program and its arguments after --",
        ));
    }
    let config = exec::Config {
        command: args.command.clone(),
        prints: args.limits.red.is_some() || args.limits.yellow.is_some(),
        timeout,
        running: running.clone(),
    };
    Ok(opener(config, exec::Exec::new))
}

fn check_url(url: &str) -> Result<(), Error> {
    secret::refuse_in_address(url, "let the server answer this address without one")?;
    if !url.starts_with("http://") && !http::is_secure(url) {
        return Err(Error::usage(
            format!("the URL {url} is neither an http:// nor an https:// URL"),
            "for anything else use exec with curl",
        ));
    }
    if !http::is_whole(url) {
        return Err(Error::usage(
            format!("the URL {url} is malformed or has no host"),
            "write it as http://HOST:PORT/PATH, with %20 for a space",
        ));
    }
    Ok(())
}

fn readable(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::io("read", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn the_socket_of_an_option_file_is_used_only_for_this_host() {
        let socket = |options: &[&str], file: &str| {
            let words = ["probe", "mysql", "--min-tps", "1"];
            let cli = crate::Cli::parse_from(words.iter().chain(options));
            let Kind::Mysql(args) = cli.probe.kind else {
                panic!("another kind");
            };
            let defaults = MysqlDefaults::parse(&format!("[client]\nsocket=/s\n{file}"));
            mysql_socket(&args, &defaults)
        };
        assert_eq!(socket(&[], ""), Some("/s".into()));
        assert_eq!(socket(&[], "host=localhost"), Some("/s".into()));
        assert_eq!(socket(&[], "host=db.example"), None);
        assert_eq!(socket(&[], "host=127.0.0.1"), None);
        assert_eq!(socket(&["--host", "localhost"], ""), None);
        assert_eq!(socket(&["--port", "3306"], ""), None);
        let named = socket(&["--socket", "/t"], "host=db.example");
        assert_eq!(named, Some("/t".into()));
    }
}
