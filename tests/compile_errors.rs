//! Compiler errors for types that are not objects, and for readers that write. The tests run rustc on
//! small programs against the library that was built for the tests. This takes about two seconds and
//! needs no other build.

use super::rustc;

#[track_caller]
fn assert_one_error(program: &str, expected: &[&str]) {
    rustc::assert_one_error("k8s_informer", program, expected);
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
fn key_of_an_arc_gives_one_compile_error() {
    let program = r#"use std::sync::Arc;
        use k8s_informer::{DynamicObject, object::{Key, meta_namespace_key}};
        pub fn key(object: &Arc<DynamicObject>) -> Key { meta_namespace_key(object) }"#;
    assert_one_error(program, &["is not a Kubernetes object", "`&**object`"]);
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
