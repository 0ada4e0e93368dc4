//! Redis.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use justitia_probe::secret::Secret;
pub(crate) use justitia_probe::targets::redis::Config;
use justitia_probe::targets::redis::Redis;
use justitia_probe::Target as _;

use crate::start::{command, directory, port, Server};
use crate::{goes_stale_and_recovers, ready, survives_everything, until, TIMEOUT};

pub(crate) fn server(options: &'static [&'static str]) -> (Server, Config) {
    let port = port();
    let server = Server::start(directory(), move |dir| {
        let mut server = command("redis-server");
        let secure = dir.join("tls.pem").exists();
        let plain = if secure { "0" } else { &*port.to_string() };
        if secure {
            server.args(["--tls-port", &port.to_string()]);
            let files = [
                ("cert", "tls.pem"),
                ("key", "tls.key"),
                ("ca-cert", "ca.pem"),
            ];
            for (name, file) in files {
                server.arg(format!("--tls-{name}-file")).arg(dir.join(file));
            }
            let clients = dir.join("clients").exists();
            let clients = if clients { "yes" } else { "no" };
            server.args(["--tls-auth-clients", clients]);
        }
        server
            .args(["--port", plain, "--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(dir)
            .args(["--save", "", "--enable-debug-command", "yes"])
            .args(options);
        server
    });
    let config = Config {
        host: "127.0.0.1".into(),
        port,
        user: None,
        password: None,
        tls: None,
        blocked: true,
        timeout: TIMEOUT,
    };
    (server, config)
}

fn connect(port: u16) -> redis::Connection {
    let address = format!("redis://127.0.0.1:{port}/");
    redis::Client::open(address)
        .unwrap()
        .get_connection()
        .unwrap()
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn redis_counts_commands_and_a_ping_waits_as_every_command_does() {
    let (_server, config) = server(&[]);
    let mut target = Redis::new(config.clone());
    ready(&mut target);
    let idle = until(&mut target, |seen| seen.per_second.is_some());
    assert_eq!(idle.waiting, Some(0.0));
    assert!(idle.latency_seconds.is_some_and(|latency| latency < 0.2));

    let mut client = connect(config.port);
    target.measure().unwrap();
    for _ in 0..1000 {
        redis::cmd("INCR")
            .arg("n")
            .query::<u64>(&mut client)
            .unwrap();
    }
    let busy = target.measure().unwrap();
    assert!(busy.per_second.is_some_and(|rate| rate > 100.0), "{busy:?}");

    let port = config.port;
    let blocked = thread::spawn(move || {
        let mut client = connect(port);
        let mut pop = redis::cmd("BLPOP");
        pop.arg("queue")
            .arg(0)
            .query::<Vec<String>>(&mut client)
            .unwrap()
    });
    until(&mut target, |seen| seen.waiting == Some(1.0));
    redis::cmd("RPUSH")
        .arg("queue")
        .arg("x")
        .query::<u64>(&mut client)
        .unwrap();
    blocked.join().unwrap();

    let sleeper = thread::spawn(move || {
        let mut client = connect(port);
        let mut sleep = redis::cmd("DEBUG");
        sleep
            .arg("SLEEP")
            .arg(0.6)
            .query::<String>(&mut client)
            .unwrap()
    });
    thread::sleep(Duration::from_millis(200));
    let slow = target.measure().unwrap();
    assert!(
        slow.latency_seconds.is_some_and(|latency| latency > 0.2),
        "{slow:?}"
    );
    sleeper.join().unwrap();
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn redis_wants_the_password_that_it_was_given() {
    let (_server, config) = server(&["--requirepass", "right"]);
    let with = |password: Option<&str>| {
        Redis::new(Config {
            password: password.map(|text| Secret(text.into())),
            ..config.clone()
        })
    };
    ready(&mut with(Some("right")));
    for wrong in [None, Some("wrong")] {
        let trouble = with(wrong).measure().unwrap_err();
        assert!(trouble.remedy.contains("--password-file"), "{trouble:?}");
    }
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn redis_stopped_killed_and_started_again() {
    let (mut server, config) = server(&[]);
    survives_everything(&mut server, &mut Redis::new(config.clone()));
    let open = Arc::new(move || Box::new(Redis::new(config.clone())) as _);
    goes_stale_and_recovers(&mut server, open);
}
