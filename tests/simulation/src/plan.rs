//! What a seed decides before a run, and the faults that are counted.

use std::time::Duration;

/// A generator of the numbers of one run: SplitMix64.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Returns a number of `least..=most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// Returns `true` in this many of 1,000 calls.
    pub fn permille(&mut self, of_thousand: u64) -> bool {
        self.next() % 1000 < of_thousand
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// How a server handles a request for a watch-list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchLists {
    Supported,
    /// The server answers 422.
    Rejected,
    /// The server watches, and sends no initial events.
    Ignored,
}

/// The configuration of one run.
#[derive(Debug)]
pub struct Plan {
    pub delta_fifo: bool,
    pub recreation_as_delete_and_add: bool,
    pub watch_list: bool,
    pub page_size: Option<u32>,
    pub resync: Duration,
    pub watch_idle_timeout: Option<Duration>,
    pub expected_kind: bool,
    pub server_watch_lists: WatchLists,
    /// Whether the server also pages lists at the version "0".
    pub pages_at_zero: bool,
    pub sends_bookmarks: bool,
    /// Whether a watch from a version of the future is accepted, and sends nothing until then.
    pub accepts_future: bool,
    /// Whether the object of a deletion has the version of its last state.
    pub old_version_of_deletion: bool,
    /// Whether the `kind` of a list follows its items.
    pub kind_last: bool,
    pub items_have_kind: bool,
    /// The delay of each API server behind the first one, in microseconds.
    pub lags: [u64; 2],
    pub keys: usize,
    /// The number of handlers that are added before the start.
    pub handlers: usize,
    /// The number of events of the world until it is quiet.
    pub ticks: usize,
    /// The number of waits until the cache is current that follow one another, faster than they end,
    /// when the world is quiet.
    pub waits: u32,
    /// The longest step of a driver. `None` for an informer that runs on one thread.
    pub step: Option<Duration>,
    /// Whether the informer has two namespaces, with a driver for each of them.
    pub has_namespaces: bool,
    /// How often faults occur, in thousandths of what they could.
    pub connection_faults: u64,
    pub object_faults: u64,
    pub handler_faults: u64,
    pub server_faults: u64,
}

impl Plan {
    pub fn new(rng: &mut Rng) -> Self {
        let seconds = Duration::from_secs;
        let lag = rng.pick(&[0, 0, 200_000, 3_000_000, 15_000_000]);
        let faults = |rng: &mut Rng| rng.pick(&[0, 300, 1000, 1000, 2000]);
        let mut plan = Self {
            delta_fifo: rng.permille(500),
            recreation_as_delete_and_add: rng.permille(300),
            watch_list: rng.permille(600),
            page_size: rng.pick(&[None, None, Some(1), Some(2), Some(3)]),
            resync: rng.pick(&[
                seconds(0),
                seconds(0),
                seconds(7),
                seconds(60),
                seconds(400),
            ]),
            watch_idle_timeout: rng.pick(&[None, None, Some(seconds(150))]),
            expected_kind: rng.permille(500),
            server_watch_lists: rng.pick(&[
                WatchLists::Supported,
                WatchLists::Supported,
                WatchLists::Supported,
                WatchLists::Rejected,
                WatchLists::Ignored,
            ]),
            pages_at_zero: rng.permille(300),
            sends_bookmarks: rng.permille(800),
            accepts_future: rng.permille(500),
            old_version_of_deletion: rng.permille(100),
            kind_last: rng.permille(200),
            items_have_kind: rng.permille(500),
            lags: [0, lag],
            keys: rng.between(3, 8) as usize,
            handlers: rng.between(1, 3) as usize,
            ticks: rng.between(10, 130) as usize,
            connection_faults: faults(rng),
            object_faults: faults(rng),
            handler_faults: faults(rng),
            server_faults: faults(rng),
            waits: 0,
            step: rng.pick(&[
                None,
                Some(seconds(3600)),
                Some(seconds(30)),
                Some(seconds(3)),
            ]),
            has_namespaces: false,
        };
        // A server that lags behind, or ignores watch-lists, makes a consistent list slow.
        let is_slow = plan.watch_list && plan.server_watch_lists == WatchLists::Ignored;
        if !is_slow && lag < 1_000_000 && rng.permille(250) {
            plan.waits = 40;
        }
        // While one driver waits, nobody steps the other one.
        if plan.step.is_some() && rng.permille(350) {
            plan.has_namespaces = true;
            plan.step = Some(seconds(3));
            // Another thread reads for both namespaces, so its waits depend on the schedule.
            plan.waits = 0;
        }
        plan
    }
}

/// Declares the faults, with the names of the table.
macro_rules! faults {
    ($($fault:ident: $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $($fault,)* }

        impl Fault {
            pub const ALL: &[Self] = &[$(Self::$fault,)*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$fault => $name,)* }
            }
        }
    };
}

faults! {
    Delete: "server: deletion",
    Recreation: "server: recreation under the same name",
    Compaction: "server: compaction",
    Restore: "server: restore to an earlier state",
    RestoreAhead: "server: restore, with versions moved ahead",
    Restart: "server: restart, all connections break",
    LaggingServer: "server: request to a server that lags behind",
    TooLarge: "server: 504, version too large",
    Bookmark: "server: bookmark",
    Pages: "server: list in pages",
    ExpiredToken: "server: 410 for a continue token",
    WatchList: "server: watch-list",
    WatchListRejected: "server: 422 for a watch-list",
    WatchListIgnored: "server: watch-list without initial events",
    OldVersionOfDeletion: "server: deletion with the version of the last state",
    Expired: "server: 410 for a version",
    Refused: "connection: refused",
    TooManyRequests: "connection: 429 with Retry-After",
    Internal: "connection: 500",
    GatewayTimeout: "connection: 504",
    RequestPanic: "connection: the lister-watcher panics",
    Garbage: "connection: garbage as a body or frame",
    Truncated: "connection: truncated frame or list, clean end",
    Cut: "connection: reset after any byte",
    Stall: "connection: silent forever",
    Delay: "connection: delay",
    Split: "connection: small chunks",
    ErrorEvent: "connection: ERROR event",
    Unreadable: "object: unreadable",
    AccessorPanics: "object: an accessor panics",
    LargeObject: "object: above the limit",
    UnreadableOnce: "object: unreadable as sent once",
    NoName: "object: without a readable name",
    SentTwice: "object: twice in one list",
    TransformRejects: "object: transform rejects it for a time",
    TransformRejectsForever: "object: transform rejects it for good",
    IndexFails: "object: index function fails for a time",
    IndexFailsForever: "object: index function fails for good",
    HandlerPanics: "handler: panic",
    HandlerIsSlow: "handler: slow",
    LateHandler: "handler: added late",
    LateInCallback: "handler: added in a callback",
    Removed: "handler: removed",
    RemovedInCallback: "handler: removes itself in a callback",
    Resync: "handler: resync",
    LoggerPanics: "logger: panic",
    MetricsPanic: "metrics: panic",
    ErrorCallbackPanics: "error callback: panic",
    ErrorCallbackIsSlow: "error callback: slow",
    Wait: "wait on the informer's thread",
    Current: "wait of another thread until the cache is current",
    Waits: "such waits, faster than they end",
}
