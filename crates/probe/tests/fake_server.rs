//! Servers that hang, talk nonsense, drip or hang up: every client comes to an end by itself, with
//! an error and not with a measurement.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use justitia_probe::targets::{http, mysql, postgres, prometheus, redis};
use justitia_probe::Target;

const TIMEOUT: Duration = Duration::from_millis(300);
/// A client may take somewhat longer than the probe's timeout, but not much.
const LIMIT: Duration = Duration::from_secs(4);

/// Starts a server that treats each connection this way; returns its port.
fn server(treat: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let treat = treat.clone();
            thread::spawn(move || treat(stream));
        }
    });
    port
}

fn hangs(mut stream: TcpStream) {
    // Reads everything, answers nothing.
    let mut block = [0; 1024];
    while stream.read(&mut block).is_ok_and(|read| read > 0) {}
}

fn hangs_up(stream: TcpStream) {
    drop(stream);
}

fn babbles(mut stream: TcpStream) {
    let text: Vec<u8> = (0..4096u32).map(|i| (i * 7919 % 251) as u8).collect();
    let _ = stream.write_all(&text);
}

fn drips(mut stream: TcpStream) {
    while stream.write_all(b"H").is_ok() {
        thread::sleep(Duration::from_millis(500));
    }
}

fn targets(port: u16) -> Vec<(&'static str, Box<dyn Target>)> {
    let host = || "127.0.0.1".to_owned();
    let url = format!("http://127.0.0.1:{port}");
    vec![
        (
            "mysql",
            Box::new(mysql::Mysql::new(mysql::Config {
                host: host(),
                port,
                socket: None,
                user: "probe".into(),
                password: None,
                tls: None,
                database: None,
                count: "Com_commit".into(),
                query: None,
                latency: true,
                parallel: 1.0,
                timeout: TIMEOUT,
            })),
        ),
        (
            "postgres",
            Box::new(postgres::Postgres::new(postgres::Config {
                host: host(),
                port,
                user: "probe".into(),
                password: None,
                tls: None,
                database: "postgres".into(),
                one_database: false,
                query: None,
                latency: true,
                parallel: 1.0,
                timeout: TIMEOUT,
            })),
        ),
        (
            "redis",
            Box::new(redis::Redis::new(redis::Config {
                host: host(),
                port,
                user: None,
                password: Some(justitia_probe::secret::Secret("p".into())),
                tls: None,
                blocked: false,
                timeout: TIMEOUT,
            })),
        ),
        ("http", Box::new(http_at(url.clone()))),
        ("prometheus", Box::new(prometheus_at(url))),
    ]
}

fn http_at(url: String) -> http::Http {
    http::Http::new(http_config(url))
}

fn http_config(url: String) -> http::Config {
    http::Config {
        url,
        status_url: None,
        tls: justitia_probe::Tls::default(),
        parallel: 1.0,
        timeout: TIMEOUT,
    }
}

fn prometheus_at(url: String) -> prometheus::Prometheus {
    prometheus::Prometheus::new(prometheus::Config {
        url,
        tls: justitia_probe::Tls::default(),
        query: "up".into(),
        timeout: TIMEOUT,
    })
}

/// Each target fails against this port within the limit, twice: the second time it connects anew.
fn all_fail(port: u16) {
    let threads: Vec<_> = targets(port)
        .into_iter()
        .map(|(name, mut target)| {
            thread::spawn(move || {
                for _ in 0..2 {
                    let start = Instant::now();
                    let trouble = target.measure().expect_err(name);
                    assert!(start.elapsed() < LIMIT, "{name}: {:?}", start.elapsed());
                    assert!(!trouble.cause.is_empty() && !trouble.remedy.is_empty());
                    assert!(!trouble.cause.contains('\n'), "{name}: {trouble}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_server_that_hangs_is_given_up_by_the_client_itself() {
    all_fail(server(hangs));
}

#[test]
fn a_server_that_hangs_up_is_trouble() {
    all_fail(server(hangs_up));
}

#[test]
fn a_server_that_talks_nonsense_is_trouble() {
    all_fail(server(babbles));
}

#[test]
fn a_server_that_drips_is_given_up_by_clients_with_one_limit_for_everything() {
    let port = server(drips);
    for (name, mut target) in targets(port) {
        // The other clients limit only each read; the sampler gives them up.
        if ["postgres", "http", "prometheus"].contains(&name) {
            let start = Instant::now();
            target.measure().expect_err(name);
            assert!(start.elapsed() < LIMIT, "{name}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn a_server_that_asks_for_a_password_is_trouble_whose_remedy_names_one() {
    let port = server(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        // AuthenticationCleartextPassword.
        let _ = stream.write_all(b"R\0\0\0\x08\0\0\0\x03");
        hangs(stream);
    });
    let mut targets = targets(port);
    let (_, postgres) = targets.iter_mut().find(|of| of.0 == "postgres").unwrap();
    let trouble = postgres.measure().unwrap_err();
    assert!(trouble.cause.contains("asks for a password"), "{trouble}");
    for words in ["--password-file", "PGPASSWORD"] {
        assert!(trouble.remedy.contains(words), "{}", trouble.remedy);
    }
}

#[test]
fn a_port_nobody_listens_on_is_trouble_at_once() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    all_fail(port);
}

/// Answers each GET with this status and body.
fn web(answer: &'static str) -> u16 {
    server(move |mut stream| {
        let mut block = [0; 4096];
        while stream.read(&mut block).is_ok_and(|read| read > 0) {
            if stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    })
}

fn get(port: u16) -> Result<justitia_probe::Measurement, justitia_probe::Trouble> {
    http_at(format!("http://127.0.0.1:{port}/")).measure()
}

#[test]
fn an_error_of_the_server_is_a_failed_request_and_one_of_ours_is_trouble() {
    let down = web("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(get(down).unwrap().latency_seconds, Some(f64::INFINITY));
    let missing = web("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert!(get(missing).unwrap_err().cause.contains("404"));
    for busy in ["408 Request Timeout", "429 Too Many Requests"] {
        let text = format!("HTTP/1.1 {busy}\r\nContent-Length: 0\r\n\r\n");
        let seen = get(web(text.leak())).unwrap();
        assert_eq!(seen.latency_seconds, Some(f64::INFINITY), "{busy}");
    }
    let fine = web("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert!(get(fine).unwrap().latency_seconds.unwrap() < 1.0);
}

#[test]
fn one_url_may_be_https_and_the_other_not() {
    let fine = web("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut target = http::Http::new(http::Config {
        status_url: Some(format!("https://127.0.0.1:{}/", server(babbles))),
        tls: justitia_probe::Tls {
            check: justitia_probe::tls::Check::Nothing,
            ..justitia_probe::Tls::default()
        },
        ..http_config(format!("http://127.0.0.1:{fine}/"))
    });
    let trouble = target.measure().unwrap_err();
    assert!(trouble.cause.starts_with("https://"), "{trouble}");
}

#[test]
fn a_redirect_is_an_answer_and_is_not_followed() {
    let port =
        web("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n");
    assert!(get(port)
        .unwrap()
        .latency_seconds
        .is_some_and(f64::is_finite));
}

#[test]
fn a_prometheus_answer_becomes_the_value() {
    let port = web(
        "HTTP/1.1 200 OK\r\nContent-Length: 86\r\n\r\n\
         {\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"value\":[1,\"0.5\"]}]}}    ",
    );
    let mut target = prometheus_at(format!("http://127.0.0.1:{port}/"));
    assert_eq!(target.measure().unwrap().value, Some(0.5));
}

#[test]
fn a_prometheus_answer_of_nan_is_trouble_until_there_was_a_number_and_idle_from_then_on() {
    let asked = Arc::new(AtomicUsize::new(0));
    let port = server(move |mut stream| {
        let mut block = [0; 4096];
        while stream.read(&mut block).is_ok_and(|read| read > 0) {
            let number = ["NaN", "0.5", "NaN"][asked.fetch_add(1, Ordering::SeqCst)];
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"scalar","result":[1,"{number}"]}}}}"#
            );
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    let mut target = prometheus_at(format!("http://127.0.0.1:{port}/"));
    let trouble = target.measure().unwrap_err();
    assert!(trouble.cause.contains("NaN: no data"), "{trouble}");
    let mut seen = || {
        let seen = target.measure().unwrap();
        (seen.value, seen.idle)
    };
    assert_eq!((seen(), seen()), ((Some(0.5), false), (None, true)));
}
