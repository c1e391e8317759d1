//! Any text is a label selector or an error; one that is written out means, and is written out as, the same.
#![no_main]

use k8s_informer::Selector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = text.parse::<Selector>() else { return };
    let canonical = selector.to_string();
    let again: Selector = canonical.parse().expect("what a selector is written as can be parsed");
    assert_eq!(again.to_string(), canonical);
    for labels in [&[][..], &[("a", "b")], &[("a", "1"), ("x/y", "")]] {
        let label = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        assert_eq!(selector.matches_labels(label), again.matches_labels(label), "{text:?} {canonical:?}");
    }
});
