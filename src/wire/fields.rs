#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::error::debug_as_display;
use crate::json::{Path, Step, cut_fields};

/// Fields that a reflector removes from every object before it decodes the object, so that they
/// never take memory.
///
/// Each field is given as a JSON pointer (RFC 6901). In this crate, `*` in a pointer stands for
/// every key or element. Do not skip fields that the type requires. If elements of an array are
/// skipped, the later elements move up.
///
/// Skipped content is only checked for closed brackets and strings. It is not validated otherwise. A
/// change of skipped fields alone is not a change: if the resource version is the same, a list keeps
/// the cached object.
///
/// ```
/// use k8s_informer::reflector::{FieldPaths, ReflectorOptions};
///
/// let mut options = ReflectorOptions::default();
/// options.skip = FieldPaths::managed_fields();
/// options.skip = FieldPaths::new([
///     "/metadata/managedFields",
///     "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
///     "/spec/containers/*/env",
/// ])?;
/// assert!(FieldPaths::new(["metadata.managedFields"]).is_err());
/// # Ok::<(), k8s_informer::reflector::FieldPathError>(())
/// ```
#[derive(Clone, Default)]
#[doc(alias = "WithTransform")]
pub struct FieldPaths {
    paths: Arc<[Path]>,
}

impl FieldPaths {
    /// Parses JSON pointers.
    ///
    /// # Errors
    ///
    /// [`FieldPathError`] if a pointer does not begin with a slash, or if a tilde in it is not
    /// followed by 0 or 1.
    pub fn new<P: AsRef<str>>(
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, FieldPathError> {
        let paths = pointers.into_iter().map(|pointer| path(pointer.as_ref()));
        Ok(Self {
            paths: paths.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the path of `metadata.managedFields`, the record of field managers. It is often half
    /// of an object. Skipping it also saves time for types without this field, because skipping is
    /// cheaper than decoding.
    pub fn managed_fields() -> Self {
        Self {
            paths: Arc::new([["metadata", "managedFields"].map(Step::new).into()]),
        }
    }

    /// Whether this field of the outermost object is skipped.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.paths
            .iter()
            .any(|path| matches!(&path[..], [step] if step.is_any() || step.key == field))
    }

    /// Returns the object without these fields. It returns `object` itself if the object has none
    /// of them, and `scratch` otherwise. Invalid bytes are returned unchanged and fail to decode.
    ///
    /// If a key occurs more than once, every occurrence of a skipped field is removed. Longer paths
    /// only follow the first occurrence. No API server sends duplicate keys, and most types reject
    /// them.
    pub(crate) fn cut<'a>(&self, object: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if self.paths.is_empty() {
            return object;
        }
        cut_fields(&self.paths, object, scratch)
    }
}

fn path(pointer: &str) -> Result<Path, FieldPathError> {
    let error = |problem| FieldPathError {
        pointer: pointer.to_owned(),
        problem,
    };
    let steps = pointer
        .strip_prefix('/')
        .ok_or_else(|| error("it must begin with a slash"))?;
    if pointer
        .split('~')
        .skip(1)
        .any(|rest| !rest.starts_with(['0', '1']))
    {
        return Err(error(
            "a tilde must be followed by 0 (for a tilde) or 1 (for a slash)",
        ));
    }
    Ok(steps
        .split('/')
        .map(|token| Step::new(token.to_owned()))
        .collect())
}

impl fmt::Debug for FieldPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = |path: &Path| {
            path.iter()
                .map(|step| format!("/{}", step.key.replace('~', "~0").replace('/', "~1")))
                .collect()
        };
        f.debug_list()
            .entries(self.paths.iter().map(pointer as fn(&Path) -> String))
            .finish()
    }
}

/// The error of a string that is not a JSON pointer to a field.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldPathError {
    pointer: String,
    problem: &'static str,
}

impl fmt::Display for FieldPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, problem } = self;
        write!(f, "{pointer:?} is not a JSON pointer to a field: {problem}")
    }
}

impl std::error::Error for FieldPathError {}

debug_as_display!(FieldPathError);
