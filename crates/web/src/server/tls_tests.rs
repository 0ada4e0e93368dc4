//! Tests the server with TLS: it has the same bounds, which include the handshake.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use justitia_report::example;
use justitia_report::feed::Tls;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::tests::connect;
use super::*;
use crate::tests::{certificate, told};
use crate::wire::configuration;

fn server(groups: usize, tls: &Tls) -> Server {
    let latest = Arc::new(Latest::new(told(&example::tick(1, groups))));
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    Server::start(listener, configuration(tls).ok(), latest).unwrap()
}

/// A client that trusts this certificate and no other.
fn client(server: &Server, tls: &Tls) -> StreamOwned<ClientConnection, TcpStream> {
    let Tls::Pem { certificate, .. } = tls else {
        panic!("no certificate");
    };
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(tls, connect(server))
}

fn get(server: &Server, tls: &Tls, path: &str) -> std::io::Result<String> {
    let mut stream = client(server, tls);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: metrics.example\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn an_answer_arrives_whole_with_the_end_of_tls() {
    let tls = certificate();
    let server = server(1000, &tls);
    // Without TLS's `close_notify` the client's read would fail.
    let metrics = get(&server, &tls, "/metrics").unwrap();
    assert!(metrics.starts_with("HTTP/1.1 200 OK") && metrics.len() > 1 << 20);
    assert!(metrics.ends_with('\n'));
    assert!(get(&server, &tls, "/api/status").unwrap().ends_with('}'));
}

#[test]
fn a_request_without_tls_is_refused_and_pointed_to_https() {
    let tls = certificate();
    let server = server(1, &tls);
    let mut stream = connect(&server);
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert!(
        text.contains("https://") && !text.contains("justitia_"),
        "{text}"
    );
}

#[test]
fn a_client_that_stops_in_the_handshake_blocks_nobody() {
    let tls = certificate();
    let server = server(1, &tls);
    // A client for each place, which sends only the head of a record.
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(&[22, 3, 1, 2, 0]).unwrap();
            stream
        })
        .collect();
    assert!(get(&server, &tls, "/healthz").unwrap().contains(" 200 OK"));
    for stream in &mut silent {
        // Closed, or reset with unread input, long before the client's own timeout.
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}

#[test]
fn garbage_is_the_end_of_one_client_only() {
    let tls = certificate();
    let server = server(1, &tls);
    for garbage in [&[22, 3, 1, 0, 5, 1, 2, 3, 4, 5][..], &[22; 16_000]] {
        let mut stream = connect(&server);
        let _ = stream.write_all(garbage);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    assert!(get(&server, &tls, "/").unwrap().contains(" 200 OK"));
}

#[test]
fn a_renewed_certificate_is_for_the_connections_after_it() {
    let (old, new) = (certificate(), certificate());
    let server = server(1, &old);
    let mut early = client(&server, &old);
    early.write_all(b"GET / HT").unwrap();
    server.renew(configuration(&new).unwrap());
    assert!(get(&server, &new, "/").unwrap().contains(" 200 OK"));
    assert!(get(&server, &old, "/").is_err());
    early
        .write_all(b"TP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    early.read_to_string(&mut text).unwrap();
    assert!(text.contains(" 200 OK"), "{text}");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (
        Tls::Pem {
            certificate: one, ..
        },
        Tls::Pem { key, .. },
    ) = (certificate(), certificate())
    else {
        panic!("no certificate");
    };
    for (certificate, key, what) in [
        (one.clone(), key, "do not match"),
        (one, String::new(), "no key"),
        (String::new(), String::new(), "no certificate"),
    ] {
        let refused = configuration(&Tls::Pem { certificate, key }).unwrap_err();
        assert!(refused.contains(what), "{refused}");
    }
}
