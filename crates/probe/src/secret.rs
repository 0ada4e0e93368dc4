//! Reads passwords from places that other users cannot read: a file, the environment, or the file that the
//! server's own client uses. Never from the command line, which every user of the machine can list.

use std::fmt;
use std::path::{Path, PathBuf};

use justitia_report::error::Error;

/// A password. `{:?}` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Reads a password from the first line of the file if one is named, otherwise from the environment variable.
pub fn find(file: Option<&Path>, variable: &str) -> Result<Option<Secret>, Error> {
    match file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Error::io("read the password in", path, &error))?;
            let first = text.lines().next().unwrap_or_default();
            Ok(Some(Secret(first.to_owned())))
        }
        None => Ok(std::env::var(variable).ok().map(Secret)),
    }
}

/// `remedy`: where this kind of probe takes a password from.
pub fn refuse_in_address(address: &str, remedy: &str) -> Result<(), Error> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Error::usage(
            "an address on the command line must not carry a user or a password",
            format!("{remedy}: everybody can list the arguments of a process"),
        ));
    }
    Ok(())
}

/// The options of the `[client]` sections of MySQL's option files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MysqlDefaults {
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub socket: Option<PathBuf>,
    /// `ssl-mode`, or what MariaDB's options mean in its terms.
    pub ssl_mode: Option<String>,
    pub ssl_ca: Option<PathBuf>,
    pub ssl_cert: Option<PathBuf>,
    pub ssl_key: Option<PathBuf>,
}

impl MysqlDefaults {
    /// Parses an option file. Later lines win, as in the server's own clients. `!include` is not followed.
    pub fn parse(text: &str) -> MysqlDefaults {
        let mut found = MysqlDefaults::default();
        let mut ours = false;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[') {
                let name = section.trim_end_matches(']');
                ours = ["client", "client-server", "client-mariadb"].contains(&name);
                continue;
            }
            if !ours || line.starts_with(['#', ';', '!']) {
                continue;
            }
            // A key without a value is a switch.
            let (key, value) = line.split_once('=').unwrap_or((line, "1"));
            let value = unescaped(unquoted(value.trim()));
            match key.trim().replace('_', "-").as_str() {
                "user" => found.user = Some(value),
                "password" => found.password = Some(Secret(value)),
                "host" => found.host = Some(value),
                "port" => found.port = value.parse().ok(),
                "socket" => found.socket = Some(value.into()),
                "ssl-mode" => found.ssl_mode = Some(value),
                "ssl-ca" => found.ssl_ca = Some(value.into()),
                "ssl-cert" => found.ssl_cert = Some(value.into()),
                "ssl-key" => found.ssl_key = Some(value.into()),
                "ssl" | "ssl-verify-server-cert" if is_on(&value) => {
                    found.ssl_mode = Some("verify-full".to_owned());
                }
                "ssl-verify-server-cert"
                | "skip-ssl-verify-server-cert"
                | "disable-ssl-verify-server-cert" => {
                    found.ssl_mode = Some("require".to_owned());
                }
                "ssl" | "skip-ssl" | "disable-ssl" => found.ssl_mode = Some("disable".to_owned()),
                _ => {}
            }
        }
        found
    }
}

fn is_on(value: &str) -> bool {
    !["0", "off", "false"].contains(&value.to_ascii_lowercase().as_str())
}

/// Removes the pair of quotes around a value. Without quotes, removes a comment from ` #` on.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(quote) {
            if let Some((inside, _)) = rest.rsplit_once(quote) {
                return inside;
            }
        }
    }
    value.split(" #").next().unwrap_or(value).trim()
}

/// Decodes `\b`, `\t`, `\n`, `\r`, `\s` (a space), `\\` and escaped quotes, as `my_print_defaults` does
/// (`mysys/my_default.c`); any other backslash stays.
fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(char) = rest.next() {
        if char != '\\' {
            text.push(char);
            continue;
        }
        let escaped = rest.next();
        let meant = match escaped {
            Some('b') => '\u{8}',
            Some('t') => '\t',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('s') => ' ',
            Some(char @ ('\\' | '"' | '\'')) => char,
            other => {
                text.push('\\');
                text.extend(other);
                continue;
            }
        };
        text.push(meant);
    }
    text
}

/// Finds the password in PostgreSQL's `.pgpass`: `host:port:database:user:password`, where `*` matches
/// everything and `\` escapes `:` and `\`. The first line that matches counts.
pub fn pgpass(text: &str, host: &str, port: u16, database: &str, user: &str) -> Option<Secret> {
    let port = port.to_string();
    let wanted = [host, port.as_str(), database, user];
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let fields = pgpass_fields(line);
            let (password, keys) = fields.split_last()?;
            let matches = keys.len() == wanted.len()
                && keys
                    .iter()
                    .zip(wanted)
                    .all(|(key, wanted)| key == "*" || key == wanted);
            matches.then(|| Secret(password.clone()))
        })
}

fn pgpass_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        let literal = match char {
            '\\' => chars.next(),
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            char => Some(char),
        };
        if let Some(field) = fields.last_mut() {
            field.extend(literal);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_file_gives_what_the_client_would_use() {
        let text = "[mysqld]\nuser=mysql\n[client]\nuser = probe # who\npassword='a#b c'\n\
            # port=1\nport=3307\n[mysqldump]\nuser=other\n[client-mariadb]\nsocket=/run/s.sock\n";
        let found = MysqlDefaults::parse(text);
        assert_eq!(found.user.as_deref(), Some("probe"));
        assert_eq!(found.password, Some(Secret("a#b c".into())));
        assert_eq!(found.port, Some(3307));
        assert_eq!(found.socket, Some("/run/s.sock".into()));
        assert_eq!(found.host, None);
    }

    #[test]
    fn an_option_file_says_how_tls_is_spoken() {
        let mode = |lines: &str| MysqlDefaults::parse(&format!("[client]\n{lines}")).ssl_mode;
        for (lines, means) in [
            ("user=x", None),
            ("ssl-mode=VERIFY_CA", Some("VERIFY_CA")),
            ("ssl_mode = REQUIRED", Some("REQUIRED")),
            ("ssl", Some("verify-full")),
            ("ssl=0", Some("disable")),
            ("skip-ssl", Some("disable")),
            ("ssl-verify-server-cert", Some("verify-full")),
            ("ssl\nssl-verify-server-cert=OFF", Some("require")),
            ("disable-ssl-verify-server-cert", Some("require")),
        ] {
            assert_eq!(mode(lines).as_deref(), means, "{lines}");
        }
        let files = MysqlDefaults::parse("[client]\nssl-ca=/ca\nssl_cert=/c\nssl-key=/k\n");
        assert_eq!(files.ssl_ca, Some("/ca".into()));
        assert_eq!(files.ssl_cert, Some("/c".into()));
        assert_eq!(files.ssl_key, Some("/k".into()));
    }

    #[test]
    fn an_option_files_escapes_are_undone_as_the_servers_tools_do() {
        let text = r#"[client]
            password="a\\b\sc\td\qe"
            user=x\\y\"#;
        let found = MysqlDefaults::parse(text);
        assert_eq!(found.password, Some(Secret("a\\b c\td\\qe".into())));
        assert_eq!(found.user.as_deref(), Some("x\\y\\"));
    }

    #[test]
    fn the_first_line_of_pgpass_that_matches_counts() {
        let text =
            "# comment\nother:5432:*:probe:no\nlocalhost:*:*:probe:p\\:w\\\\:d\n*:*:*:*:last";
        let find = |host, user| pgpass(text, host, 5432, "shop", user).map(|secret| secret.0);
        assert_eq!(find("localhost", "probe").as_deref(), Some("p:w\\:d"));
        assert_eq!(find("elsewhere", "probe").as_deref(), Some("last"));
        assert_eq!(pgpass("a:b", "a", 1, "b", "c"), None);
    }

    #[test]
    fn a_password_in_an_address_is_refused() {
        for address in ["redis://:secret@host/", "user@host:80", "http://a:b@h/x"] {
            assert!(refuse_in_address(address, "").is_err(), "{address}");
        }
        for address in [
            "http://host/mail?to=a@b",
            "redis://host:6379/0",
            "/run/r.sock",
        ] {
            assert!(refuse_in_address(address, "").is_ok(), "{address}");
        }
    }

    #[test]
    fn a_secret_does_not_show() {
        assert!(!format!("{:?}", Secret("hush".into())).contains("hush"));
    }
}
