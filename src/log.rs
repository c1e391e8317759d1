//! The macros of the `log` crate, with the public module of the caller as target: the modules of
//! files are private. A panic of the logger costs one line, on whichever thread it happens.

/// Returns the first two segments of a module path, for example `k8s_informer::client`.
pub(crate) fn target(module: &'static str) -> &'static str {
    let second = module.match_indices("::").nth(1);
    second.map_or(module, |(end, _)| &module[..end])
}

macro_rules! log {
    ($level:expr, $($message:tt)+) => {
        // The logger is user code, and so are some of the values that it formats. This panic cannot
        // be reported: only the logger could do that.
        drop($crate::base::panic::catch(|| {
            ::log::log!(target: $crate::log::target(module_path!()), $level, $($message)+)
        }))
    };
}

macro_rules! error {
    ($($message:tt)+) => { $crate::log::log!(::log::Level::Error, $($message)+) };
}

// `warn` is also the name of an attribute.
macro_rules! warn_ {
    ($($message:tt)+) => { $crate::log::log!(::log::Level::Warn, $($message)+) };
}

macro_rules! info {
    ($($message:tt)+) => { $crate::log::log!(::log::Level::Info, $($message)+) };
}

macro_rules! debug {
    ($($message:tt)+) => { $crate::log::log!(::log::Level::Debug, $($message)+) };
}

pub(crate) use {debug, error, info, log, warn_ as warn};
