//! Declares the auto traits of the public types of a package, and checks that none is left out.

use std::collections::BTreeSet;
use std::panic::{RefUnwindSafe, UnwindSafe};

pub(crate) fn send<T: Send>() {}
pub(crate) fn sync<T: Send + Sync>() {}
#[allow(dead_code, reason = "other packages promise less")]
pub(crate) fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

/// Calls a function for each type, which compiles only if the type has the traits. Returns the paths
/// of the types.
macro_rules! types {
    ($function:ident: $($type:ty),+ $(,)?) => {{
        $($crate::auto_traits::check::$function::<$type>();)+
        vec![$($crate::auto_traits::check::path(stringify!($type))),+]
    }};
}
pub(crate) use types;

/// The path of a type, without its parameters.
pub(crate) fn path(type_name: &str) -> String {
    type_name
        .split('<')
        .next()
        .unwrap_or(type_name)
        .replace(' ', "")
}

/// Panics unless these are all structs and enums of a list of public items.
pub(crate) fn assert_complete(api: &str, checked: impl IntoIterator<Item = String>) {
    let mut public = BTreeSet::new();
    for line in api.lines().filter(|line| !line.starts_with(' ')) {
        let Some((module, item)) = line.split_once(' ') else {
            continue;
        };
        for kind in ["struct.", "enum."] {
            if let Some(name) = item.strip_prefix(kind) {
                let path = format!("{module}::{name}");
                public.insert(path.trim_start_matches(".::").to_owned());
            }
        }
    }
    let checked: BTreeSet<_> = checked.into_iter().collect();
    assert_eq!(checked, public);
}
