//! TLS to probed servers: trusted authorities, the probe's own certificate, and errors in words.
//!
//! By default the chain and the name are checked, against the system's store or a given file. Files are read
//! for each connection, so a renewed certificate counts from the next connection on.

use std::error::Error as StdError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use justitia_report::error::plain;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::Trouble;

/// The checks of a server's certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Check {
    /// Its signer, its dates, and the server's name in it.
    #[default]
    Full,
    /// Its signer and its dates: any server with a certificate of the same signer passes.
    Chain,
    /// Nothing: any server passes.
    Nothing,
}

/// TLS settings for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    pub check: Check,
    /// Use no TLS if the server does not support it. For PostgreSQL and MySQL.
    pub optional: bool,
    /// PEM file of authorities; `None`: the system's store.
    pub ca: Option<PathBuf>,
    /// Our own certificate, if the server requires one.
    pub identity: Option<Identity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// PEM file of the certificate, and of those between it and a CA that the server knows.
    pub certificate: PathBuf,
    /// PEM file of the certificate's key.
    pub key: PathBuf,
}

impl Tls {
    /// The check of the server's certificate that is off, in words; `None` if none is.
    pub fn note(&self) -> Option<&'static str> {
        match (self.optional, self.check) {
            (true, _) => Some("TLS only if the server has it, and its certificate is not checked"),
            (_, Check::Nothing) => Some("the server's certificate is not checked"),
            (_, Check::Chain) => Some("the name in the server's certificate is not checked"),
            (_, Check::Full) => None,
        }
    }

    /// Appends the note on TLS to another note.
    pub(crate) fn noted(tls: Option<&Tls>, note: Option<String>) -> Option<String> {
        match (note, tls.and_then(Tls::note)) {
            (Some(note), Some(ours)) => Some(format!("{note}, {ours}")),
            (note, ours) => note.or(ours.map(str::to_owned)),
        }
    }

    /// The authorities' certificates, at least one.
    pub(crate) fn roots(&self) -> Result<Vec<CertificateDer<'static>>, Trouble> {
        let Some(path) = &self.ca else {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err(Trouble::failed(
                    "this system trusts no certificate authority: its store is empty or missing",
                    "install ca-certificates, or name the authority's file with --tls-ca",
                ));
            }
            return Ok(found.certs);
        };
        certificates(path)
    }

    /// Our certificate's chain and its key.
    #[allow(clippy::type_complexity, reason = "one use")]
    pub(crate) fn shown(
        &self,
    ) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, Trouble> {
        let Some(Identity { certificate, key }) = &self.identity else {
            return Ok(None);
        };
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| {
            Trouble::failed(
                format!("no key in {}: {error}", key.display()),
                "name a PEM file with a private key that has no passphrase",
            )
        })?;
        Ok(Some((chain, key)))
    }

    /// The configuration for clients that use rustls.
    pub(crate) fn config(&self) -> Result<ClientConfig, Trouble> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let mut roots = RootCertStore::empty();
        if self.check != Check::Nothing {
            roots.add_parsable_certificates(self.roots()?);
        }
        let lenient = |roots| Ok::<_, Trouble>(Arc::new(Lenient::new(roots, provider)?));
        let builder = match self.check {
            Check::Full => builder.with_root_certificates(roots),
            Check::Chain => builder
                .dangerous()
                .with_custom_certificate_verifier(lenient(Some(roots))?),
            Check::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(lenient(None)?),
        };
        match self.shown()? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key),
            None => Ok(builder.with_no_client_auth()),
        }
        .map_err(|error| unusable(&error))
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Trouble> {
    fs::read(path).map_err(|error| {
        Trouble::failed(
            format!("cannot read {}: {}", path.display(), plain(&error)),
            "check the path and that this user may read it",
        )
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Trouble::failed(
            format!("no certificate in {}", path.display()),
            "name a PEM file: its lines begin with -----BEGIN CERTIFICATE-----",
        )),
    }
}

fn unusable(error: &Error) -> Trouble {
    Trouble::failed(
        format!("the client certificate cannot be used: {error}"),
        "check that the files of --tls-cert and --tls-key belong together",
    )
}

/// A verifier that ignores the certificate's name, or the whole certificate. The server must always hold the
/// key.
#[derive(Debug)]
struct Lenient {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Lenient {
    /// `roots`: authorities, at least one of them usable. `None`: no certificate is checked.
    fn new(
        roots: Option<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Lenient, Trouble> {
        let verifier = |roots| {
            let builder =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            builder.build().map_err(|error| {
                Trouble::failed(
                    format!("the certificate authorities cannot be used: {error}"),
                    "check the file of --tls-ca",
                )
            })
        };
        let chain = roots.map(verifier).transpose()?;
        Ok(Lenient { chain, provider })
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        // The verifier checks the name last, so chain and dates are good here.
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The TLS error within a client's error, in words; `None` if there is none. `server`: its kind and address.
pub(crate) fn said(server: &str, error: &(dyn StdError + 'static)) -> Option<Trouble> {
    let (what, remedy) = match of_rustls(error)? {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(_) => no_tls(),
        Error::PeerIncompatible(error) => (
            format!("the server offers no TLS that is secure today: {error:?}"),
            "enable TLS 1.2 or later on the server",
        ),
        other => (
            format!("no TLS connection: {other}"),
            "see the server's log",
        ),
    };
    Some(Trouble::failed(format!("{server}: {what}"), remedy))
}

/// Cause and remedy for a server that does not speak TLS.
pub(crate) fn no_tls() -> (String, &'static str) {
    (
        "the server does not speak TLS there".to_owned(),
        "enable TLS on the server, name its TLS port, or turn TLS off: --ssl-mode DISABLED, --sslmode disable, redis:// or http://",
    )
}

/// The rustls error within errors of a client and of I/O.
fn of_rustls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    type Shared = Arc<dyn StdError + Send + Sync>;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        // Neither type returns the wrapped error as its source.
        next = if let Some(wrapped) = error.downcast_ref::<io::Error>() {
            wrapped.get_ref().map(|inner| inner as _)
        } else if let Some(shared) = error.downcast_ref::<Shared>() {
            Some(&**shared as &'a (dyn StdError + 'static))
        } else {
            error.source()
        };
    }
    None
}

fn of_certificate(error: &CertificateError) -> (String, &'static str) {
    use CertificateError as E;
    let renew = "renew it on the server, and check the clocks of both machines";
    match error {
        E::Expired => ("the server's certificate has expired".to_owned(), renew),
        E::ExpiredContext { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            let ago = match (ago / 86_400, ago / 3600) {
                (0, 0) => format!("{} min", ago / 60),
                (0, hours) => format!("{hours} h"),
                (days, _) => format!("{days} days"),
            };
            (
                format!("the server's certificate expired {ago} ago"),
                renew,
            )
        }
        E::NotValidYet | E::NotValidYetContext { .. } => (
            "the server's certificate is not valid yet".to_owned(),
            "check the clocks of both machines",
        ),
        E::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names = if presented.is_empty() {
                "no name (only subjectAltName counts)".to_owned()
            } else {
                let names = presented.iter().map(|name| unwrapped(name));
                names.collect::<Vec<_>>().join(", ")
            };
            (
                format!(
                    "the server's certificate is not for {} but for {names}",
                    expected.to_str()
                ),
                "name the server as its certificate does, or give it a certificate for this name",
            )
        }
        E::NotValidForName => (
            "the server's certificate is for another name".to_owned(),
            "name the server as its certificate does, or give it a certificate for this name",
        ),
        // The signature is bad if another authority of the same name is trusted, most likely one made anew.
        E::UnknownIssuer | E::BadSignature => (
            "no trusted authority signed the server's certificate".to_owned(),
            "name the PEM file of the authority that signed it with --tls-ca",
        ),
        E::Other(_) => (
            format!("the server's certificate is refused: {error}"),
            "give the server a certificate of its own (CA:FALSE), signed by the authority, not the authority's certificate",
        ),
        error => (
            format!("the server's certificate is refused: {error}"),
            "give the server a valid certificate",
        ),
    }
}

/// The name in `DnsName("db")` or `IpAddress(10.0.0.1)`, which is how the library gives it.
fn unwrapped(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// The first name in a certificate, if a client refused it only for its name.
pub(crate) fn presented(error: &(dyn StdError + 'static)) -> Option<String> {
    match of_rustls(error)? {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented, ..
        }) => presented
            .first()
            .map(|name| unwrapped(name).replace('*', "any")),
        _ => None,
    }
}

fn of_alert(alert: AlertDescription) -> (String, &'static str) {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired | A::HandshakeFailure | A::NoCertificate => (
            format!(
                "the server requires a client certificate, or shares no TLS version and cipher ({alert:?})"
            ),
            "name the client certificate with --tls-cert and --tls-key",
        ),
        A::UnknownCA
        | A::DecryptError
        | A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::AccessDenied => (
            format!("the server rejects the client certificate ({alert:?})"),
            "present a certificate with --tls-cert that an authority known to the server signed",
        ),
        A::ProtocolVersion => (
            "the server offers no TLS that is secure today".to_owned(),
            "enable TLS 1.2 or later on the server",
        ),
        alert => (
            format!("the server ended TLS ({alert:?})"),
            "see the server's log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_cannot_be_read_let_nobody_pass() {
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        // Well-formed PEM, but no certificate within.
        fs::write(
            &ca,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        let tls = |check| Tls {
            check,
            ca: Some(ca.clone()),
            ..Tls::default()
        };
        let refused = tls(Check::Chain).config().unwrap_err();
        assert!(refused.to_string().contains("authorities"), "{refused}");
        assert!(tls(Check::Nothing).config().is_ok());
    }
}
