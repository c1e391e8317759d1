//! Tests of the reflector's rules, with a scripted lister-watcher and a fake clock.
mod kinds;
mod lifecycle;
mod lists;
mod options;
#[cfg(feature = "client")]
mod over_http;
mod repair;
mod shards;
mod silence;
mod status;
pub(crate) mod support;
mod versions;
mod watch_list_failures;
mod watch_lists;
mod watches;

#[test]
fn each_rule_has_a_test() {
    let sources = [
        include_str!("lists.rs"),
        include_str!("over_http.rs"),
        include_str!("shards.rs"),
        include_str!("silence.rs"),
        include_str!("versions.rs"),
        include_str!("watch_list_failures.rs"),
        include_str!("watch_lists.rs"),
        include_str!("watches.rs"),
    ];
    let tests: Vec<_> = sources
        .into_iter()
        .flat_map(|source| source.split("#[test]\nfn ").skip(1))
        .filter_map(|rest| rest.split_once('('))
        .flat_map(|(name, _)| name.split('_'))
        .collect();
    let rules = [("l", 18), ("w", 15), ("wl", 12), ("sh", 5)];
    for rule in rules
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")))
    {
        assert!(
            tests.contains(&rule.as_str()),
            "no test has {rule} in its name"
        );
    }
}
