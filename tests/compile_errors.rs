//! Compiler errors for types that are not objects, and for readers that write. The tests run rustc on
//! small programs against the library that was built for the tests. This takes about two seconds and
//! needs no other build.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the compiler errors of a program with the most recent build of the library that contains
/// what the program uses. Otherwise, the errors are the same with every build.
fn errors(program: &str) -> String {
    let test = env::current_exe().unwrap();
    let files = fs::read_dir(test.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libk8s_informer-") && name.ends_with(".rlib")
    };
    let mut libraries: Vec<_> = files.filter(is_library).collect();
    libraries.sort_by_key(|path| Reverse(path.metadata().unwrap().modified().unwrap()));
    let mut all = libraries
        .iter()
        .map(|library| errors_with(library, program));
    all.find(|text| !text.contains("could not find `openapi` in `__private`"))
        .unwrap()
}

fn errors_with(library: &Path, program: &str) -> String {
    let folder = library.parent().unwrap().display().to_string();
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--out-dir",
            env!("CARGO_TARGET_TMPDIR"),
            "-",
        ])
        .arg(format!("--extern=k8s_informer={}", library.display()))
        .arg(format!("-Ldependency={folder}"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    rustc
        .stdin
        .take()
        .unwrap()
        .write_all(program.as_bytes())
        .unwrap();
    let output = rustc.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    text
}

/// Checks that there is exactly one error, and that it contains all of `expected`.
#[track_caller]
fn assert_one_error(program: &str, expected: &[&str]) {
    let errors = errors(program);
    assert_eq!(
        errors.matches("\nerror[").count() + usize::from(errors.starts_with("error[")),
        1,
        "{errors}"
    );
    for expected in expected {
        assert!(
            errors.contains(expected),
            "missing {expected:?} in: {errors}"
        );
    }
}

#[test]
fn non_object_type_gives_one_compile_error_with_remedies() {
    let remedies = [
        "for a custom struct, use `impl_object!`",
        "enable the feature `k8s-openapi`",
    ];
    for (name, what) in [("Object", "object"), ("Resource", "resource")] {
        let program = format!(
            "struct Widget;
            fn require<T: k8s_informer::{name}>() {{}}
            pub fn probe() {{ require::<Widget>() }}"
        );
        let message = format!(
            "`Widget` is not a Kubernetes {what}: it does not implement `k8s_informer::{name}`"
        );
        assert_one_error(&program, &[&[message.as_str()], &remedies[..]].concat());
    }
}

#[test]
fn struct_without_metadata_gives_one_compile_error() {
    let program = r#"pub struct Widget { pub spec: u32 }
        k8s_informer::impl_object!(Widget, "example.com/v1", "Widget", "widgets", Namespaced);"#;
    assert_one_error(program, &["no field `metadata` on type `&Widget`"]);
}

#[test]
fn struct_with_wrong_metadata_type_gives_one_compile_error() {
    let program = r#"pub struct Widget { pub metadata: String }
        k8s_informer::impl_object!(Widget, "example.com/v1", "Widget", "widgets", Namespaced);"#;
    let remedy = "the type `k8s_informer::ObjectMeta` for the field `metadata`";
    assert_one_error(program, &["`String` is not a Kubernetes object", remedy]);
}

#[test]
fn full_metadata_of_minimal_struct_gives_one_compile_error() {
    let program = r#"pub struct Widget { pub metadata: k8s_informer::ObjectMeta }
        k8s_informer::impl_object!(Widget, "example.com/v1", "Widget", "widgets", Namespaced);
        k8s_informer::impl_full_metadata!(Widget);"#;
    let remedy = "use the type `FullObjectMeta` for the field `metadata`";
    assert_one_error(
        program,
        &["`ObjectMeta` does not have all metadata", remedy],
    );
}

#[test]
fn type_without_full_metadata_gives_one_compile_error() {
    let program = r#"pub struct Widget { pub metadata: k8s_informer::ObjectMeta }
        k8s_informer::impl_object!(Widget, "example.com/v1", "Widget", "widgets", Namespaced);
        fn require<T: k8s_informer::object::FullMetadata>() {}
        pub fn probe() { require::<Widget>() }"#;
    let remedy =
        "use the type `FullObjectMeta` for the field `metadata`, and `impl_full_metadata!`";
    assert_one_error(program, &["`Widget` does not have all metadata", remedy]);
}

#[test]
fn spec_in_place_of_derived_type_gives_one_compile_error() {
    let program = r#"mod kube {
            pub trait Resource {
                type DynamicType;
                type Scope;
                fn group(_: &Self::DynamicType) -> &str;
                fn version(_: &Self::DynamicType) -> &str;
                fn kind(_: &Self::DynamicType) -> &str;
                fn plural(_: &Self::DynamicType) -> std::borrow::Cow<'_, str>;
                fn meta<Metadata>(&self) -> &Metadata;
            }
        }
        pub struct WebsiteSpec;
        k8s_informer::impl_object!(WebsiteSpec as kube::Resource);"#;
    let message = "`WebsiteSpec` does not implement kube's `Resource`";
    let remedy = "`impl_object!(Website as kube::Resource)`";
    assert_one_error(program, &[message, remedy]);
}

/// A reader has no writer of what it reads: not of a signal, a watermark or the cache of an informer.
#[test]
fn i21_reader_cannot_write() {
    for (reader, write, method) in [
        ("stop::Stop", "stop()", "stop"),
        ("stop::Done", "set()", "set"),
        ("queue::Watermark", r#"set("7")"#, "set"),
        (
            "Lister<k8s_informer::DynamicObject>",
            r#"replace(Vec::new(), "7")"#,
            "replace",
        ),
        (
            "SharedIndexInformer<k8s_informer::DynamicObject>",
            "indexer()",
            "indexer",
        ),
    ] {
        let program =
            format!("pub fn probe(reader: &k8s_informer::{reader}) {{ let _ = reader.{write}; }}");
        assert_one_error(&program, &[&format!("no method named `{method}` found")]);
    }
}
