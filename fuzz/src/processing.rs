//! The ways in which a consumer's callback ends, and the matching results of a pop.

use arbitrary::Arbitrary;
use k8s_informer::queue::{Origin, PopError, ProcessError, Requeue};

use super::item::Failure;

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum End {
    Succeeds,
    Fails,
    Panics,
    Requeues,
    RequeuesBecause,
}

impl End {
    /// Ends the callback.
    pub fn trigger(self) -> Result<(), ProcessError> {
        match self {
            Self::Succeeds => Ok(()),
            Self::Fails => Err(Failure::Message.trigger().into()),
            Self::Panics => Err(Failure::Panics.trigger().into()),
            Self::Requeues => Err(Requeue::new().into()),
            Self::RequeuesBecause => Err(Requeue::because(Failure::Message.trigger()).into()),
        }
    }

    /// Whether the callback requests its items again.
    pub fn requeues(self) -> bool {
        matches!(self, Self::Requeues | Self::RequeuesBecause)
    }

    /// Checks that the result of a pop reports this end. Returns what was popped.
    pub fn popped<P>(self, result: Result<P, PopError<P>>) -> P {
        match (result, self) {
            (Ok(popped), Self::Succeeds | Self::Requeues) => popped,
            (
                Err(PopError::Process { popped, error }),
                Self::Fails | Self::Panics | Self::RequeuesBecause,
            ) => {
                let message = if self == Self::Panics {
                    "panicked: boom"
                } else {
                    "user failure"
                };
                assert_eq!(error.to_string(), message);
                popped
            }
            (Ok(_), _) => panic!("{self:?} is missing in the result"),
            (Err(error), _) => panic!("{self:?} led to {error:?}"),
        }
    }
}

/// Returns the origin of the next item of a queue that has synced or not.
pub fn expected_origin(has_synced: bool) -> Origin {
    match has_synced {
        true => Origin::Later,
        false => Origin::InitialList,
    }
}
