//! Arguments of `justitia probe`: one command for each kind of target, and the arguments that they share.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use crate::number;

mod values;

pub use values::{Field, Threshold, Unit};

/// Arguments of `justitia probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Green: the objective is met and nothing waits. Yellow: it is met, but work waits. Red: it is missed. Once a period, \
the probe writes the color to the extended attribute user.justitia.color of the cgroup's directory. While the target \
does not answer, the color goes stale. It starts red.

Passwords come from --password-file, the environment or the server's client files, never from the command line.

Examples:
  justitia probe mysql --min-tps 1700             inside the container, for its own cgroup
  justitia probe postgres --group db --max-latency 20ms --query 'SELECT ...'
  justitia probe log /var/log/nginx/access.log --group web --max-latency 100ms
  justitia probe exec --group batch -- /usr/local/bin/is-it-well
  justitia probe redis --max-latency 2ms --dry-run   print, declare nothing")]
pub struct ProbeArgs {
    /// Kind of the target.
    #[command(subcommand)]
    pub kind: Kind,
}

/// The kinds of targets.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "KIND", subcommand_help_heading = "Kinds")]
pub enum Kind {
    /// MySQL or MariaDB: transactions, latency, statements that wait
    #[command(visible_alias = "mariadb")]
    Mysql(MysqlArgs),
    /// PostgreSQL: transactions, latency, sessions that wait
    #[command(visible_alias = "postgresql")]
    Postgres(PostgresArgs),
    /// Redis or Valkey: latency of its one thread
    #[command(visible_alias = "valkey")]
    Redis(RedisArgs),
    /// A URL: latency; with nginx's `stub_status` also requests that wait
    #[command(visible_alias = "nginx")]
    Http(HttpArgs),
    /// An access log of nginx or Apache: a percentile of its request times
    Log(LogArgs),
    /// A Prometheus query: one number against thresholds
    Prometheus(PrometheusArgs),
    /// Any command: exit code 0, 1, 2 for green, yellow, red, or a number against thresholds
    Exec(ExecArgs),
}

/// For which group, how often, and what to print.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent flags")]
#[command(next_help_heading = "Probe")]
pub struct CommonArgs {
    /// Path of the cgroup below the cgroup2 mount; its name or container ID if it is managed
    #[arg(long, value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub group: Option<String>,
    /// The cgroup this probe runs in; the default
    #[arg(long = "self", conflicts_with = "group")]
    pub own: bool,
    /// Time between two measurements; the agent forgets colors after 5s unless told otherwise
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: String,
    /// Give up a measurement that takes longer; no color is declared meanwhile
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub timeout: Duration,
    /// Number of latest measurements that decide the color, odd; most must agree to worsen it, all to improve it
    #[arg(long, value_name = "N", default_value = "5", value_parser = window)]
    pub window: usize,
    /// Percent by which an objective may be missed before it counts as missed
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub slack: f64,
    /// Print what would be declared, and declare nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Measure once, print the color and end; declares nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub once: bool,
    /// Print a line of JSON for each period; declares nothing
    #[arg(long)]
    pub json: bool,
    /// Print each measurement
    #[arg(long, short)]
    pub verbose: bool,
    /// Print what the probe itself costs, once a minute and at the end
    #[arg(long)]
    pub stats: bool,
}

/// The objective of a server that counts its work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objective")]
#[group(required = true, multiple = true, id = "objective", args = ["min_tps", "max_latency"])]
pub struct WorkArgs {
    /// Transactions per second; counts as missed only while work waits
    #[arg(long, value_name = "N", value_parser = positive)]
    pub min_tps: Option<f64>,
    /// Longest latency
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub max_latency: Option<Duration>,
    /// Query to time: choose one that reads what the application reads
    #[arg(long, value_name = "SQL")]
    pub query: Option<String>,
    /// Limits of waiting work.
    #[command(flatten)]
    pub waiting: WaitingArgs,
}

/// Limits of waiting work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objective")]
pub struct WaitingArgs {
    /// Most work that may wait before the color is yellow
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = count)]
    pub max_waiting: f64,
    /// Most work that runs at once; the rest counts as waiting [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = count)]
    pub parallel: Option<f64>,
}

/// A number of the user's own against thresholds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objective")]
pub struct ThresholdArgs {
    /// The number is red beyond this: '>0.5' (or 0.5), '<100'
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub red: Option<Threshold>,
    /// The number is yellow beyond this
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub yellow: Option<Threshold>,
}

/// Use of TLS with MySQL and PostgreSQL: libpq's words, and MySQL's for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SslMode {
    /// Without TLS
    #[value(alias = "disabled")]
    Disable,
    /// With TLS if the server has it; the certificate is not checked
    #[value(aliases = ["preferred", "allow"])]
    Prefer,
    /// With TLS; the certificate is checked only if --tls-ca is given, and not its name
    #[value(alias = "required")]
    Require,
    /// With TLS; who signed the certificate is checked, not its name
    #[value(alias = "verify_ca")]
    VerifyCa,
    /// With TLS; who signed the certificate and its name are checked
    #[value(alias = "verify_identity")]
    VerifyFull,
}

/// Files of TLS.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// PEM file of the authorities that may sign the server's certificate [default: the system's]
    #[arg(long, value_name = "FILE", aliases = ["sslrootcert", "ssl-ca", "cacert"])]
    pub tls_ca: Option<PathBuf>,
    /// PEM file of the client certificate, for a server that asks for one
    #[arg(long, value_name = "FILE", requires = "tls_key", aliases = ["sslcert", "ssl-cert", "cert"])]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the client certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert", aliases = ["sslkey", "ssl-key", "key"])]
    pub tls_key: Option<PathBuf>,
}

/// Arguments of `justitia probe mysql`.
#[derive(Debug, Args)]
#[command(after_help = "\
Password: --password-file, or the variable MYSQL_PWD, or the [client] section of the defaults file. The user needs \
no privilege except to connect. With SELECT on performance_schema.* the latency is the mean of all statements; \
without it, and without --query, that of SELECT 1.

Examples:
  justitia probe mysql --socket /run/mysqld/mysqld.sock --user probe --min-tps 1700
  justitia probe mysql --host db --max-latency 20ms --query 'SELECT ...' --group db
  justitia probe mysql --host db --tls-ca /etc/mysql/ca.pem --min-tps 1700 --group db")]
pub struct MysqlArgs {
    /// Host [default: localhost by its address, 127.0.0.1]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// TCP port [default: 3306]
    #[arg(long)]
    pub port: Option<u16>,
    /// Path of the server's socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// User [default: the defaults file's user, or root]
    #[arg(long)]
    pub user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The client's option file [default: ~/.my.cnf]
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// Database the query runs in
    #[arg(long)]
    pub database: Option<String>,
    /// Status counter that counts the work; use Questions if nothing commits
    #[arg(long, value_name = "COUNTER", default_value = "Com_commit", value_parser = counter)]
    pub count: String,
    /// TLS: disable, prefer, require, verify-ca or verify-full, or as MySQL calls them [default: verify-full; disable for a socket and for this machine]
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        ignore_case = true,
        hide_possible_values = true,
        help_heading = "TLS",
        alias = "ssl_mode"
    )]
    pub ssl_mode: Option<SslMode>,
    /// Files of TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The objective.
    #[command(flatten)]
    pub work: WorkArgs,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Arguments of `justitia probe postgres`.
#[derive(Debug, Args)]
#[command(after_help = "\
Password: --password-file, or the variable PGPASSWORD, or ~/.pgpass. The user needs the role pg_monitor to see what \
waits: GRANT pg_monitor TO probe.

Examples:
  justitia probe postgres --user probe --min-tps 500 --max-latency 20ms
  justitia probe postgres --host 127.0.0.1 --database shop --one-database --min-tps 500
  justitia probe postgres --host db --sslmode verify-full --min-tps 500 --group db")]
pub struct PostgresArgs {
    /// Host, or the directory of the server's socket
    #[arg(long, default_value = "/var/run/postgresql", value_parser = NonEmptyStringValueParser::new())]
    pub host: String,
    /// Port; also part of the socket's name
    #[arg(long, default_value_t = 5432)]
    pub port: u16,
    /// User
    #[arg(long, default_value = "postgres")]
    pub user: String,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Database to connect to
    #[arg(long, default_value = "postgres")]
    pub database: String,
    /// Count the work of this database only
    #[arg(long)]
    pub one_database: bool,
    /// TLS: disable, prefer, require, verify-ca or verify-full [default: verify-full; disable for a socket and for this machine]
    #[arg(
        long = "sslmode",
        value_name = "MODE",
        value_enum,
        ignore_case = true,
        hide_possible_values = true,
        help_heading = "TLS"
    )]
    pub ssl_mode: Option<SslMode>,
    /// Files of TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The objective.
    #[command(flatten)]
    pub work: WorkArgs,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Arguments of `justitia probe redis`.
#[derive(Debug, Args)]
#[command(after_help = "\
Password: --password-file or the variable REDISCLI_AUTH. The user needs PING and INFO.

Examples:
  justitia probe redis --max-latency 2ms --group cache
  justitia probe redis --host rediss://cache:6380 --tls-ca ca.pem --max-latency 2ms --group cache")]
pub struct RedisArgs {
    /// Host, rediss://HOST:PORT for TLS, or the path of the server's socket
    #[arg(long, default_value = "127.0.0.1", value_parser = NonEmptyStringValueParser::new())]
    pub host: String,
    /// TCP port [default: 6379]
    #[arg(long)]
    pub port: Option<u16>,
    /// User of the access control list
    #[arg(long)]
    pub user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Count clients in blocking commands as waiting
    #[arg(long, help_heading = "Objective")]
    pub blocked: bool,
    /// Longest latency of a PING, which queues like every command
    #[arg(long, value_name = "TIME", value_parser = time, required = true, help_heading = "Objective")]
    pub max_latency: Option<Duration>,
    /// Most work that may wait before the color is yellow
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = count, help_heading = "Objective")]
    pub max_waiting: f64,
    /// Speak TLS, as with a host rediss://HOST:PORT
    #[arg(long = "tls", help_heading = "TLS")]
    pub use_tls: bool,
    /// Do not check the server's certificate: anyone on the network path can impersonate the server
    #[arg(long, help_heading = "TLS")]
    pub insecure: bool,
    /// Files of TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Arguments of `justitia probe http`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --status-url the probe cannot see waiting requests: the color is green or red.

Examples:
  justitia probe http http://127.0.0.1/health --max-latency 50ms --group web
  justitia probe http https://shop.example/health --max-latency 50ms --group web"
)]
pub struct HttpArgs {
    /// URL, http:// or https://; choose one that reads what the application reads
    #[arg(value_name = "URL")]
    pub url: String,
    /// Longest time of a GET; a status of 408, 429, or 500 or more is a miss
    #[arg(long, value_name = "TIME", value_parser = time, required = true, help_heading = "Objective")]
    pub max_latency: Option<Duration>,
    /// URL of nginx's `stub_status`
    #[arg(long, value_name = "URL", help_heading = "Objective")]
    pub status_url: Option<String>,
    /// Requests per second; counts as missed only while requests wait
    #[arg(long, value_name = "N", value_parser = positive, requires = "status_url", help_heading = "Objective")]
    pub min_tps: Option<f64>,
    /// Limits of waiting work.
    #[command(flatten)]
    pub waiting: WaitingArgs,
    /// Do not check the server's certificate: anyone on the network path can impersonate the server
    #[arg(long, help_heading = "TLS")]
    pub insecure: bool,
    /// Files of TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Arguments of `justitia probe log`.
#[derive(Debug, Args)]
#[command(after_help = "\
A log does not show waiting requests: the color is green or red. A server that hangs logs nothing, which looks like \
no requests; probe a URL to see a hang. The probe follows log rotation. The status is the first three digits right \
after a quoted text, such as the request, or \"status\": in a line of JSON. The time belongs behind all that a client \
can write: of a text before the time, the last one in a line counts.

Examples:
  justitia probe log /var/log/nginx/access.log --max-latency 100ms --group web
  justitia probe log access.log --time-field rt= --percentile 99 --max-latency 0.2")]
pub struct LogArgs {
    /// The access log
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Longest request time
    #[arg(long, value_name = "TIME", value_parser = time, required = true, help_heading = "Objective")]
    pub max_latency: Option<Duration>,
    /// Share of requests that must meet it, percent; a status of 500 or more is a miss
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = percent, help_heading = "Objective")]
    pub percentile: f64,
    /// Position of the time in a line: last, the number of a word, or the text before the time
    #[arg(long, value_name = "FIELD", default_value = "last")]
    pub time_field: Field,
    /// Unit of the time: s, ms or us
    #[arg(long, value_name = "UNIT", default_value = "s")]
    pub time_unit: Unit,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Arguments of `justitia probe prometheus`.
#[derive(Debug, Args)]
#[command(after_help = "The query must give one number.

Example:
  justitia probe prometheus http://localhost:9090 'job:latency:p95' --red 0.5 --yellow 0.2 --group web")]
#[group(required = true, multiple = true, id = "limits", args = ["red", "yellow"])]
pub struct PrometheusArgs {
    /// Address of the server, http:// or https://
    #[arg(value_name = "URL")]
    pub url: String,
    /// The query
    #[arg(value_name = "QUERY", value_parser = NonEmptyStringValueParser::new())]
    pub query: String,
    /// Thresholds for its number.
    #[command(flatten)]
    pub limits: ThresholdArgs,
    /// Do not check the server's certificate: anyone on the network path can impersonate the server
    #[arg(long, help_heading = "TLS")]
    pub insecure: bool,
    /// Files of TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Arguments of `justitia probe exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
With --red or --yellow the command must exit with 0, and the first number it prints counts. A command that takes \
longer than --timeout is killed, with all processes that it started.

Examples:
  justitia probe exec --group batch -- /usr/local/bin/is-it-well
  justitia probe exec --group web --red 0.5 -- curl -so /dev/null -w '%{time_total}' https://web/")]
pub struct ExecArgs {
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
    /// Thresholds for its number.
    #[command(flatten)]
    pub limits: ThresholdArgs,
    /// Options that all kinds of target have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Longer times are mistakes.
const TIMES: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(3600);

fn time(text: &str) -> Result<Duration, String> {
    justitia_quantity::time(text)
        .filter(|time| TIMES.contains(time))
        .ok_or_else(|| {
            let range = justitia_quantity::from_to(&TIMES);
            format!("is not a time {range}\nuse for example 50ms or 1.5s")
        })
}

fn positive(text: &str) -> Result<f64, String> {
    let all = f64::MIN_POSITIVE..=f64::MAX;
    number(text, all, "above 0\nuse for example 100")
}

fn count(text: &str) -> Result<f64, String> {
    number(text, 0.0..=f64::MAX, "from 0\nuse for example 2")
}

fn percent(text: &str) -> Result<f64, String> {
    let what = "from 0 to 100\nuse a number in that range";
    number(text, 0.0..=100.0, what)
}

fn window(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number % 2 == 1 && number < 100 => Ok(number),
        _ => Err("is not an odd number from 1 to 99\nuse for example 5".to_owned()),
    }
}

/// The name becomes part of an SQL statement.
fn counter(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !text.is_empty() && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("is not the name of a status counter\nuse for example Questions".to_owned())
    }
}
