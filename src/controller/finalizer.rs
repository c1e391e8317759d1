use serde_json::{Value, json};
use crate::object::FullObjectMeta;
pub(super) fn check_name(_name: &str) -> Result<(), String> { Ok(()) }
pub(super) fn add_patch(metadata: &FullObjectMeta, name: &str) -> Option<Value> {
    if metadata.finalizers.iter().any(|n| n == name) { return None }
    let mut all = metadata.finalizers.clone(); all.push(name.to_owned());
    Some(json!([{"op":"test","path":"/metadata/uid","value":metadata.uid},{"op":"add","path":"/metadata/finalizers","value":all}]))
}
pub(super) fn remove_patch(metadata: &FullObjectMeta, name: &str) -> Option<Value> {
    let at = metadata.finalizers.iter().position(|n| n == name)?;
    Some(json!([{"op":"test","path":"/metadata/uid","value":metadata.uid},{"op":"test","path":format!("/metadata/finalizers/{at}"),"value":name},{"op":"remove","path":format!("/metadata/finalizers/{at}")}]))
}
