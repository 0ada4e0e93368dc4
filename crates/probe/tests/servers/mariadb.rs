//! MariaDB.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use justitia_probe::secret::Secret;
pub(crate) use justitia_probe::targets::mysql::Config;
use justitia_probe::targets::mysql::Mysql;
use justitia_probe::Target as _;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use tokio::runtime::{Builder, Runtime};

use crate::start::{command, directory, port, run, Server};
use crate::{goes_stale_and_recovers, ready, survives_everything, until, LIMIT, TIMEOUT};

/// A server with a temporary directory of its own: MariaDB at its start deletes the temporary
/// tables of every other server that shares it.
pub(crate) fn server(schema: bool) -> (Server, Config) {
    let dir = directory();
    let data = dir.path().join("data");
    let mut install = command("mariadb-install-db");
    install
        .env("TMPDIR", dir.path())
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(install);
    let port = port();
    let server = Server::start(dir, move |dir| {
        let mut server = command("mariadbd");
        server
            .env("TMPDIR", dir)
            .arg("--no-defaults")
            .arg(format!("--datadir={}", dir.join("data").display()))
            .arg(format!("--socket={}", dir.join("sock").display()))
            .arg(format!("--pid-file={}", dir.join("pid").display()))
            .arg(format!("--port={port}"))
            .arg(format!("--performance-schema={}", u8::from(schema)))
            .args([
                "--bind-address=127.0.0.1",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=16M",
            ]);
        if dir.join("tls.pem").exists() {
            let option = |name: &str, file| format!("--{name}={}", dir.join(file).display());
            server.args([
                option("ssl-cert", "tls.pem"),
                option("ssl-key", "tls.key"),
                option("ssl-ca", "ca.pem"),
            ]);
        }
        server
    });
    let config = Config {
        host: "127.0.0.1".into(),
        port,
        socket: None,
        user: "root".into(),
        password: None,
        tls: None,
        database: None,
        count: "Com_commit".into(),
        query: None,
        latency: true,
        parallel: 2.0,
        timeout: TIMEOUT,
    };
    (server, config)
}

/// A connection of the test's own.
pub(crate) struct Client {
    connection: Conn,
    runtime: Runtime,
}

impl Client {
    pub(crate) fn query_drop(&mut self, sql: &str) {
        let work = self.connection.query_drop(sql);
        self.runtime.block_on(work).unwrap();
    }
}

pub(crate) fn connect(config: &Config) -> Client {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(config.port)
        .prefer_socket(false)
        .user(Some(config.user.clone()));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let connection = runtime.block_on(Conn::new(options)).unwrap();
    Client {
        connection,
        runtime,
    }
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn mariadb_counts_transactions_and_waiting_statements() {
    let (server, config) = server(true);
    let mut target = Mysql::new(config.clone());
    ready(&mut target);
    let idle = until(&mut target, |seen| seen.per_second == Some(0.0));
    assert_eq!(idle.waiting, Some(0.0));
    assert!(idle.latency_seconds.is_some_and(|latency| latency < 1.0));

    let mut owner = connect(&config);
    owner.query_drop("CREATE DATABASE shop");
    owner.query_drop("CREATE TABLE shop.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB");
    owner.query_drop("INSERT INTO shop.t VALUES (1, 0)");

    let go_on = Arc::new(AtomicBool::new(true));
    let (working, theirs) = (Arc::clone(&go_on), config.clone());
    let worker = thread::spawn(move || {
        let mut connection = connect(&theirs);
        let mut done = 0u32;
        while working.load(Ordering::Relaxed) {
            for statement in ["BEGIN", "UPDATE shop.t SET n = n + 1", "COMMIT"] {
                connection.query_drop(statement);
            }
            done += 1;
            thread::sleep(Duration::from_millis(10));
        }
        done
    });
    target.measure().unwrap();
    thread::sleep(Duration::from_secs(1));
    let busy = target.measure().unwrap();
    go_on.store(false, Ordering::Relaxed);
    assert!(worker.join().unwrap() > 0);
    let rate = busy.per_second.unwrap();
    assert!((5.0..101.0).contains(&rate), "{busy:?}");
    assert!(busy.latency_seconds.is_some_and(|latency| latency > 0.0));

    // One transaction holds the row, two more want it.
    owner.query_drop("BEGIN");
    owner.query_drop("UPDATE shop.t SET n = 0");
    let blocked: Vec<_> = (0..2)
        .map(|_| {
            let theirs = config.clone();
            thread::spawn(move || {
                connect(&theirs).query_drop("UPDATE shop.t SET n = 1");
            })
        })
        .collect();
    until(&mut target, |seen| seen.waiting == Some(2.0));
    owner.query_drop("COMMIT");
    for thread in blocked {
        thread.join().unwrap();
    }
    until(&mut target, |seen| seen.waiting == Some(0.0));

    let canary = Config {
        query: Some("SELECT SLEEP(0.2)".into()),
        socket: Some(server.path("sock")),
        ..config.clone()
    };
    let seen = Mysql::new(canary).measure().unwrap();
    assert!(seen.latency_seconds.is_some_and(|latency| latency >= 0.2));

    let wrong = Config {
        password: Some(Secret("wrong".into())),
        ..config.clone()
    };
    let trouble = Mysql::new(wrong).measure().unwrap_err();
    assert!(trouble.remedy.contains("--password-file"), "{trouble:?}");
    let nothing = Config {
        count: "No_such_counter".into(),
        ..config.clone()
    };
    let trouble = Mysql::new(nothing).measure().unwrap_err();
    assert!(trouble.cause.contains("No_such_counter"), "{trouble:?}");
    let nowhere = Config {
        socket: Some(PathBuf::from("/nonexistent/sock")),
        ..config
    };
    let trouble = Mysql::new(nowhere).measure().unwrap_err();
    assert!(trouble.remedy.contains("--socket"), "{trouble:?}");
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn a_user_without_the_right_to_read_the_schema_gets_the_latency_of_a_query_that_reads_nothing() {
    let (_server, config) = server(true);
    let mut target = Mysql::new(config.clone());
    ready(&mut target);
    let mut owner = connect(&config);
    owner.query_drop("CREATE USER probe@'127.0.0.1'");
    let user = "probe".into();
    let config = Config { user, ..config };
    let mut target = Mysql::new(config.clone());
    let seen = target.measure().unwrap();
    assert!(seen.latency_seconds.is_some() && seen.note.is_some());
    owner.query_drop("GRANT SELECT ON performance_schema.* TO probe@'127.0.0.1'");
    let mut target = Mysql::new(config);
    until(&mut target, |seen| {
        seen.latency_seconds.is_some() && seen.note.is_none()
    });
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn mariadb_stopped_killed_and_started_again() {
    let (mut server, config) = server(false);
    let mut target = Mysql::new(config.clone());
    survives_everything(&mut server, &mut target);
    // The performance schema is off: the latency is that of SELECT 1.
    let seen = target.measure().unwrap();
    assert!(seen
        .latency_seconds
        .is_some_and(|latency| latency < LIMIT.as_secs_f64()));
    let open = Arc::new(move || Box::new(Mysql::new(config.clone())) as _);
    goes_stale_and_recovers(&mut server, open);
}
