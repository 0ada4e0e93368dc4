//! PostgreSQL.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use justitia_probe::secret::Secret;
pub(crate) use justitia_probe::targets::postgres::Config;
use justitia_probe::targets::postgres::Postgres;
use justitia_probe::Target as _;
use tokio_postgres::NoTls;

use crate::start::{command, directory, port, run, Server};
use crate::{goes_stale_and_recovers, ready, survives_everything, until, TIMEOUT};

pub(crate) fn server() -> (Server, Config) {
    let dir = directory();
    let mut init = command("initdb");
    init.arg("-D").arg(dir.path().join("data")).args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "--no-sync",
        "--locale=C",
    ]);
    run(init);
    let port = port();
    let server = Server::start(dir, move |dir| {
        let mut server = command("postgres");
        server
            .arg("-D")
            .arg(dir.join("data"))
            .arg("-k")
            .arg(dir)
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
        if dir.join("tls.pem").exists() {
            let option = |name: &str, file| format!("{name}={}", dir.join(file).display());
            for option in [
                "ssl=on".to_owned(),
                option("ssl_cert_file", "tls.pem"),
                option("ssl_key_file", "tls.key"),
                option("ssl_ca_file", "ca.pem"),
            ] {
                server.args(["-c", &option]);
            }
        }
        server
    });
    let config = Config {
        host: "127.0.0.1".into(),
        port,
        user: "postgres".into(),
        password: None,
        tls: None,
        database: "postgres".into(),
        one_database: false,
        query: None,
        latency: true,
        parallel: 2.0,
        timeout: TIMEOUT,
    };
    (server, config)
}

/// Executes statements on a connection of their own, and holds it as long as told.
fn execute(config: &Config, statements: &[&str], hold: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut options = tokio_postgres::Config::new();
    options
        .host(&config.host)
        .port(config.port)
        .user("postgres")
        .dbname(&config.database);
    runtime.block_on(async {
        let (client, connection) = options.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        for statement in statements {
            client.batch_execute(statement).await.unwrap();
        }
        tokio::time::sleep(hold).await;
    });
}

fn now(config: &Config, statements: &[&str]) {
    execute(config, statements, Duration::ZERO);
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn postgres_counts_transactions_and_waiting_statements() {
    let (server, config) = server();
    let mut target = Postgres::new(config.clone());
    ready(&mut target);
    until(&mut target, |seen| seen.waiting == Some(0.0));
    now(
        &config,
        &["CREATE TABLE t (n int)", "INSERT INTO t VALUES (0)"],
    );

    let theirs = config.clone();
    let worker = thread::spawn(move || {
        let many: Vec<&str> = vec!["UPDATE t SET n = n + 1"; 2000];
        execute(&theirs, &many, Duration::from_secs(2));
    });
    until(&mut target, |seen| {
        seen.per_second.is_some_and(|rate| rate > 100.0)
    });
    worker.join().unwrap();

    let (first, second) = (config.clone(), config.clone());
    let holder = thread::spawn(move || {
        execute(
            &first,
            &["BEGIN", "UPDATE t SET n = 0"],
            Duration::from_secs(3),
        );
    });
    thread::sleep(Duration::from_millis(500));
    let blocked = thread::spawn(move || now(&second, &["UPDATE t SET n = 1"]));
    until(&mut target, |seen| seen.waiting == Some(1.0));
    holder.join().unwrap();
    blocked.join().unwrap();
    until(&mut target, |seen| seen.waiting == Some(0.0));

    let theirs = config.clone();
    let sleeper = thread::spawn(move || now(&theirs, &["SELECT pg_sleep(2)"]));
    // A running statement does not wait. Without the right, it is not known what waits.
    let busy = until(&mut target, |seen| seen.waiting.is_some());
    assert_eq!(busy.waiting, Some(0.0));
    now(&config, &["CREATE ROLE probe LOGIN"]);
    let poor = Config {
        user: "probe".into(),
        ..config.clone()
    };
    let mut poor = Postgres::new(poor);
    let seen = poor.measure().unwrap();
    assert_eq!(seen.waiting, None, "{seen:?}");
    assert!(seen.note.is_some_and(|note| note.contains("pg_monitor")));
    now(&config, &["GRANT pg_monitor TO probe"]);
    assert_eq!(poor.measure().unwrap().waiting, Some(0.0));
    sleeper.join().unwrap();

    let canary = Config {
        query: Some("SELECT pg_sleep(0.2)".into()),
        host: server.dir.path().display().to_string(),
        one_database: true,
        ..config.clone()
    };
    let seen = Postgres::new(canary).measure().unwrap();
    assert!(seen.latency_seconds.is_some_and(|latency| latency >= 0.2));
    let nobody = Config {
        user: "nobody_of_this_name".into(),
        password: Some(Secret("x".into())),
        ..config
    };
    let trouble = Postgres::new(nobody).measure().unwrap_err();
    assert!(trouble.remedy.contains("--user"), "{trouble:?}");
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn postgres_stopped_killed_and_started_again() {
    let (mut server, config) = server();
    survives_everything(&mut server, &mut Postgres::new(config.clone()));
    let open = Arc::new(move || Box::new(Postgres::new(config.clone())) as _);
    goes_stale_and_recovers(&mut server, open);
}
