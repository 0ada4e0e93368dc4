//! TLS settings from arguments, environment and client files.
//!
//! By default a database on the same machine is reached without TLS, and on any other host with TLS and all
//! checks.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use justitia_args::probe::{RedisArgs, SslMode, TlsArgs};
use justitia_probe::secret::MysqlDefaults;
use justitia_probe::tls::{Check, Identity};
use justitia_probe::{Error, Tls};

/// TLS for MySQL: the arguments, then the option file.
pub(super) fn of_mysql(
    mode: Option<SslMode>,
    args: &TlsArgs,
    defaults: &MysqlDefaults,
    host: &str,
) -> Result<Option<Tls>, Error> {
    let given = defaults.ssl_mode.as_deref();
    let mode = match (mode, given) {
        (None, Some(word)) => Some(mode_of("ssl-mode of the option file", word)?),
        (mode, _) => mode,
    };
    let or = |ours: &Option<PathBuf>, theirs: &Option<PathBuf>| ours.clone().or(theirs.clone());
    let ca = or(&args.tls_ca, &defaults.ssl_ca);
    let certificate = or(&args.tls_cert, &defaults.ssl_cert);
    let key = or(&args.tls_key, &defaults.ssl_key);
    let mode = mode.unwrap_or(default_mode(host, ca.as_ref().or(certificate.as_ref())));
    of_mode(mode, ca, certificate, key)
}

/// TLS for PostgreSQL: the arguments, then libpq's environment, then its files in the home directory.
pub(super) fn of_postgres(
    mode: Option<SslMode>,
    args: &TlsArgs,
    host: &str,
) -> Result<Option<Tls>, Error> {
    let mode = match (mode, std::env::var("PGSSLMODE")) {
        (None, Ok(word)) => Some(mode_of("PGSSLMODE", &word)?),
        (mode, _) => mode,
    };
    let from = |ours: &Option<PathBuf>, variable: &str| {
        let theirs = || std::env::var_os(variable).map(PathBuf::from);
        ours.clone().or_else(theirs)
    };
    let mut ca = from(&args.tls_ca, "PGSSLROOTCERT");
    let mut certificate = from(&args.tls_cert, "PGSSLCERT");
    let mut key = from(&args.tls_key, "PGSSLKEY");
    let mode = mode.unwrap_or(default_mode(host, ca.as_ref().or(certificate.as_ref())));
    // libpq's files in the home directory are used with TLS, but do not turn it on.
    ca = ca.or_else(|| of_home(".postgresql/root.crt"));
    ca = ca.filter(|ca| ca != Path::new("system"));
    certificate = certificate.or_else(|| of_home(".postgresql/postgresql.crt"));
    if certificate.is_some() {
        key = key.or_else(|| of_home(".postgresql/postgresql.key"));
    }
    of_mode(mode, ca, certificate, key)
}

/// TLS for Redis: only if requested, as in redis-cli.
pub(super) fn of_redis(args: &RedisArgs, secure_url: bool) -> Result<Option<Tls>, Error> {
    let TlsArgs {
        tls_ca, tls_cert, ..
    } = &args.tls;
    let asked = args.use_tls || secure_url;
    if !asked && (args.insecure || tls_ca.is_some() || tls_cert.is_some()) {
        return Err(Error::usage(
            "--insecure, --tls-ca and --tls-cert need TLS, and TLS is off",
            "add --tls, or name the host as rediss://HOST:PORT",
        ));
    }
    Ok(asked.then_some(of_url(args.insecure, &args.tls)?))
}

/// TLS for HTTPS.
pub(super) fn of_url(insecure: bool, args: &TlsArgs) -> Result<Tls, Error> {
    Ok(Tls {
        check: if insecure {
            Check::Nothing
        } else {
            Check::Full
        },
        optional: false,
        ca: args.tls_ca.clone(),
        identity: identity(args.tls_cert.clone(), args.tls_key.clone())?,
    })
}

/// A file in the home directory, if it exists.
pub(super) fn of_home(name: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os("HOME")?).join(name);
    path.is_file().then_some(path)
}

fn of_mode(
    mode: SslMode,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Tls>, Error> {
    let check = match mode {
        // Files that are not used need not be complete.
        SslMode::Disable => return Ok(None),
        SslMode::Prefer => Check::Nothing,
        // As in libpq, a CA file turns `require` into `verify-ca`.
        SslMode::Require if ca.is_none() => Check::Nothing,
        SslMode::Require | SslMode::VerifyCa => Check::Chain,
        SslMode::VerifyFull => Check::Full,
    };
    Ok(Some(Tls {
        check,
        optional: mode == SslMode::Prefer,
        ca,
        identity: identity(certificate, key)?,
    }))
}

/// No TLS on the probe's own machine, unless a TLS file is named; TLS with all checks to other hosts.
fn default_mode(host: &str, named: Option<&PathBuf>) -> SslMode {
    let here = host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if here && named.is_none() {
        SslMode::Disable
    } else {
        SslMode::VerifyFull
    }
}

fn mode_of(whose: &str, word: &str) -> Result<SslMode, Error> {
    SslMode::from_str(word, true).map_err(|_| {
        Error::usage(
            format!("{whose} is {word}, which is not a TLS mode"),
            "use disable, prefer, require, verify-ca or verify-full",
        )
    })
}

fn identity(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Identity>, Error> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(Identity { certificate, key })),
        (None, None) => Ok(None),
        (certificate, _) => {
            let cause = match certificate {
                Some(_) => "the probe's certificate is named without its key",
                None => "the probe's key is named without its certificate",
            };
            Err(Error::usage(
                cause,
                "name both: --tls-cert and --tls-key, or the client's file or variables",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_with_all_checks_is_the_default_to_other_hosts_and_none_to_this_one() {
        let tls = |host: &str, ca: Option<&str>| {
            let args = TlsArgs {
                tls_ca: ca.map(Into::into),
                tls_cert: None,
                tls_key: None,
            };
            of_mysql(None, &args, &MysqlDefaults::default(), host).unwrap()
        };
        for here in ["localhost", "127.0.0.1", "::1", "/run/db"] {
            assert_eq!(tls(here, None), None, "{here}");
        }
        for elsewhere in ["db", "10.0.0.7", "localhost.example"] {
            assert_eq!(tls(elsewhere, None), Some(Tls::default()), "{elsewhere}");
        }
        let named = tls("localhost", Some("/ca")).map(|tls| tls.check);
        assert_eq!(named, Some(Check::Full));
    }

    #[test]
    fn an_option_file_counts_where_the_arguments_say_nothing() {
        let args = TlsArgs {
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        };
        let file = |lines: &str| MysqlDefaults::parse(&format!("[client]\n{lines}"));
        let tls = |mode, lines: &str| of_mysql(mode, &args, &file(lines), "db");
        assert_eq!(tls(None, "ssl-mode=DISABLED"), Ok(None));
        let check = |mode, lines: &str| tls(mode, lines).unwrap().map(|tls| tls.check);
        assert_eq!(check(None, "ssl-mode=REQUIRED"), Some(Check::Nothing));
        assert_eq!(check(Some(SslMode::VerifyCa), "ssl=0"), Some(Check::Chain));
        assert!(tls(None, "ssl-mode=MAYBE").is_err());
        assert!(tls(None, "ssl-cert=/c").is_err());
        assert_eq!(tls(Some(SslMode::Disable), "ssl-cert=/c"), Ok(None));
    }
}
