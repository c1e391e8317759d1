//! Runs the bodies of the fuzz targets without a fuzzer, on their corpora and on reproducible
//! random bytes. This needs only a stable compiler, and fails if a bug that a fuzzer has found
//! returns.

use std::collections::BTreeSet;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use targets::{Body, TARGETS};

// The package `fuzz` uses `fuzz/src/lib.rs` as a library, which needs public items.
#[allow(unreachable_pub)]
#[path = "../fuzz/src/lib.rs"]
mod targets;

/// The number of random inputs of each kind for each target.
const RANDOM: u64 = 300;

/// The time after which an input counts as hanging. A normal run takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(30);

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// Returns the corpus of a target, sorted by name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz().join("corpus").join(target);
    let Ok(files) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut corpus: Vec<_> = files
        .map(|file| file.unwrap())
        .map(|file| {
            (
                file.file_name().into_string().unwrap(),
                fs::read(file.path()).unwrap(),
            )
        })
        .collect();
    corpus.sort();
    corpus
}

/// Runs a body on inputs. Saves an input that fails or hangs to a file, and prints the command that
/// reproduces the failure.
fn run(target: &str, body: Body, inputs: impl Iterator<Item = (String, Vec<u8>)>) {
    let (sender, started) = mpsc::channel();
    let inputs: Vec<(String, Vec<u8>)> = inputs.collect();
    let runner = {
        let inputs = inputs.clone();
        thread::spawn(move || {
            for (at, (_, input)) in inputs.iter().enumerate() {
                sender.send(at).unwrap();
                body(input);
            }
        })
    };
    let mut last = 0;
    let ended = loop {
        match started.recv_timeout(TIMEOUT) {
            Ok(at) => last = at,
            Err(RecvTimeoutError::Disconnected) => break runner.join(),
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("the input hangs");
                break Err(Box::new("the input hangs"));
            }
        }
    };
    if let Err(payload) = ended {
        let (name, input) = &inputs[last];
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{name}"));
        fs::write(&file, input).unwrap();
        eprintln!(
            "{target} failed; reproduce it with: cargo +nightly fuzz run {target} {}",
            file.display()
        );
        resume_unwind(payload);
    }
}

#[test]
fn every_fuzz_target_has_program_and_corpus() {
    let stems = |folder: &str| -> BTreeSet<String> {
        let files = fs::read_dir(fuzz().join(folder)).unwrap();
        files
            .map(|file| {
                file.unwrap()
                    .path()
                    .file_stem()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    let targets: BTreeSet<String> = TARGETS
        .iter()
        .map(|(target, _)| (*target).to_owned())
        .collect();
    assert_eq!(stems("fuzz_targets"), targets);
    assert_eq!(stems("corpus"), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for target in &targets {
        assert!(
            manifest.contains(&format!("[[bin]]\nname = \"{target}\"\n")),
            "{target} has no [[bin]] section in the manifest"
        );
        assert!(!corpus(target).is_empty(), "{target} has no corpus");
    }
}

#[test]
fn fuzz_targets_accept_their_corpora() {
    for (target, body) in TARGETS {
        run(target, *body, corpus(target).into_iter());
    }
}

#[test]
fn fuzz_targets_accept_random_bytes() {
    for (target, body) in TARGETS {
        let input = |seed| {
            let mut random = Random(seed);
            let length = random.below(800);
            (
                format!("random-{seed}"),
                (0..length).map(|_| random.byte()).collect(),
            )
        };
        run(target, *body, (0..RANDOM).map(input));
    }
}

#[test]
fn fuzz_targets_accept_mutated_corpora() {
    for (target, body) in TARGETS {
        let corpus = corpus(target);
        let changed = |seed| {
            let mut random = Random(seed);
            let mut input = corpus[random.below(corpus.len())].1.clone();
            let other = &corpus[random.below(corpus.len())].1;
            input.truncate(random.below(2 * input.len() + 1));
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            for _ in 0..random.below(8) {
                let at = random.below(input.len() + 1);
                match random.below(3) {
                    0 => input.insert(at, random.byte()),
                    1 if at < input.len() => drop(input.remove(at)),
                    _ if at < input.len() => input[at] = random.byte(),
                    _ => {}
                }
            }
            (format!("changed-{seed}"), input)
        };
        run(target, *body, (0..RANDOM).map(changed));
    }
}

/// The splitmix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}
