//! Random faults between the informer and the server.

use std::time::Duration;

use k8s_informer_testing::{ApiServer, Fault, Verb};

use crate::differential::config::Config;
use crate::differential::random::Random;

/// A byte that is invalid everywhere in JSON.
const GARBAGE: [u8; 1] = [1];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    ListRefused,
    ListTruncated,
    ListReset,
    ListGarbled,
    ListSlow,
    ContinueExpired,
    WatchRefused,
    WatchError,
    WatchEnded,
    WatchCut,
    WatchGarbled,
    EventGarbled,
    WatchStalled,
    OpenWatchesCut,
    OpenWatchesEnded,
    OpenWatchesGarbled,
    OpenWatchesError,
    OpenWatchesStalled,
}

use Kind::{
    ContinueExpired, EventGarbled, ListGarbled, ListRefused, ListReset, ListSlow, ListTruncated,
    OpenWatchesCut, OpenWatchesEnded, OpenWatchesError, OpenWatchesGarbled, OpenWatchesStalled,
    WatchCut, WatchEnded, WatchError, WatchGarbled, WatchRefused, WatchStalled,
};

const ALL: [Kind; 18] = [
    ListRefused,
    ListTruncated,
    ListReset,
    ListGarbled,
    ListSlow,
    ContinueExpired,
    WatchRefused,
    WatchError,
    WatchEnded,
    WatchCut,
    WatchGarbled,
    EventGarbled,
    WatchStalled,
    OpenWatchesCut,
    OpenWatchesEnded,
    OpenWatchesGarbled,
    OpenWatchesError,
    OpenWatchesStalled,
];

impl Kind {
    /// Returns a random kind. Watches stall only if the informer has an idle timeout.
    pub(crate) fn random(config: &Config, random: &mut Random) -> Self {
        loop {
            match random.pick(&ALL) {
                WatchStalled | OpenWatchesStalled if !config.idle_timeout => {}
                kind => return kind,
            }
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ListRefused => "list refused",
            ListTruncated => "list truncated",
            ListReset => "list: connection reset",
            ListGarbled => "list garbled",
            ListSlow => "list slow",
            ContinueExpired => "continue token expired",
            WatchRefused => "watch refused",
            WatchError => "watch ends with an error",
            WatchEnded => "watch ends early",
            WatchCut => "watch cut within an event",
            WatchGarbled => "watch garbled",
            EventGarbled => "event garbled",
            WatchStalled => "watch stalls",
            OpenWatchesCut => "open watches cut",
            OpenWatchesEnded => "open watches ended",
            OpenWatchesGarbled => "open watches garbled",
            OpenWatchesError => "open watches end with an error",
            OpenWatchesStalled => "open watches stall",
        }
    }

    /// Whether the informer may treat an object as unreadable.
    pub(crate) fn garbles_objects(self) -> bool {
        matches!(self, ListGarbled | EventGarbled)
    }

    /// Plants the fault and returns its description.
    pub(crate) fn plant(self, server: &ApiServer, random: &mut Random) -> String {
        let bytes = random.below(600);
        let events = random.below(4);
        let code = random.pick(&[403, 410, 429, 500, 503, 504]);
        let error = random.pick(&[410, 429, 500, 504]);
        let list = |fault: Fault| server.fail_next(fault.on(Verb::List));
        let watch = |fault: Fault| server.fail_next(fault.on(Verb::Watch));
        let details = match self {
            ListRefused | WatchRefused => format!(" with {code}"),
            ListTruncated | ListReset | ListGarbled => format!(" after {bytes} bytes"),
            WatchError | OpenWatchesError => format!(" {error} after {events} events"),
            WatchEnded | WatchCut | WatchGarbled | EventGarbled | WatchStalled => {
                format!(" after {events} events")
            }
            _ => String::new(),
        };
        match self {
            ListRefused => list(Fault::status(code)),
            ListTruncated => list(Fault::close().after_bytes(bytes)),
            ListReset => list(Fault::reset().after_bytes(bytes)),
            ListSlow => list(Fault::delay(Duration::from_millis(5)).times(1 + events)),
            ListGarbled => list(Fault::garbage(GARBAGE).after_bytes(bytes)),
            ContinueExpired => {
                list(Fault::status(410).when(|request| request.param("continue").is_some()));
            }
            WatchRefused => watch(Fault::status(code)),
            WatchError => watch(Fault::status(error).after_events(events)),
            WatchEnded => watch(Fault::end_watch().after_events(events)),
            WatchCut => watch(Fault::close().after_events(events).after_bytes(bytes % 100)),
            EventGarbled => watch(
                Fault::garbage(GARBAGE)
                    .after_events(events)
                    .after_bytes(bytes % 300),
            ),
            WatchGarbled => watch(Fault::garbage("{no json\n").after_events(events)),
            // The informer waits half a minute for a stalled watch-list, so only plain watches
            // stall.
            WatchStalled => {
                let stall = Fault::stall().after_events(1 + events);
                watch(stall.when(|request| request.param("sendInitialEvents").is_none()));
            }
            OpenWatchesCut => drop(server.cut_watches()),
            OpenWatchesEnded => drop(server.close_watches()),
            OpenWatchesGarbled => drop(server.write_to_watches("{no json\n")),
            OpenWatchesError => drop(server.fail_watches(&Fault::status(error))),
            OpenWatchesStalled => {
                let stall =
                    Fault::stall().when(|request| request.param("sendInitialEvents").is_none());
                server.fail_watches(&stall);
            }
        }
        format!("fault: {}{details}", self.name())
    }
}
