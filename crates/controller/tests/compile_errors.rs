//! Compiler errors for slips in reconcile functions.

#[path = "../../../tests/rustc/mod.rs"]
mod rustc;

/// `?` in a function that returns a `Failure`.
#[track_caller]
fn assert_not_converted(error: &str) {
    let program = format!(
        "use k8s_informer_controller::Failure;
        type Boxed = Box<dyn std::error::Error + Send + Sync>;
        pub fn reconcile(read: fn() -> Result<(), {error}>) -> Result<(), Failure> {{
            read()?;
            Ok(())
        }}"
    );
    let remedy = "use `Failure::new`, here as `.map_err(Failure::new)`";
    rustc::assert_one_error("k8s_informer_controller", &program, &[remedy]);
}

#[test]
fn failure_from_a_box_or_text_names_the_remedy() {
    for error in ["Boxed", "String", "&'static str"] {
        assert_not_converted(error);
    }
}
