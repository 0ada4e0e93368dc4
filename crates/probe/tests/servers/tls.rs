//! TLS to real servers: what is checked, and one line for each thing that is wrong.

use std::fs;

use justitia_probe::secret::Secret;
use justitia_probe::targets::http::Http;
use justitia_probe::targets::mysql::Mysql;
use justitia_probe::targets::postgres::Postgres;
use justitia_probe::targets::redis::Redis;
use justitia_probe::tls::{Check, Tls};
use justitia_probe::{Measurement, Target, Trouble};

use crate::certificates::Authority;
use crate::start::Server;
use crate::{mariadb, nginx, postgres, ready, redis};

/// Makes a target at this host with these TLS settings.
type Make<'a> = &'a dyn Fn(&str, Option<Tls>) -> Box<dyn Target>;

const HOST: &str = "127.0.0.1";

fn measured(make: Make<'_>, host: &str, tls: &Tls) -> Result<Measurement, Trouble> {
    make(host, Some(tls.clone())).measure()
}

fn note(seen: Result<Measurement, Trouble>) -> String {
    seen.unwrap().note.unwrap_or_default()
}

#[track_caller]
fn refused(seen: Result<Measurement, Trouble>, cause: &str, remedy: &str) {
    let trouble = seen.expect_err(cause);
    assert!(trouble.cause.contains(cause), "{trouble:?}");
    assert!(trouble.remedy.contains(remedy), "{trouble:?}");
}

/// Restarts the server with another certificate, or after a change of what it reads at its start.
fn starts_again(server: &mut Server, make: Make<'_>, tls: &Tls) {
    server.kill();
    server.start_again();
    ready(&mut *make(HOST, Some(tls.clone())));
}

/// The properties of every kind. The server speaks no TLS at first. At the end it has a certificate for
/// 127.0.0.1 that the authority signed.
fn holds(server: &mut Server, ours: &Authority, make: Make<'_>, before: impl Fn(&Server)) {
    let checked = Tls {
        ca: Some(ours.file()),
        ..Tls::default()
    };
    let nothing = Tls {
        check: Check::Nothing,
        ..Tls::default()
    };
    ready(&mut *make(HOST, None));
    refused(
        measured(make, HOST, &checked),
        "does not speak TLS",
        "enable TLS",
    );

    ours.equip(server.dir.path(), true);
    before(server);
    starts_again(server, make, &nothing);
    refused(measured(make, HOST, &checked), "expired", "renew it");
    assert!(note(measured(make, HOST, &nothing)).contains("certificate is not checked"));

    ours.equip(server.dir.path(), false);
    starts_again(server, make, &checked);
    assert!(!note(measured(make, HOST, &checked)).contains("not checked"));
    let named = measured(make, "localhost", &checked);
    refused(
        named,
        "not for localhost but for 127.0.0.1",
        "certificate for this name",
    );
    let stranger = Authority::new();
    let other = Tls {
        ca: Some(stranger.file()),
        ..Tls::default()
    };
    // The certificate is refused under another authority, and under those that the system trusts.
    for others in [&other, &Tls::default()] {
        refused(
            measured(make, HOST, others),
            "no trusted authority",
            "--tls-ca",
        );
    }
    let absent = Tls {
        ca: Some("/nonexistent/ca.pem".into()),
        ..Tls::default()
    };
    refused(
        measured(make, HOST, &absent),
        "/nonexistent/ca.pem",
        "check the path",
    );
}

/// The properties of kinds whose clients can skip the check of the name.
fn name_or_chain(ours: &Authority, make: Make<'_>) {
    let chain = |authority: &Authority| Tls {
        check: Check::Chain,
        ca: Some(authority.file()),
        ..Tls::default()
    };
    let seen = measured(make, "localhost", &chain(ours));
    assert!(note(seen).contains("name in the server's certificate is not checked"));
    let stranger = Authority::new();
    let seen = measured(make, "localhost", &chain(&stranger));
    refused(seen, "no trusted authority", "--tls-ca");
}

fn with_certificate(ours: &Authority) -> Tls {
    Tls {
        ca: Some(ours.file()),
        identity: Some(ours.client()),
        ..Tls::default()
    }
}

fn without_certificate(ours: &Authority) -> Tls {
    Tls {
        identity: None,
        ..with_certificate(ours)
    }
}

/// Settings with a certificate of an authority that the server does not know.
fn with_strange_certificate(ours: &Authority, strange: &Authority) -> Tls {
    Tls {
        identity: Some(strange.client()),
        ..with_certificate(ours)
    }
}

/// TLS if the server has it.
fn preferred() -> Tls {
    Tls {
        check: Check::Nothing,
        optional: true,
        ..Tls::default()
    }
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn postgres_is_trusted_by_its_certificate() {
    let (mut server, config) = postgres::server();
    let ours = Authority::new();
    let make = |host: &str, tls: Option<Tls>| -> Box<dyn Target> {
        Box::new(Postgres::new(postgres::Config {
            host: host.into(),
            tls,
            ..config.clone()
        }))
    };
    ready(&mut *make(HOST, Some(preferred())));
    holds(&mut server, &ours, &make, |_| {});
    name_or_chain(&ours, &make);
    let secure = postgres::Config {
        query: Some(
            "SELECT 1 / (SELECT ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid())".into(),
        ),
        tls: Some(preferred()),
        ..config.clone()
    };
    ready(&mut Postgres::new(secure));

    let rule = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n";
    fs::write(server.path("data/pg_hba.conf"), rule).unwrap();
    starts_again(&mut server, &make, &with_certificate(&ours));
    let without = measured(&make, HOST, &without_certificate(&ours));
    refused(without, "valid client certificate", "--tls-cert");
    refused(make(HOST, None).measure(), "no encryption", "--tls-cert");
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn mariadb_is_trusted_by_its_certificate() {
    let (mut server, config) = mariadb::server(false);
    let ours = Authority::new();
    let make = |host: &str, tls: Option<Tls>| -> Box<dyn Target> {
        Box::new(Mysql::new(mariadb::Config {
            host: host.into(),
            tls,
            ..config.clone()
        }))
    };
    ready(&mut *make(HOST, Some(preferred())));
    holds(&mut server, &ours, &make, |_| {});
    name_or_chain(&ours, &make);

    let mut owner = mariadb::connect(&config);
    owner.query_drop("CREATE USER known@'%' REQUIRE X509");
    let known = |tls: Option<Tls>| {
        let config = mariadb::Config {
            user: "known".into(),
            tls,
            ..config.clone()
        };
        Mysql::new(config).measure()
    };
    known(Some(with_certificate(&ours))).unwrap();
    for without in [Some(without_certificate(&ours)), Some(preferred()), None] {
        refused(known(without), "Access denied", "REQUIRE");
    }
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn redis_is_trusted_by_its_certificate() {
    let (mut server, config) = redis::server(&["--requirepass", "right"]);
    let ours = Authority::new();
    let make = |host: &str, tls: Option<Tls>| -> Box<dyn Target> {
        Box::new(Redis::new(redis::Config {
            host: host.into(),
            password: Some(Secret("right".into())),
            tls,
            ..config.clone()
        }))
    };
    holds(&mut server, &ours, &make, |_| {});

    fs::write(server.path("clients"), "").unwrap();
    starts_again(&mut server, &make, &with_certificate(&ours));
    let without = measured(&make, HOST, &without_certificate(&ours));
    refused(without, "requires a client certificate", "--tls-cert");
    let strange = Authority::new();
    let seen = measured(&make, HOST, &with_strange_certificate(&ours, &strange));
    refused(seen, "rejects the client certificate", "--tls-cert");
}

#[test]
#[ignore = "needs the servers of scripts/setup --test; make test runs it"]
fn https_is_trusted_by_its_certificate() {
    let (mut server, config) = nginx::server();
    let ours = Authority::new();
    let plain = config.url.replace("http://127.0.0.1", "");
    let make = |host: &str, tls: Option<Tls>| -> Box<dyn Target> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{host}{plain}");
        Box::new(Http::new(nginx::Config {
            status_url: Some(format!("{url}status")),
            url,
            tls: tls.unwrap_or_default(),
            ..config.clone()
        }))
    };
    holds(&mut server, &ours, &make, |server| {
        nginx::secure(server, &config, false);
    });

    nginx::secure(&server, &config, true);
    starts_again(&mut server, &make, &with_certificate(&ours));
    let without = measured(&make, HOST, &without_certificate(&ours));
    refused(without, "answers 400", "--tls-cert");
}
