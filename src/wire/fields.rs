mod cut;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::error::debug_as_display;

/// Fields that a reflector leaves out of every object while it decodes: they never take memory.
///
/// Each is named by a JSON pointer (RFC 6901) in which `*` stands for every element or key at its place.
/// What is required by the type must not be left out. Elements of an array that are left out are gone: what
/// follows them moves up.
///
/// What is left out is not looked at: it may be anything that ends where its brackets are closed.
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
    paths: Arc<[Vec<Step>]>,
}

/// One step of a path, from a value to one that it holds.
#[derive(Debug)]
struct Step {
    /// The key in an object, or `*`.
    key: Box<str>,
    /// The index in an array.
    index: Option<usize>,
}

impl FieldPaths {
    /// From JSON pointers.
    ///
    /// # Errors
    ///
    /// If one is empty or does not begin with a slash, or if in one a tilde is not followed by 0 or 1.
    pub fn new<P: AsRef<str>>(
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, FieldPathError> {
        let paths = pointers.into_iter().map(|pointer| path(pointer.as_ref()));
        Ok(Self {
            paths: paths.collect::<Result<_, _>>()?,
        })
    }

    /// `metadata.managedFields`: who wrote which field, often half of an object. To leave them out is cheaper
    /// also where the type has no field for them, since they are not decoded to be thrown away.
    pub fn managed_fields() -> Self {
        Self {
            paths: Arc::new([["metadata", "managedFields"].map(Step::new).into()]),
        }
    }

    /// Whether this field of the outermost object is left out.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.paths
            .iter()
            .any(|path| matches!(&path[..], [step] if step.is_any() || &*step.key == field))
    }

    /// The object without these fields: `object` itself if it has none of them, else what stands in `room`
    /// afterwards. Bytes that are not understood are left as they are, for whoever decodes them.
    ///
    /// A key that is there twice is left out twice. Of two keys that both lead to a field only the first one
    /// is followed, so that the search can end there: no API server sends that, and most types refuse it.
    pub(crate) fn cut<'a>(&self, object: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        if self.paths.is_empty() {
            return object;
        }
        cut::cut(&self.paths, object, room)
    }
}

fn path(pointer: &str) -> Result<Vec<Step>, FieldPathError> {
    let error = |problem| FieldPathError {
        pointer: pointer.to_owned(),
        problem,
    };
    let steps = pointer
        .strip_prefix('/')
        .ok_or_else(|| error(Problem::NoSlash))?;
    if pointer
        .split('~')
        .skip(1)
        .any(|rest| !rest.starts_with(['0', '1']))
    {
        return Err(error(Problem::Tilde));
    }
    Ok(steps
        .split('/')
        .map(|step| Step::new(&step.replace("~1", "/").replace("~0", "~")))
        .collect())
}

impl Step {
    fn new(key: &str) -> Self {
        // Neither "+1" nor "01" is an index.
        let index = key
            .parse()
            .ok()
            .filter(|index: &usize| index.to_string() == key);
        Self {
            key: key.into(),
            index,
        }
    }

    /// Whether it stands for everything at its place.
    fn is_any(&self) -> bool {
        &*self.key == "*"
    }
}

impl fmt::Debug for FieldPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = |path: &Vec<Step>| {
            path.iter()
                .map(|step| format!("/{}", step.key.replace('~', "~0").replace('/', "~1")))
                .collect()
        };
        f.debug_list()
            .entries(self.paths.iter().map(pointer as fn(&Vec<Step>) -> String))
            .finish()
    }
}

/// A string is no JSON pointer to a field.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldPathError {
    pointer: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    NoSlash,
    Tilde,
}

impl fmt::Display for FieldPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            Problem::NoSlash => "it has to begin with a slash",
            Problem::Tilde => "a tilde has to be followed by 0, for a tilde, or 1, for a slash",
        };
        write!(
            f,
            "{:?} is no JSON pointer to a field: {problem}",
            self.pointer
        )
    }
}

impl std::error::Error for FieldPathError {}

debug_as_display!(FieldPathError);
