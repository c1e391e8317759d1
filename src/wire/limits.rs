use super::SplitError;
use crate::base::derive::setters;
use crate::json::{MAX_NESTING, nesting};

/// Limits on the data from a server.
///
/// The head of a response is limited to 32 KiB by the client, not by these options.
///
/// ```
/// use k8s_informer::reflector::{DecodeLimits, ReflectorOptions};
///
/// let mut options = ReflectorOptions::default();
/// assert_eq!((options.limits.object_bytes, options.limits.nesting), (32 << 20, 127));
/// options.limits.object_bytes = 4 << 20;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// The maximum size in bytes of an object in a list, of a watch event, and of a list without
    /// its objects. The default is 32 MiB. etcd accepts 1.5 MiB by default, and the API server 3
    /// MiB.
    ///
    /// A larger object is unreadable: it is reported and left out, like one that cannot be decoded,
    /// and the list or watch continues. Only its beginning is held in memory, up to the limit; its
    /// name and version are usually there. An object of more than 64 times the limit (2 GiB by
    /// default) fails the list, or ends the watch. So does a list that is too large without its
    /// objects.
    pub object_bytes: usize,
    /// The maximum nesting depth of arrays and objects in an object. A deeper object is reported and
    /// left out, like any other that cannot be decoded. The default is 127, which is also the
    /// maximum. Fields that a type does not decode may be nested deeper, unless you set a
    /// lower limit.
    ///
    /// With the default, the most deeply nested types of Kubernetes, the schemas of
    /// CustomResourceDefinitions, take up to 2.1 MiB of stack in an unoptimized build. A
    /// [`DynamicObject`](crate::DynamicObject) takes none. By default, an informer decodes on a
    /// thread with 4 MiB. If you run a [`Reflector`](crate::reflector::Reflector) without an
    /// informer, your thread must have a large enough stack.
    ///
    /// An `Api`, a `Response` and a [`DynamicObject`](crate::DynamicObject) decode on any thread.
    /// They decode objects with more than 32 levels on a separate thread with 8 MiB.
    pub nesting: usize,
}

/// An object is skipped if it is at most this many times larger than the limit. So a response that
/// never ends is not read forever.
const SKIPPED_TIMES: usize = 64;

/// Returns the maximum size of an object that is skipped because it is larger than `limit`.
pub(super) fn max_skipped(limit: usize) -> usize {
    limit.saturating_mul(SKIPPED_TIMES)
}

impl DecodeLimits {
    /// Fails if an object is nested deeper than allowed.
    pub(crate) fn check_nesting(&self, object: &[u8]) -> Result<(), SplitError> {
        // serde_json checks the default limit, so only a lower limit is checked here.
        let limit = self.nesting;
        if limit < MAX_NESTING && nesting(object) > limit {
            Err(SplitError::TooDeep { limit })
        } else {
            Ok(())
        }
    }
}

impl DecodeLimits {
    /// Creates the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the maximum size [in bytes](Self#structfield.object_bytes) of an object.
        object_bytes(bytes: usize) = bytes;
        /// Sets the maximum [nesting depth](Self#structfield.nesting) of arrays and objects.
        nesting(depth: usize) = depth;
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            object_bytes: 32 << 20,
            nesting: MAX_NESTING,
        }
    }
}
