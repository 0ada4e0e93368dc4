//! Runs every target over its corpus and over mutations of it: the same ones every time, about as many as
//! take a second. An input that fails is kept as a file for libFuzzer.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use justitia_fuzz::TARGETS;

/// A corpus is a handful of files, bytes in total.
const LARGEST_CORPUS: usize = 64 << 10;

/// The files of a corpus, sorted by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{name} has no corpus");
    let corpus: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect();
    let bytes: usize = corpus.iter().map(Vec::len).sum();
    assert!(
        bytes <= LARGEST_CORPUS,
        "{name} has a corpus of {bytes} bytes"
    );
    corpus
}

fn holds_for_its_corpus_and(mutations: usize, name: &str) {
    let (_, target) = TARGETS
        .into_iter()
        .find(|(known, _)| *known == name)
        .expect("a target");
    let corpus = corpus(name);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mutations = (0..mutations).map(|_| random.mutation(&corpus));
    for bytes in corpus.iter().cloned().chain(mutations) {
        if catch_unwind(|| target(&bytes)).is_err() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-failed"));
            fs::write(&file, &bytes).expect("the input is kept");
            panic!("{name} does not hold for {}", file.display());
        }
    }
}

/// One test per target, so that they run in parallel, with as many mutations as take half a second in an
/// unoptimized build; and one test that no target is forgotten.
macro_rules! targets {
    ($($name:ident $mutations:literal,)*) => {
        $(#[test]
        fn $name() {
            holds_for_its_corpus_and($mutations, stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_and_a_program_of_its_own() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|(name, _)| name), tested);
            let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
            for name in tested {
                let text = fs::read_to_string(programs.join(name).with_extension("rs")).expect("a program");
                assert!(text.contains(&format!("justitia_fuzz::{name}(bytes)")), "{name}: {text}");
            }
        }
    };
}

targets! {
    parse 4000,
    color 10000,
    names 10000,
    record 100,
    qcow2 10000,
    oci 300,
    nri 5000,
    journal 500,
    http 1000,
    socket 1000,
    secret 10000,
}

/// Deterministic random numbers (xorshift64*) and mutations.
struct Random(u64);

impl Random {
    /// Below `end`, which must not be zero.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    /// An input of the corpus with a few changes.
    fn mutation(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, corpus);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        /// Inputs that often break parsers.
        const WORDS: [&[u8]; 12] = [
            b"",
            b"0",
            b"-1",
            b"18446744073709551615",
            b"1e400",
            b"\n",
            b"\r\n",
            b"\xff",
            b"\0",
            b"/",
            b"\\",
            b"\"",
        ];
        let at = self.below(bytes.len() + 1);
        let end = at + self.below(bytes.len() - at + 1).min(64);
        match self.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            2 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            // A piece is duplicated, or replaced by a piece of another file, or by a word.
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                let to = from + self.below(other.len() - from + 1).min(64);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..end.min(at + 4), word.iter().copied());
            }
        }
    }
}
