//! nginx: a URL, its counters, its log.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use justitia_probe::targets::http::Config;
use justitia_probe::targets::http::Http;
use justitia_probe::targets::log::{self, Field, Log, Unit};
use justitia_probe::{Target as _, Tls};

use crate::start::{command, directory, port, Server, REOPEN_LOGS};
use crate::{goes_stale_and_recovers, ready, survives_everything, until, TIMEOUT};

fn configuration(dir: &Path, port: u16, tls: Option<&str>) -> String {
    let dir = dir.display();
    let (ssl, tls) = (if tls.is_some() { "ssl" } else { "" }, tls.unwrap_or(""));
    format!(
        "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log {dir}/error.log;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n\
           log_format timed '$remote_addr - $remote_user [$time_local] \"$request\" $status \
             $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $request_time';\n\
           access_log {dir}/access.log timed;\n\
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
           fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
           server {{\n\
             listen 127.0.0.1:{port} {ssl};\n\
             {tls}\n\
             location = / {{ return 200 well; }}\n\
             location = /down {{ return 503; }}\n\
             location = /slow.bin {{ root {dir}; limit_rate 4k; access_log {dir}/access.log timed; }}\n\
             location = /status {{ stub_status; access_log off; }}\n\
           }}\n\
         }}\n"
    )
}

/// Makes the server speak TLS from its next start on.
pub(crate) fn secure(server: &Server, config: &Config, clients: bool) {
    let dir = server.dir.path();
    let port = config.url.rsplit(':').next().unwrap().trim_end_matches('/');
    let tls = format!(
        "ssl_certificate {0}/tls.pem; ssl_certificate_key {0}/tls.key; \
         ssl_client_certificate {0}/ca.pem; ssl_verify_client {1};",
        dir.display(),
        if clients { "on" } else { "off" }
    );
    let text = configuration(dir, port.parse().unwrap(), Some(&tls));
    fs::write(dir.join("conf"), text).unwrap();
}

pub(crate) fn server() -> (Server, Config) {
    let (dir, port) = (directory(), port());
    let text = configuration(dir.path(), port, None);
    fs::write(dir.path().join("conf"), text).unwrap();
    fs::write(dir.path().join("slow.bin"), [b'x'; 8192]).unwrap();
    let server = Server::start(dir, |dir| {
        let mut server = command("nginx");
        server
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(dir.join("conf"))
            .arg("-e")
            .arg(dir.join("error.log"));
        server
    });
    let config = Config {
        url: format!("http://127.0.0.1:{port}/"),
        status_url: Some(format!("http://127.0.0.1:{port}/status")),
        tls: Tls::default(),
        parallel: 1.0,
        timeout: TIMEOUT,
    };
    (server, config)
}

fn get(url: String) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let config = Config {
            url,
            status_url: None,
            tls: Tls::default(),
            parallel: 1.0,
            timeout: Duration::from_secs(20),
        };
        // A 503 is an answer, too.
        let _ = Http::new(config).measure().unwrap();
    })
}

/// Waits for something, for at most half a minute.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "not yet: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until this many lines of a log contain the request: nginx writes them after its answers.
fn logged(path: &Path, request: &str, lines: usize) {
    wait_until(request, || {
        let log = fs::read_to_string(path).unwrap_or_default();
        log.lines().filter(|line| line.contains(request)).count() >= lines
    });
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn nginx_answers_counts_and_logs() {
    let (server, config) = server();
    let mut target = Http::new(config.clone());
    ready(&mut target);
    let mut log = Log::new(log::Config {
        path: server.path("access.log"),
        field: Field::Last,
        unit: Unit::Seconds,
        percentile: 100.0,
    });
    assert_eq!(log.measure().unwrap().latency_seconds, None);
    let idle = until(&mut target, |seen| seen.per_second.is_some());
    assert_eq!(idle.waiting, Some(0.0));
    assert!(log.measure().unwrap().latency_seconds.is_some());

    let slow: Vec<_> = (0..3)
        .map(|_| get(format!("{}slow.bin", config.url)))
        .collect();
    until(&mut target, |seen| seen.waiting == Some(2.0));
    for thread in slow {
        thread.join().unwrap();
    }
    let (current, old) = (server.path("access.log"), server.path("access.log.1"));
    logged(&current, "/slow.bin ", 3);
    let seen = log.measure().unwrap();
    assert!(
        seen.latency_seconds
            .is_some_and(|latency| (0.5..20.0).contains(&latency)),
        "{seen:?}"
    );

    fs::rename(&current, &old).unwrap();
    get(format!("{}?renamed", config.url)).join().unwrap();
    logged(&old, "?renamed ", 1);
    server.signal(REOPEN_LOGS);
    wait_until("a new log", || current.exists());
    get(format!("{}down", config.url)).join().unwrap();
    logged(&current, "/down ", 1);
    let seen = log.measure().unwrap();
    assert_eq!(seen.note.as_deref(), Some("1 of 2 failed"), "{seen:?}");
    assert_eq!(seen.latency_seconds, Some(f64::INFINITY));

    let wrong = Config {
        status_url: Some(config.url.clone()),
        ..config
    };
    let trouble = Http::new(wrong).measure().unwrap_err();
    assert!(trouble.cause.contains("stub_status"), "{trouble:?}");
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn nginx_stopped_killed_and_started_again() {
    let (mut server, config) = server();
    survives_everything(&mut server, &mut Http::new(config.clone()));
    let open = Arc::new(move || Box::new(Http::new(config.clone())) as _);
    goes_stale_and_recovers(&mut server, open);
}
