use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rfc3339;
use k8s_informer::__private::UnixTime;

/// The list of [`Condition`]s in the status of an object. It has one condition for each type.
///
/// Use it as a field of the status of a custom struct. In JSON it is a list; an absent list needs
/// `#[serde(default)]` on the field, and `null` is empty. The methods follow apimachinery's
/// `meta.SetStatusCondition`, and change only this value: write the status when it differs from the
/// one that you read.
///
/// Equality ignores the times, so a retry with the same result does not differ:
///
/// ```
/// use k8s_informer_controller::{Condition, Conditions};
/// use serde::{Deserialize, Serialize};
/// use std::time::{Duration, SystemTime};
///
/// #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
/// #[serde(default)]
/// struct TeamStatus {
///     members: u32,
///     conditions: Conditions,
/// }
///
/// let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
/// let mut status = TeamStatus { members: 3, ..TeamStatus::default() };
/// assert!(status.conditions.set(Condition::new("Ready", true, "AllJoined", "3 of 3"), start));
/// assert_eq!(
///     serde_json::to_string(&status)?,
///     concat!(
///         r#"{"members":3,"conditions":[{"type":"Ready","status":"True","#,
///         r#""lastTransitionTime":"2023-11-14T22:13:20Z","reason":"AllJoined","message":"3 of 3"}]}"#
///     )
/// );
///
/// let mut retried = status.clone();
/// let later = start + Duration::from_secs(60);
/// assert!(!retried.conditions.set(Condition::new("Ready", true, "AllJoined", "3 of 3"), later));
/// assert!(retried == status, "nothing to write");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Schemas
///
/// The type has no `JsonSchema`. In a status with a derived schema (schemars, kube's derive), name
/// the type of the list in JSON, that of k8s-openapi with its feature `schemars`:
///
/// ```rs
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
///
/// #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
/// struct TeamStatus {
///     #[serde(default)]
///     #[schemars(with = "Vec<Condition>")]
///     conditions: Conditions,
/// }
/// ```
///
/// # Avoid writes at each retry
///
/// A message that differs at each attempt, for example an error with a time or an address, makes
/// the status differ each time. Each write of the status then starts the next attempt at once. Set
/// such a condition with [`set_unless_same_reason`](Self::set_unless_same_reason).
///
/// # Unusual lists
///
/// Some objects have several conditions of one type, if their definition does not prevent it. Then
/// the first one counts. Fields that a `metav1.Condition` does not have are dropped, such as the
/// `lastProbeTime` of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// Creates an empty list.
    ///
    /// ```
    /// use k8s_informer_controller::Conditions;
    ///
    /// assert!(Conditions::new().is_empty());
    /// ```
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a condition, or updates the one of the same type in place. Returns whether the list
    /// changed. apimachinery's `meta.SetStatusCondition`.
    ///
    /// `now` becomes the time of the last transition if the condition is new or its status changes,
    /// unless `condition` has a time. Otherwise the time stays.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    /// use std::time::{Duration, SystemTime};
    ///
    /// let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    /// let mut conditions = Conditions::new();
    /// conditions.set(Condition::new("Ready", false, "NoMembers", ""), at(1));
    /// // The same status for another reason is a change, but not a transition.
    /// assert!(conditions.set(Condition::new("Ready", false, "Joining", "1 of 3"), at(2)));
    /// assert_eq!(conditions.get("Ready").unwrap().last_transition_time, Some(at(1)));
    /// assert!(conditions.set(Condition::new("Ready", true, "AllJoined", "3 of 3"), at(3)));
    /// assert_eq!(conditions.get("Ready").unwrap().last_transition_time, Some(at(3)));
    /// ```
    pub fn set(&mut self, condition: Condition, now: SystemTime) -> bool {
        let since = condition.last_transition_time.unwrap_or(now);
        let mut all = self.0.iter_mut();
        let Some(old) = all.find(|old| old.type_ == condition.type_) else {
            self.0.push(condition.since(since));
            return true;
        };
        if *old == condition {
            return false;
        }
        let kept = old
            .last_transition_time
            .filter(|_| old.status == condition.status);
        *old = condition.since(kept.unwrap_or(since));
        true
    }

    /// Like [`set`](Self::set), but keeps the old message while status and reason stay the same.
    /// Use it for errors, whose text can differ at each attempt.
    ///
    /// The observed generation is updated, with the message, when it changes.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    /// use std::time::SystemTime;
    ///
    /// let mut conditions = Conditions::new();
    /// let failed = |text: &str| Condition::new("Ready", false, "BucketFailed", text);
    /// let now = SystemTime::now();
    /// assert!(conditions.set_unless_same_reason(failed("timeout on port 40001"), now));
    /// assert!(!conditions.set_unless_same_reason(failed("timeout on port 40002"), now));
    /// assert_eq!(conditions.get("Ready").unwrap().message, "timeout on port 40001");
    /// ```
    pub fn set_unless_same_reason(&mut self, condition: Condition, now: SystemTime) -> bool {
        let is_same = self.get(&condition.type_).is_some_and(|old| {
            old.status == condition.status
                && old.reason == condition.reason
                && old.observed_generation == condition.observed_generation
        });
        !is_same && self.set(condition, now)
    }

    /// Sets the conditions of an object that is in its desired state: `Reconciling` and `Stalled`
    /// are `False`. Returns whether the list changed.
    ///
    /// This method, [`set_reconciling`](Self::set_reconciling) and [`set_stalled`](Self::set_stalled)
    /// set the conditions that kstatus reads, for example in Flux and Helm. `generation` is the
    /// `metadata.generation` of the object, or 0.
    ///
    /// ```
    /// use k8s_informer_controller::Conditions;
    /// use std::time::SystemTime;
    ///
    /// let (mut conditions, now) = (Conditions::new(), SystemTime::now());
    /// assert!(conditions.set_reconciling("Joining", "1 of 3", 7, now));
    /// assert!(conditions.is_true("Reconciling") && !conditions.is_true("Stalled"));
    /// assert!(conditions.set_stalled("NoQuota", "the limit is 2 members", 7, now));
    /// assert!(!conditions.is_true("Reconciling") && conditions.is_true("Stalled"));
    /// assert!(conditions.set_current(7, now));
    /// assert!(!conditions.is_true("Reconciling") && !conditions.is_true("Stalled"));
    /// assert!(!conditions.set_current(7, now));
    /// ```
    pub fn set_current(&mut self, generation: i64, now: SystemTime) -> bool {
        self.set_progress([None, None], "Current", generation, now)
    }

    /// Sets the conditions of an object that is on its way to the desired state: `Reconciling` is
    /// `True`, and `Stalled` is `False`. Returns whether the list changed. See
    /// [`set_current`](Self::set_current).
    ///
    /// ```
    /// use k8s_informer_controller::Conditions;
    /// use std::time::SystemTime;
    ///
    /// let mut conditions = Conditions::new();
    /// assert!(conditions.set_reconciling("Joining", "1 of 3", 7, SystemTime::now()));
    /// assert!(conditions.is_true("Reconciling") && !conditions.is_true("Stalled"));
    /// assert!(conditions.set_reconciling("Joining", "2 of 3", 7, SystemTime::now()));
    /// ```
    pub fn set_reconciling(
        &mut self,
        reason: &str,
        message: &str,
        generation: i64,
        now: SystemTime,
    ) -> bool {
        self.set_progress([Some(message), None], reason, generation, now)
    }

    /// Sets the conditions of an object whose reconcile fails: `Reconciling` is `False`, and
    /// `Stalled` is `True`. Returns whether the list changed. The message stays while the reason
    /// does, as with [`set_unless_same_reason`](Self::set_unless_same_reason). See
    /// [`set_current`](Self::set_current).
    ///
    /// ```
    /// use k8s_informer_controller::Conditions;
    /// use std::time::SystemTime;
    ///
    /// let mut conditions = Conditions::new();
    /// assert!(conditions.set_stalled("NoAnswer", "timeout on port 40001", 7, SystemTime::now()));
    /// assert!(!conditions.is_true("Reconciling") && conditions.is_true("Stalled"));
    /// assert!(!conditions.set_stalled("NoAnswer", "timeout on port 40002", 7, SystemTime::now()));
    /// ```
    pub fn set_stalled(
        &mut self,
        reason: &str,
        message: &str,
        generation: i64,
        now: SystemTime,
    ) -> bool {
        self.set_progress([None, Some(message)], reason, generation, now)
    }

    /// Sets `Reconciling` and `Stalled` to `True` if they have a message, else to `False`.
    fn set_progress(
        &mut self,
        [reconciling, stalled]: [Option<&str>; 2],
        reason: &str,
        generation: i64,
        now: SystemTime,
    ) -> bool {
        let condition = |type_: &str, message: Option<&str>| {
            Condition::new(
                type_,
                message.is_some(),
                reason,
                message.unwrap_or_default(),
            )
            .observed_generation(generation)
        };
        let reconciling = self.set(condition("Reconciling", reconciling), now);
        self.set_unless_same_reason(condition("Stalled", stalled), now) || reconciling
    }

    /// Returns the condition of this type.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    ///
    /// let conditions = Conditions::from(vec![Condition::new("Ready", false, "NoMembers", "")]);
    /// assert_eq!(conditions.get("Ready").unwrap().reason, "NoMembers");
    /// assert_eq!(conditions.get("Healthy"), None);
    /// ```
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type exists and is `True`.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    ///
    /// let conditions = Conditions::from(vec![Condition::new("Ready", true, "AllJoined", "")]);
    /// assert!(conditions.is_true("Ready") && !conditions.is_true("Healthy"));
    /// ```
    pub fn is_true(&self, type_: &str) -> bool {
        self.get(type_)
            .is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Removes the condition of this type. Returns whether it existed. apimachinery's
    /// `meta.RemoveStatusCondition`.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    ///
    /// let mut conditions = Conditions::from(vec![Condition::new("Ready", true, "AllJoined", "")]);
    /// assert!(conditions.remove("Ready") && conditions.is_empty());
    /// assert!(!conditions.remove("Ready"));
    /// ```
    pub fn remove(&mut self, type_: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|condition| condition.type_ != type_);
        self.0.len() < before
    }

    /// Returns the conditions in the order of the list.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    ///
    /// let all = ["Ready", "Healthy"].map(|type_| Condition::new(type_, true, "Seen", ""));
    /// let conditions = Conditions::from(all.to_vec());
    /// assert!(conditions.iter().eq(&all));
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, Condition> {
        self.0.iter()
    }

    /// Whether there are no conditions. Use it as `skip_serializing_if`.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, Conditions};
    ///
    /// assert!(Conditions::default().is_empty());
    /// assert!(!Conditions::from(vec![Condition::new("Ready", true, "AllJoined", "")]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<Condition>> for Conditions {
    fn from(conditions: Vec<Condition>) -> Self {
        Self(conditions)
    }
}

impl<'a> IntoIterator for &'a Conditions {
    type Item = &'a Condition;
    type IntoIter = std::slice::Iter<'a, Condition>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'de> Deserialize<'de> for Conditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items: Vec<Option<Condition>> = null_is_default(deserializer)?;
        Ok(Self(
            items.into_iter().map(Option::unwrap_or_default).collect(),
        ))
    }
}

/// One aspect of the state of an object: `metav1.Condition`.
///
/// Equality ignores the time of the last transition; see [`Conditions`].
///
/// ```
/// use k8s_informer_controller::{Condition, ConditionStatus};
///
/// let ready: Condition = serde_json::from_str(
///     r#"{"type": "Ready", "status": "False", "reason": "NoMembers", "lastTransitionTime": "2024-01-02T03:04:05Z",
///         "message": null}"#)?;
/// assert_eq!(ready, Condition::new("Ready", ConditionStatus::False, "NoMembers", ""));
/// assert_ne!(ready, Condition::new("Ready", ConditionStatus::False, "NoMembers", "0 of 3"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Condition {
    /// The type, such as `Ready` or `example.com/Ready`.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: String,
    /// Whether the condition applies.
    #[serde(deserialize_with = "null_is_default")]
    pub status: ConditionStatus,
    /// The `metadata.generation` of the object for which the status was determined, or 0.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the status changed, in seconds. [`Conditions::set`] sets it.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<SystemTime>,
    /// The cause of the status, for programs. The usual schema requires a word in CamelCase. A
    /// server with this schema refuses other reasons with 422; this crate does not check them.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// The cause of the status, for people.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
}

impl Condition {
    /// The maximum length of a message in the schema of `metav1.Condition`, in characters.
    const MESSAGE: usize = 32_768;

    /// Creates a condition. A message with more than 32,768 characters is cut, because servers
    /// refuse it.
    ///
    /// ```
    /// use k8s_informer_controller::{Condition, ConditionStatus};
    ///
    /// let unknown = Condition::new("Healthy", ConditionStatus::Unknown, "NoAnswer", "timeout");
    /// assert_eq!((&*unknown.type_, &*unknown.message), ("Healthy", "timeout"));
    /// assert_eq!(Condition::new("Ready", true, "AllJoined", "").status, ConditionStatus::True);
    /// ```
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(Self::MESSAGE) {
            message.truncate(end);
        }
        Self {
            type_: type_.into(),
            status: status.into(),
            observed_generation: 0,
            last_transition_time: None,
            reason: reason.into(),
            message,
        }
    }

    /// Sets the generation for which the status was determined.
    ///
    /// ```
    /// use k8s_informer_controller::Condition;
    ///
    /// let ready = Condition::new("Ready", true, "AllJoined", "").observed_generation(7);
    /// assert_eq!(ready.observed_generation, 7);
    /// ```
    #[must_use]
    pub fn observed_generation(mut self, generation: i64) -> Self {
        self.observed_generation = generation;
        self
    }

    /// Sets the time of the last transition, in whole seconds as it is stored.
    fn since(mut self, time: SystemTime) -> Self {
        let whole = UnixTime {
            nanoseconds: 0,
            ..time.into()
        };
        self.last_transition_time = whole.to_system_time();
        self
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.type_ == other.type_
            && self.status == other.status
            && self.observed_generation == other.observed_generation
            && self.reason == other.reason
            && self.message == other.message
    }
}

impl Eq for Condition {}

/// The status of a [`Condition`]. Any other text counts as `Unknown`.
///
/// ```
/// use k8s_informer_controller::ConditionStatus;
///
/// assert_eq!(ConditionStatus::from(true), ConditionStatus::True);
/// assert_eq!(ConditionStatus::False.to_string(), "False");
/// assert_eq!(serde_json::from_str::<ConditionStatus>("\"\"")?, ConditionStatus::Unknown);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[expect(clippy::exhaustive_enums, reason = "the API has these three values")]
pub enum ConditionStatus {
    /// The condition applies.
    True,
    /// The condition does not apply.
    False,
    /// It is not known whether the condition applies.
    #[default]
    #[serde(other)]
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(applies: bool) -> Self {
        if applies { Self::True } else { Self::False }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(generation: &i64) -> bool {
    *generation == 0
}

/// `metav1.Time`.
mod time {
    use super::{Deserialize, Deserializer, Serializer, SystemTime, UnixTime, rfc3339};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => {
                let seconds = UnixTime::from(*time).seconds;
                serializer.serialize_str(&rfc3339::seconds(seconds))
            }
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let time = text.map_or(Ok(None), |text| UnixTime::parse(&text));
        let time = time.map_err(serde::de::Error::custom)?;
        Ok(time.and_then(UnixTime::to_system_time))
    }
}

#[cfg(feature = "k8s-openapi")]
mod openapi {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1;
    use k8s_openapi::jiff::Timestamp;

    use super::{Condition, ConditionStatus, Conditions, UnixTime};

    impl From<v1::Condition> for Condition {
        fn from(condition: v1::Condition) -> Self {
            let time = condition.last_transition_time.0;
            let known = UnixTime::parse(&time.to_string()).ok().flatten();
            Self {
                type_: condition.type_,
                status: match &*condition.status {
                    "True" => ConditionStatus::True,
                    "False" => ConditionStatus::False,
                    _ => ConditionStatus::Unknown,
                },
                observed_generation: condition.observed_generation.unwrap_or_default(),
                // The form of an absent time, as below.
                last_transition_time: known
                    .filter(|known| *known != UnixTime::EPOCH)
                    .and_then(UnixTime::to_system_time),
                reason: condition.reason,
                message: condition.message,
            }
        }
    }

    /// An absent time becomes the Unix epoch, because k8s-openapi requires a time. A time after the
    /// range of its type becomes the last one in it.
    impl From<Condition> for v1::Condition {
        fn from(condition: Condition) -> Self {
            let time = condition.last_transition_time;
            Self {
                type_: condition.type_,
                status: condition.status.to_string(),
                observed_generation: Some(condition.observed_generation).filter(|&it| it != 0),
                last_transition_time: v1::Time(time.map_or_else(Timestamp::default, |time| {
                    // Without the feature `std` of jiff, it does not convert a `SystemTime`.
                    let time = UnixTime::from(time);
                    let nanoseconds = time.nanoseconds.cast_signed();
                    Timestamp::new(time.seconds, nanoseconds).unwrap_or(Timestamp::MAX)
                })),
                reason: condition.reason,
                message: condition.message,
            }
        }
    }

    impl From<Vec<v1::Condition>> for Conditions {
        fn from(conditions: Vec<v1::Condition>) -> Self {
            Self(conditions.into_iter().map(Into::into).collect())
        }
    }

    impl From<Conditions> for Vec<v1::Condition> {
        fn from(conditions: Conditions) -> Self {
            conditions.0.into_iter().map(Into::into).collect()
        }
    }
}

/// Decodes `null` as the default value.
fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn decode(json: &str) -> Conditions {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn wr27_transition_time_changes_with_status_only() {
        let mut conditions = Conditions::new();
        let ready = |status: bool, reason: &str| Condition::new("Ready", status, reason, "");
        let mut set = |condition: Condition, now| {
            let changed = conditions.set(condition, now);
            (changed, conditions.0[0].last_transition_time.unwrap())
        };
        let start = at(10) + Duration::from_millis(999);
        assert_eq!(set(ready(false, "A"), start), (true, at(10)));
        assert_eq!(set(ready(false, "A"), at(20)), (false, at(10)));
        assert_eq!(set(ready(false, "B"), at(30)), (true, at(10)));
        let observed = ready(false, "B").observed_generation(2);
        assert_eq!(set(observed, at(40)), (true, at(10)));
        assert_eq!(set(ready(true, "C"), at(50)), (true, at(50)));
        let mut timed = ready(false, "A");
        timed.last_transition_time = Some(at(5));
        assert_eq!(set(timed, at(60)), (true, at(5)));
    }

    #[test]
    fn conditions_keep_their_order_and_other_types() {
        let mut conditions = decode(
            r#"[{"type": "B", "status": "True"}, {"type": "A", "status": "True"}, {"type": "B", "status": "False"}]"#,
        );
        assert!(conditions.is_true("B"), "the first one counts");
        conditions.set(Condition::new("B", false, "R", ""), at(1));
        conditions.set(Condition::new("C", false, "R", ""), at(1));
        let types: Vec<_> = conditions.iter().map(|one| &*one.type_).collect();
        assert_eq!(types, ["B", "A", "B", "C"]);
        assert!(!conditions.is_true("B") && conditions.remove("B"));
        let types: Vec<_> = (&conditions).into_iter().map(|one| &*one.type_).collect();
        assert_eq!(types, ["A", "C"]);
    }

    #[test]
    fn absent_null_and_unknown_values_are_accepted() {
        assert_eq!(decode("null"), Conditions::new());
        let nulls = r#"[{"type": null, "status": null, "observedGeneration": null, "lastTransitionTime": null,
            "reason": null, "message": null, "lastProbeTime": null}]"#;
        let none = Conditions::from(vec![Condition::default()]);
        for json in [nulls, "[{}]", "[null]"] {
            assert_eq!(decode(json), none, "{json}");
        }
        assert_eq!(
            decode(r#"[{"status": "Maybe"}]"#).0[0].status,
            ConditionStatus::Unknown
        );
        let offset = decode(r#"[{"lastTransitionTime": "1970-01-01T01:00:10.5+01:00"}]"#);
        assert_eq!(
            serde_json::to_string(&offset).unwrap(),
            r#"[{"type":"","status":"Unknown","lastTransitionTime":"1970-01-01T00:00:10Z","reason":"","message":""}]"#
        );
        for wrong in [
            r#"{"a": 1}"#,
            r#"[{"lastTransitionTime": "yesterday"}]"#,
            "[1]",
        ] {
            serde_json::from_str::<Conditions>(wrong).unwrap_err();
        }
    }

    #[test]
    fn extreme_times_and_messages_do_not_panic() {
        let mut conditions = Conditions::new();
        let early = UNIX_EPOCH.checked_sub(Duration::from_millis(1500)).unwrap();
        conditions.set(Condition::new("Ready", true, "R", ""), early);
        let json = serde_json::to_string(&conditions).unwrap();
        assert!(
            json.contains(r#""lastTransitionTime":"1969-12-31T23:59:58Z""#),
            "{json}"
        );
        let long = Condition::new("Ready", true, "R", "\u{e4}".repeat(40_000));
        assert_eq!(long.message.chars().count(), 32_768);
    }

    #[test]
    fn times_are_kept_when_another_condition_is_set() {
        for (time, written) in [
            ("9999-12-31T23:59:59Z", Some("9999-12-31T23:59:59Z")),
            (
                "9999-12-31T23:59:59.999999999Z",
                Some("9999-12-31T23:59:59Z"),
            ),
            ("9999-12-31T23:59:59+14:00", Some("9999-12-31T09:59:59Z")),
            ("1969-12-31T23:59:59Z", Some("1969-12-31T23:59:59Z")),
            ("1969-12-31T23:59:58.5Z", Some("1969-12-31T23:59:58Z")),
            ("1601-01-01T00:00:00Z", Some("1601-01-01T00:00:00Z")),
            ("0001-01-01T00:00:01Z", Some("0001-01-01T00:00:01Z")),
            ("0000-02-29T12:00:00Z", Some("0000-02-29T12:00:00Z")),
            // Go's zero time means that there is none.
            ("0001-01-01T00:00:00Z", None),
            ("0001-01-01T01:00:00+01:00", None),
        ] {
            let json = json!([{"type": "Old", "status": "True", "reason": "R", "lastTransitionTime": time}]);
            let mut conditions: Conditions = serde_json::from_value(json).unwrap();
            conditions.set(Condition::new("New", true, "R", ""), at(1));
            let json = serde_json::to_value(&conditions).unwrap();
            let json = json[0]["lastTransitionTime"].as_str();
            assert_eq!(json, written, "{time}");
            // The status stays, and so does the time.
            conditions.set(Condition::new("Old", true, "S", ""), at(1));
            let json = serde_json::to_value(&conditions).unwrap();
            let expected = written.unwrap_or("1970-01-01T00:00:01Z");
            assert_eq!(json[0]["lastTransitionTime"], expected, "{time}");
        }
    }

    #[test]
    fn wr26_message_alone_does_not_change_an_error() {
        let mut conditions = Conditions::new();
        let failed = |message: &str| Condition::new("Ready", false, "Error", message);
        assert!(conditions.set_unless_same_reason(failed("port 1"), at(1)));
        assert!(!conditions.set_unless_same_reason(failed("port 2"), at(2)));
        let observed = failed("port 3").observed_generation(2);
        assert!(conditions.set_unless_same_reason(observed, at(3)));
        assert_eq!(conditions.0[0].message, "port 3");
        assert!(conditions.set_stalled("Error", "port 4", 2, at(4)));
        assert!(!conditions.set_stalled("Error", "port 5", 2, at(5)));
        assert!(conditions.set_reconciling("Retrying", "1 of 3", 2, at(6)));
        assert!(conditions.set_reconciling("Retrying", "2 of 3", 2, at(7)));
    }

    #[cfg(feature = "k8s-openapi")]
    #[test]
    fn conditions_convert_from_and_to_k8s_openapi() {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1;

        let json = r#"[{"type": "A", "status": "True", "observedGeneration": 3, "reason": "R", "message": "m",
            "lastTransitionTime": "2024-01-02T03:04:05Z"}]"#;
        let theirs: Vec<v1::Condition> = serde_json::from_str(json).unwrap();
        let ours = Conditions::from(theirs.clone());
        let times = |all: &Conditions| -> Vec<_> {
            all.iter().map(|one| one.last_transition_time).collect()
        };
        assert_eq!(ours, decode(json));
        assert_eq!(times(&ours), times(&decode(json)));
        assert_eq!(Vec::<v1::Condition>::from(ours), theirs);
        let untimed = v1::Condition::from(Condition::new("B", ConditionStatus::Unknown, "R", ""));
        assert_eq!(untimed.status, "Unknown");
        assert_eq!(Condition::from(untimed).last_transition_time, None);
    }
}
