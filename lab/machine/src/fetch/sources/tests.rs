use super::*;

const STANZAS: &str = "\
Types: deb deb-src
# kept for reference
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main
";

#[test]
fn stanzas_are_read_and_disabled_or_source_only_ones_skipped() {
    let sources = parse_deb822(STANZAS);
    assert_eq!(sources.len(), 2);
    assert_eq!(sources[0].uris, ["http://mirror.example/debian"]);
    assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
    assert_eq!(sources[1].suites, ["bookworm-security"]);
}

#[test]
fn lines_are_read_with_and_without_options() {
    let sources = parse_list(
        "# comment\n\
         deb http://mirror.example/debian trixie main non-free-firmware # here\n\
         deb-src http://mirror.example/debian trixie main\n\
         deb [arch=amd64 signed-by=/k/a.gpg,/k/b.gpg] http://vendor.example/x bookworm stable\n\
         debug nonsense\n",
    );
    assert_eq!(sources.len(), 2);
    assert_eq!(sources[0].components, ["main", "non-free-firmware"]);
    assert_eq!(sources[0].signed_by, None);
    assert_eq!(sources[1].signed_by.as_deref(), Some("/k/a.gpg /k/b.gpg"));
}

#[test]
fn an_unlisted_suite_comes_from_the_same_archive() {
    let sources = parse_deb822(STANZAS);
    let uri = |suite| source_for(&sources, suite).map(|source| source.uris[0].as_str());
    assert_eq!(
        uri("trixie-backports"),
        Some("http://mirror.example/debian")
    );
    assert_eq!(
        uri("bookworm-security"),
        Some("http://mirror.example/debian-security")
    );
}

#[test]
fn a_vendor_that_borrows_the_release_name_is_not_the_archive() {
    let sources = parse_list(
        "deb [signed-by=/etc/apt/keyrings/db.gpg] http://db.example/repo/debian bookworm main\n\
         deb http://mirror.example/debian bookworm main\n\
         deb [signed-by=/etc/apt/keyrings/x.gpg] http://x.example/apt bookworm main\n",
    );
    let source = source_for(&sources, "bookworm-backports").unwrap();
    assert_eq!(source.uris, ["http://mirror.example/debian"]);
}

#[test]
fn other_distributions_are_no_source() {
    let sources = parse_list("deb http://mirror.example/ubuntu noble main\n");
    assert_eq!(source_for(&sources, "bookworm"), None);
    assert_eq!(source_for(&[], "bookworm"), None);
}

#[test]
fn a_key_of_several_lines_survives_the_round_trip() {
    let text = "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\n\
                Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n";
    let sources = parse_deb822(text);
    let written = stanza(&sources[0], &["bookworm"]);
    let again = parse_deb822(&written);
    assert_eq!(again[0].signed_by, sources[0].signed_by);
    assert_eq!(again[0].suites, ["bookworm"]);
}
