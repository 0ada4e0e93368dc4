//! A URL, and nginx's counters.
//!
//! - Latency: that of a GET of the URL, including its body, on a connection that is kept. A status of 500 or
//!   more, 408 (timeout) or 429 (too many requests) is a failed request, so it is slower than any objective.
//!   Any other status of 400 to 499 means that the URL is not suitable for a probe.
//! - With the URL of nginx's `stub_status`, throughput is the growth of its requests. Waiting is the number
//!   of requests being read or answered beyond those that may be at once (without our own request).

use std::sync::Arc;
use std::time::Duration;

use justitia_report::error::plain;
use rustls::crypto::ring;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Error};

use super::{beyond, client_limit, now_seconds, timed, Target};
use crate::measure::{Measurement, Rate};
use crate::tls::{self, Check, Tls};
use crate::Trouble;

/// Longest body that is read, bytes.
const MOST_BYTES: u64 = 8 << 20;

#[derive(Debug, Clone)]
pub struct Config {
    /// The URL, `http://` or `https://`.
    pub url: String,
    /// TLS, for each URL that is `https://`.
    pub tls: Tls,
    /// URL of nginx's `stub_status`.
    pub status_url: Option<String>,
    /// Requests that may be worked on at once before more of them wait.
    pub parallel: f64,
    /// The probe's timeout.
    pub timeout: Duration,
}

impl Config {
    /// True if one of the URLs is `https://`.
    pub fn is_secure(&self) -> bool {
        is_secure(&self.url) || self.status_url.as_deref().is_some_and(is_secure)
    }
}

/// A web server.
pub struct Http {
    config: Config,
    client: HttpClient,
    work: Rate,
}

impl Http {
    pub fn new(config: Config) -> Http {
        Http {
            client: HttpClient::new(
                config.is_secure().then(|| config.tls.clone()),
                config.timeout,
            ),
            config,
            work: Rate::default(),
        }
    }
}

/// A client that accepts every status as an answer, and follows no redirects.
pub(super) struct HttpClient {
    /// `None`: every URL is `http://`.
    tls: Option<Tls>,
    timeout: Duration,
    agent: Option<Agent>,
}

impl HttpClient {
    pub(super) fn new(tls: Option<Tls>, timeout: Duration) -> HttpClient {
        HttpClient {
            tls,
            timeout,
            agent: None,
        }
    }

    /// Gets status and body. After an error, the next call reconnects and reads the TLS files again.
    pub(super) fn get(&mut self, url: &str) -> Result<(u16, String), Trouble> {
        let agent = match self.agent.take() {
            Some(agent) => agent,
            None => self.agent()?,
        };
        let fetch = || -> Result<(u16, String), Error> {
            let mut response = agent.get(url).call()?;
            let body = response.body_mut().with_config().limit(MOST_BYTES);
            let text = body.lossy_utf8(true).read_to_string()?;
            Ok((response.status().as_u16(), text))
        };
        let answer = fetch().map_err(|error| said(url, &error))?;
        self.agent = Some(agent);
        Ok(answer)
    }

    /// The note, with the checks of the server's certificate that are off.
    pub(super) fn noted(&self, note: Option<String>) -> Option<String> {
        Tls::noted(self.tls.as_ref(), note)
    }

    fn agent(&self) -> Result<Agent, Trouble> {
        let mut config = Agent::config_builder()
            .timeout_global(Some(client_limit(self.timeout)))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("justitia-probe");
        if let Some(tls) = &self.tls {
            config = config.tls_config(of_tls(tls)?);
        }
        Ok(config.build().into())
    }
}

/// True if a URL is `https://`.
pub fn is_secure(url: &str) -> bool {
    url.starts_with("https://")
}

/// True if the URL is well formed and names a host.
pub fn is_whole(url: &str) -> bool {
    let url = url.parse::<ureq::http::Uri>();
    let authority = url.as_ref().map(ureq::http::Uri::authority);
    let Ok(Some(authority)) = authority else {
        return false;
    };
    // The parser accepts a port beyond 65535.
    let is_port = authority.port_u16().is_some() || authority.as_str() == authority.host();
    !authority.host().is_empty() && is_port
}

/// TLS settings for the client.
fn of_tls(tls: &Tls) -> Result<TlsConfig, Trouble> {
    let mut config = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .disable_verification(tls.check == Check::Nothing);
    if tls.check != Check::Nothing {
        let roots = tls.roots()?;
        let roots = roots
            .iter()
            .map(|root| Certificate::from_der(root).to_owned());
        config = config.root_certs(RootCerts::from(roots));
    }
    if let (Some((chain, _)), Some(identity)) = (tls.shown()?, &tls.identity) {
        let chain: Vec<_> = chain
            .iter()
            .map(|one| Certificate::from_der(one).to_owned())
            .collect();
        let key = PrivateKey::from_pem(&tls::read(&identity.key)?);
        let key = key.map_err(|error| said("the key of --tls-key", &error))?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
    }
    Ok(config.build())
}

impl Target for Http {
    fn measure(&mut self) -> Result<Measurement, Trouble> {
        let url = &self.config.url;
        let ((status, _), seconds) = timed(|| self.client.get(url))?;
        let failed = status >= 500 || [408, 429].contains(&status);
        if status >= 400 && !failed {
            return Err(Trouble::failed(
                format!("{url} answers {status}"),
                "name a URL that needs no login, or present a certificate with --tls-cert",
            ));
        }
        let note = failed.then(|| format!("status {status}"));
        let mut seen = Measurement {
            latency_seconds: Some(if failed { f64::INFINITY } else { seconds }),
            note: self.client.noted(note),
            ..Measurement::default()
        };
        if let Some(url) = &self.config.status_url {
            let (_, text) = self.client.get(url)?;
            let Some(stub) = Stub::parse(&text) else {
                return Err(Trouble::failed(
                    format!("{url} is not a stub_status page"),
                    "see docs/probes.md for the lines that nginx's configuration needs",
                ));
            };
            seen.per_second = self.work.of(stub.requests, now_seconds());
            seen.waiting = Some(beyond(stub.working - 1.0, self.config.parallel));
        }
        Ok(seen)
    }

    fn needs_two(&self) -> bool {
        self.config.status_url.is_some()
    }
}

/// The counters of `stub_status`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stub {
    /// Requests since the server started.
    requests: f64,
    /// Requests being read or answered now, including this one.
    working: f64,
}

impl Stub {
    /// `server accepts handled requests` is above three numbers; `Reading:` and the others are before theirs.
    /// nginx's own `Waiting` counts idle connections, which do not wait for the server.
    fn parse(text: &str) -> Option<Stub> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let after = |word: &str, places: usize| -> Option<f64> {
            let at = words.iter().position(|have| *have == word)?;
            words.get(at + places)?.parse().ok()
        };
        Some(Stub {
            requests: after("requests", 3)?,
            working: after("Reading:", 1)? + after("Writing:", 1)?,
        })
    }
}

fn said(url: &str, error: &Error) -> Trouble {
    // The client's error does not return the error within it.
    let within: &(dyn std::error::Error + 'static) = match error {
        Error::Io(error) => error,
        Error::Rustls(error) => error,
        error => error,
    };
    if let Some(trouble) = tls::said(url, within) {
        return trouble;
    }
    let remedy = match error {
        Error::BadUri(_) | Error::HostNotFound => "check the URL",
        Error::Timeout(_) => "check whether the server hangs; the probe keeps trying",
        _ => "check that the server runs and listens there",
    };
    let words = match error {
        Error::Io(error) => plain(error),
        error => error.to_string(),
    };
    Trouble::failed(format!("{url}: {words}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "Active connections: 291 \nserver accepts handled requests\n \
        16630948 16630948 31070465 \nReading: 6 Writing: 179 Waiting: 106 \n";

    #[test]
    fn idle_connections_do_not_wait() {
        assert_eq!(
            Stub::parse(TEXT),
            Some(Stub {
                requests: 31_070_465.0,
                working: 185.0
            })
        );
    }

    #[test]
    fn another_page_is_not_taken_for_the_counters() {
        for text in ["", "<html>requests are welcome</html>", "requests 1 2 3"] {
            assert_eq!(Stub::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_page_can_be_parsed(text in "\\PC*") {
            let _ = Stub::parse(&text);
        }
    }
}
