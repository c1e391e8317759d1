//! Who owns which fields: the entries of `metadata.managedFields`, and how writes change them. The
//! rules are those of kube-apiserver's field manager.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::field_set::{Changes, FieldSet, Path};
use super::http::Head;
use super::keyed_lists::KeyedLists;
use super::object::Content;
use super::object_rules::is_namespace;
use super::resources::ApiResource;
use super::schema;

/// The manager of the fields that a test writes through the methods of the server.
pub(crate) const TEST: &str = "k8s-informer-testing";

/// The owner of all fields that an object without managers has before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The maximum length of the name of a manager in bytes.
const MAX_NAME: usize = 128;

/// Fields of the metadata that nothing owns.
pub(crate) const NOT_OWNED: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Returns the field manager of a create, update or patch: that of the request, else the user agent
/// before the first slash.
pub(crate) fn manager_of(head: &Head) -> String {
    if let Some(manager) = head.param("fieldManager").filter(|name| !name.is_empty()) {
        return manager.to_owned();
    }
    let agent = head.header("user-agent").unwrap_or_default();
    let agent = agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for printable in agent.chars().filter(|c| !c.is_control()) {
        if name.len() + printable.len_utf8() > MAX_NAME {
            break;
        }
        name.push(printable);
    }
    name
}

/// A write to an object or to one of its subresources.
#[derive(Clone, Copy)]
pub(crate) struct Authorship<'a> {
    pub(crate) manager: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    pub(crate) resource: &'a ApiResource,
    pub(crate) now: &'a str,
}

/// The managers of an object, each with its fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers(Vec<Entry>);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    operation: Operation,
    manager: String,
    api_version: String,
    subresource: String,
    time: Option<String>,
    pub(crate) fields: FieldSet,
}

/// Ordered as the entries of an object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Apply,
    /// A create, an update or a patch.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl Entry {
    pub(crate) fn applied(by: &Authorship<'_>, fields: FieldSet) -> Self {
        Self::new(Operation::Apply, by, fields)
    }

    fn new(operation: Operation, by: &Authorship<'_>, fields: FieldSet) -> Self {
        Self {
            operation,
            manager: by.manager.to_owned(),
            api_version: by.resource.api_version(),
            subresource: by.subresource.to_owned(),
            time: Some(by.now.to_owned()),
            fields,
        }
    }

    /// Returns `None` if the entry is invalid.
    fn decode(entry: &Value) -> Option<Self> {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() || entry["fieldsType"] != "FieldsV1" {
            return None;
        }
        Some(Self {
            operation,
            manager: text("manager"),
            api_version,
            subresource: text("subresource"),
            time: entry["time"].as_str().map(str::to_owned),
            fields: FieldSet::of_object(&entry["fieldsV1"]),
        })
    }

    fn encode(&self) -> Value {
        let mut entry = json!({
            "operation": self.operation.name(),
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        for (field, text) in [
            ("manager", &self.manager),
            ("subresource", &self.subresource),
            ("time", self.time.as_ref().unwrap_or(&String::new())),
        ] {
            if !text.is_empty() {
                entry[field] = text.as_str().into();
            }
        }
        entry
    }

    /// Whether this is the entry of a manager. One manager applies in all versions, but updates in
    /// one.
    fn is_of(&self, operation: Operation, by: &Authorship<'_>) -> bool {
        (self.operation, &*self.manager, &*self.subresource)
            == (operation, by.manager, by.subresource)
            && (operation == Operation::Apply || self.api_version == by.resource.api_version())
    }

    /// The name of the manager in a conflict, as in kube-apiserver.
    fn description(&self) -> String {
        let mut text = json!(self.manager).to_string();
        if !self.subresource.is_empty() {
            let _ = write!(text, " with subresource {}", json!(self.subresource));
        }
        if self.operation == Operation::Update {
            let _ = write!(text, " using {}", self.api_version);
        }
        text
    }
}

/// What the object in a request says about the managers.
enum Requested {
    Managers(Managers),
    /// Nothing, or nothing valid: the managers stay as they are. This protects from clients that do
    /// not know the field.
    Unchanged,
    /// The list is empty, or has one empty entry: the object loses its managers.
    Reset,
}

impl Requested {
    fn of(managed_fields: Option<&Value>) -> Self {
        let Some(Value::Array(entries)) = managed_fields else {
            return Self::Unchanged;
        };
        if entries.is_empty() || *entries == [json!({})] {
            return Self::Reset;
        }
        Managers::decode(managed_fields).map_or(Self::Unchanged, Self::Managers)
    }
}

impl Managers {
    /// Returns the managers of a stored object. An object with an invalid entry has none.
    pub(crate) fn of(managed_fields: Option<&Value>) -> Self {
        Self::decode(managed_fields).unwrap_or_default()
    }

    fn decode(managed_fields: Option<&Value>) -> Option<Self> {
        let entries = managed_fields
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        entries.map(Entry::decode).collect::<Option<_>>().map(Self)
    }

    /// Returns the managers for an update of an object that is stored with `live`: those of the
    /// request, if it changes them.
    pub(crate) fn for_update(live: Option<&Value>, requested: Option<&Value>) -> Self {
        match Requested::of(requested) {
            Requested::Managers(managers) => managers,
            Requested::Unchanged => Self::of(live),
            Requested::Reset => Self::default(),
        }
    }

    /// Returns the entries in their order: applies first, then by time.
    pub(crate) fn encode(mut self) -> Vec<Value> {
        self.0.sort_by(|a, b| {
            let order = |entry: &Entry| (entry.operation, entry.time.clone());
            let names = |entry: &Entry| {
                let names = [&entry.manager, &entry.api_version, &entry.subresource];
                names.map(String::clone)
            };
            order(a)
                .cmp(&order(b))
                .then_with(|| names(a).cmp(&names(b)))
        });
        self.0.iter().map(Entry::encode).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the fields that a create, an update or a patch has set to its manager. All others lose
    /// them, and nothing owns the removed ones.
    pub(crate) fn update(&mut self, changes: &Changes, by: &Authorship<'_>) {
        self.release(&changes.set);
        self.release(&changes.removed);
        if changes.set.is_empty() {
            return;
        }
        let mut entries = self.0.iter_mut();
        match entries.find(|entry| entry.is_of(Operation::Update, by)) {
            Some(entry) => {
                entry.fields.add(&changes.set);
                entry.time = Some(by.now.to_owned());
            }
            None => {
                let entry = Entry::new(Operation::Update, by, changes.set.clone());
                self.0.push(entry);
            }
        }
    }

    /// Gives everything that an object without managers has to one manager, before its first apply.
    pub(crate) fn begin(&mut self, live: &Content, lists: &KeyedLists, by: &Authorship<'_>) {
        let changes = changes_between(None, live, lists, by.resource);
        let mut changes = changes.unwrap_or_default();
        let of_status = changes.take("f:status");
        let changes = match by.subresource {
            "status" => of_status,
            _ => changes,
        };
        let manager = BEFORE_FIRST_APPLY;
        self.update(&changes, &Authorship { manager, ..*by });
    }

    /// Removes the entry of the manager of an apply.
    pub(crate) fn take_applied(&mut self, by: &Authorship<'_>) -> Option<Entry> {
        let mut entries = self.0.iter();
        let at = entries.position(|entry| entry.is_of(Operation::Apply, by))?;
        Some(self.0.remove(at))
    }

    pub(crate) fn own(&self, path: &[String]) -> bool {
        self.0.iter().any(|entry| entry.fields.contains(path))
    }

    /// Returns the managers of these fields: how a conflict names the manager, and the field.
    pub(crate) fn owners<'a>(&self, paths: &[&'a Path]) -> Vec<(String, &'a Path)> {
        let mut owners = Vec::new();
        for entry in &self.0 {
            let owned = paths.iter().filter(|path| entry.fields.contains(path));
            owners.extend(owned.map(|path| (entry.description(), *path)));
        }
        owners
    }

    /// Removes all owners of these fields, and the managers that have no others.
    pub(crate) fn release(&mut self, fields: &FieldSet) {
        self.0.retain_mut(|entry| {
            let has_lost = entry.fields.remove(fields);
            !(has_lost && entry.fields.is_empty())
        });
    }

    pub(crate) fn put(&mut self, entry: Entry) {
        if !entry.fields.is_empty() {
            self.0.push(entry);
        }
    }
}

/// Returns the lists whose items have owners of their own.
pub(crate) fn keyed_lists(resource: &ApiResource) -> KeyedLists {
    let lists = match resource.custom {
        true => resource.keyed_lists.clone(),
        false => KeyedLists::conditions(),
    };
    lists.and_metadata()
}

/// Returns what a write has changed of the fields that can have an owner. `before` is `None` for a
/// new object. Returns `None` if nothing has changed.
pub(crate) fn changes_between(
    before: Option<&Content>,
    after: &Content,
    lists: &KeyedLists,
    resource: &ApiResource,
) -> Option<Changes> {
    let nothing = Content::new();
    let old = before.unwrap_or(&nothing);
    let mut changes = match schema::is_converted(resource) {
        true => Changes::of_object(&schema::encode(old), &schema::encode(after), lists),
        false => Changes::of_object(old, after, lists),
    };
    for set in [&mut changes.set, &mut changes.removed] {
        let mut metadata = set.take_child("f:metadata").without_itself();
        for field in NOT_OWNED {
            metadata.take_child(&format!("f:{field}"));
        }
        set.insert("f:metadata".to_owned(), metadata);
        // The server sets the finalizers of a new namespace.
        if before.is_none() && is_namespace(resource) {
            set.take_child("f:spec");
        }
    }
    (changes != Changes::default()).then_some(changes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn head(query: &[(&str, &str)], agent: Option<&str>) -> Head {
        let pair = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        Head {
            method: "POST".to_owned(),
            path: String::new(),
            query: query.iter().copied().map(pair).collect(),
            headers: agent
                .map(|agent| pair(("User-Agent", agent)))
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn manager_is_that_of_the_request_or_the_user_agent() {
        let agent = Some("curl/8.1 (linux)");
        assert_eq!(manager_of(&head(&[("fieldManager", "me")], agent)), "me");
        assert_eq!(manager_of(&head(&[("fieldManager", "")], agent)), "curl");
        assert_eq!(manager_of(&head(&[], None)), "");
        assert_eq!(manager_of(&head(&[], Some("a\tb"))), "ab");
        let long = "ä".repeat(100);
        assert_eq!(manager_of(&head(&[], Some(&long))), "ä".repeat(64));
    }

    #[test]
    fn invalid_entries_leave_the_managers_unchanged() {
        let entry = |operation: &str, version: &str, kind: &str| json!([{"manager": "m", "operation": operation, "apiVersion": version, "fieldsType": kind, "fieldsV1": {"f:a": {}}}]);
        let live = entry("Update", "v1", "FieldsV1");
        let update =
            |requested: &Value| Managers::for_update(Some(&live), Some(requested)).encode();
        for invalid in [
            entry("Patch", "v1", "FieldsV1"),
            entry("Apply", "", "FieldsV1"),
            entry("Apply", "v1", ""),
            json!([{}, {}]),
            json!(null),
            json!("text"),
        ] {
            assert_eq!(json!(update(&invalid)), live, "{invalid}");
        }
        let applied = entry("Apply", "v1", "FieldsV1");
        assert_eq!(json!(update(&applied)), applied);
        for reset in [json!([]), json!([{}])] {
            assert!(update(&reset).is_empty(), "{reset}");
        }
    }
}
