//! Certificates made for a test: an authority, and what it signs.

use std::fs;
use std::os::unix::fs::{chown, PermissionsExt as _};
use std::path::{Path, PathBuf};

use justitia_probe::tls::Identity;
use rcgen::{date_time_ymd, BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::start::NOBODY;

/// An authority with its files. All authorities have the same name, as one made anew has.
pub(crate) struct Authority {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Authority { dir, issuer }
    }

    /// Its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Signs a certificate for 127.0.0.1 and nothing else; an expired one was valid until 2020.
    fn signed(&self, expired: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "signed for a test");
        if expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Makes a client's certificate.
    pub(crate) fn client(&self) -> Identity {
        let (certificate, key) = self.signed(false);
        let identity = Identity {
            certificate: self.dir.path().join("client.pem"),
            key: self.dir.path().join("client.key"),
        };
        fs::write(&identity.certificate, certificate).unwrap();
        fs::write(&identity.key, key).unwrap();
        identity
    }

    /// Gives a server its own certificate, and the authority's to check those of its clients.
    pub(crate) fn equip(&self, server: &Path, expired: bool) {
        let (certificate, key) = self.signed(expired);
        let ca = fs::read_to_string(self.file()).unwrap();
        for (name, text) in [("tls.pem", certificate), ("tls.key", key), ("ca.pem", ca)] {
            let path = server.join(name);
            fs::write(&path, text).unwrap();
            // PostgreSQL accepts no key that others may read.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if geteuid().is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
    }
}
