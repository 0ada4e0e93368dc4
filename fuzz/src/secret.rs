//! Passwords in the configuration files of database clients.

use justitia_probe::secret::{pgpass, MysqlDefaults, Secret};

/// The first byte chooses `.pgpass` or an option file, and whether the bytes are the file or the values to
/// write into one.
pub fn secret(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    match how % 4 {
        0 => any_pgpass(&text),
        1 => written_pgpass(&text),
        2 => any_options(&text),
        _ => written_option(&text),
    }
}

/// Any text as `.pgpass`. Nothing panics, lines count independently and the first match wins, and a password
/// is part of its line.
fn any_pgpass(text: &str) {
    for user in ["probe", "*", ""] {
        let find = |text: &str| pgpass(text, "localhost", 5432, "shop", user);
        let found = text.lines().find_map(|line| Some((line, find(line)?)));
        assert_eq!(find(text), found.clone().map(|(_, password)| password));
        if let Some((line, Secret(password))) = found {
            assert!(password.len() <= line.len() && !line.starts_with('#'));
        }
    }
}

/// A line written by the rules is found, whatever its fields contain.
fn written_pgpass(text: &str) {
    let mut words = text.lines();
    let mut word = || words.next().unwrap_or_default();
    let (host, database, user, password) = (word(), word(), word(), word());
    let escaped = |word: &str| -> String {
        let escape = |char| match char {
            ':' | '\\' | '#' => format!("\\{char}"),
            char => char.to_string(),
        };
        word.chars().map(escape).collect()
    };
    let line = [host, "5432", database, user, password]
        .map(escaped)
        .join(":");
    let find = |port| pgpass(&line, host, port, database, user);
    assert_eq!(find(5432), Some(Secret(password.into())), "{line}");
    assert_eq!(find(5433), None, "{line}");
}

/// Any text as an option file. Nothing panics, each value found is part of a line, and nothing is found in
/// sections of other programs.
fn any_options(text: &str) {
    let longest = text.lines().map(str::len).max().unwrap_or(0);
    let found = MysqlDefaults::parse(text);
    let MysqlDefaults {
        user,
        password,
        host,
        port: _,
        socket,
        // MariaDB's switches are shorter than the modes they stand for.
        ssl_mode: _,
        ssl_ca,
        ssl_cert,
        ssl_key,
    } = found;
    let password = password.map(|Secret(password)| password);
    let paths = [socket, ssl_ca, ssl_cert, ssl_key].map(|path| Some(path?.display().to_string()));
    let texts = [user, password, host];
    for value in texts.into_iter().chain(paths).flatten() {
        assert!(value.len() <= longest);
    }
    let others = text.replace("[client", "[mysqld");
    assert_eq!(MysqlDefaults::parse(&others), MysqlDefaults::default());
}

/// A password in quotes is found, whatever it contains, and the last one wins.
fn written_option(text: &str) {
    let password = text.lines().next().unwrap_or_default();
    let escaped = password.replace('\\', "\\\\");
    let file = format!("[client]\npassword=x\npassword=\"{escaped}\"\n[mysqld]\npassword=y\n");
    let found = MysqlDefaults::parse(&file);
    assert_eq!(found.password, Some(Secret(password.into())), "{file}");
}
