use std::time::Duration;

use crate::reflector::ReflectorOptions;
use crate::time::Random;
use crate::wire::{DecodeLimits, ListOptions, Shard};

/// The options of the protocol.
pub(super) struct Settings {
    pub(super) page_size: Option<u32>,
    pub(super) min_watch_timeout: Duration,
    pub(super) watch_idle_timeout: Option<Duration>,
    pub(super) watch_list: bool,
    pub(super) reuse_unchanged: bool,
    /// The selector of the shard. Empty if all objects are selected.
    pub(super) shard_selector: String,
    pub(super) limits: DecodeLimits,
}

impl Settings {
    /// `watch_list` is whether the lister-watcher supports watch-lists.
    pub(super) fn new(options: &ReflectorOptions, watch_list: bool) -> Self {
        Self {
            page_size: options.page_size,
            min_watch_timeout: options
                .min_watch_timeout
                .max(ReflectorOptions::MIN_WATCH_TIMEOUT),
            // Treat zero as unset: a zero timeout would end each watch immediately.
            watch_idle_timeout: options
                .watch_idle_timeout
                .filter(|timeout| !timeout.is_zero()),
            watch_list: watch_list && options.watch_list,
            reuse_unchanged: options.reuse_unchanged,
            shard_selector: options
                .shard
                .as_ref()
                .map(Shard::selector)
                .unwrap_or_default(),
            limits: options.limits,
        }
    }

    /// The options of the next watch, without its version.
    pub(super) fn watch_options(&self, random: &mut Random) -> ListOptions {
        ListOptions {
            allow_watch_bookmarks: true,
            timeout_seconds: Some(self.watch_timeout(random)),
            shard_selector: self.shard_selector.clone(),
            ..ListOptions::default()
        }
    }

    /// A random time between the minimum and twice the minimum, in seconds, so that the watches of
    /// many clients do not end together (W1).
    fn watch_timeout(&self, random: &mut Random) -> u32 {
        let seconds = self.min_watch_timeout.as_secs_f64() * (1.0 + random.unit());
        seconds as u32
    }
}
