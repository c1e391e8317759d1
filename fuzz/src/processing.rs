//! The ways in which a consumer's callback ends, and the matching results of a pop.

use arbitrary::Arbitrary;
use k8s_informer::queue::{PopError, ProcessError, Requeue};

use super::item::Failure;

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum End {
    Well,
    Fails,
    Panics,
    Again,
    AgainBecause,
}

impl End {
    /// Ends the callback.
    pub fn happen(self) -> Result<(), ProcessError> {
        match self {
            Self::Well => Ok(()),
            Self::Fails => Err(Failure::Says.happen().into()),
            Self::Panics => Err(Failure::Panics.happen().into()),
            Self::Again => Err(Requeue::new().into()),
            Self::AgainBecause => Err(Requeue::because(Failure::Says.happen()).into()),
        }
    }

    /// Whether the popped items are requeued.
    pub fn is_again(self) -> bool {
        matches!(self, Self::Again | Self::AgainBecause)
    }

    /// Checks that the result of a pop reports this end. Returns what was popped.
    pub fn popped<P>(self, result: Result<P, PopError<P>>) -> P {
        match (result, self) {
            (Ok(popped), Self::Well | Self::Again) => popped,
            (
                Err(PopError::Process { popped, error }),
                Self::Fails | Self::Panics | Self::AgainBecause,
            ) => {
                let said = if self == Self::Panics {
                    "panicked: boom"
                } else {
                    "says no"
                };
                assert_eq!(error.to_string(), said);
                popped
            }
            (Ok(_), _) => panic!("{self:?} is not told"),
            (Err(error), _) => panic!("{self:?} gave {error:?}"),
        }
    }
}
