use super::SplitError;
use crate::json::{MAX_NESTING, nesting};

/// How large what a server sends may be. What is larger ends the request with an error.
///
/// The head of an answer may have 32 KiB; that is the client's.
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
    /// How many bytes one object of a list, one event of a watch, and a list without its objects may have:
    /// 32 MiB. etcd takes 1.5 MiB by default, and the API server 3 MiB.
    pub object_bytes: usize,
    /// How many bytes a resourceVersion may have that a reflector continues from: 1024. An API server's have at
    /// most 20. Requests repeat it, and one that is too long to be sent, or to be accepted, would end the
    /// view. Of an event or a bookmark a longer one is ignored and reported; a list with one fails.
    pub resource_version_bytes: usize,
    /// How deep arrays and objects may be nested in an object: 127, which is also the most. What a type does
    /// not decode may go deeper, unless less is asked for here.
    ///
    /// The deepest-going types of Kubernetes, the schemas of CustomResourceDefinitions, then take up to
    /// 2.1 MiB of stack in a build without optimization. A [`DynamicObject`](crate::DynamicObject) takes none.
    /// The thread on which an informer decodes has 4 MiB; one that runs a [`Reflector`](crate::reflector::Reflector)
    /// by itself has to have enough. An `Api`, a `Response` and a
    /// [`DynamicObject`](crate::DynamicObject) decode on any thread: what is nested more than 32 levels deep is
    /// decoded on a thread of its own, with 8 MiB.
    pub nesting: usize,
}

impl DecodeLimits {
    /// Whether a resourceVersion is longer than allowed.
    pub(crate) fn check_resource_version(&self, version: &str) -> Result<(), SplitError> {
        match self.resource_version_bytes {
            limit if version.len() > limit => Err(SplitError::TooLarge {
                what: "a resourceVersion",
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// Whether an object is nested deeper than allowed.
    pub(crate) fn check_nesting(&self, object: &[u8]) -> Result<(), SplitError> {
        // serde_json checks for the default by itself.
        let limit = self.nesting;
        if limit < MAX_NESTING && nesting(object) > limit {
            Err(SplitError::TooDeep { limit })
        } else {
            Ok(())
        }
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            object_bytes: 32 << 20,
            resource_version_bytes: 1024,
            nesting: MAX_NESTING,
        }
    }
}
