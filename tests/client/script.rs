//! An exec plugin for tests, also used by the end-to-end tests.

use std::fs;
use std::path::PathBuf;

use k8s_informer::client::ExecConfig;
use serde_json::{Value, json};

/// A plugin that prints the credential in a file and counts its runs.
pub(crate) struct Plugin {
    folder: PathBuf,
}

pub(crate) const PAST: &str = "2001-01-01T00:00:00Z";
pub(crate) const FUTURE: &str = "2901-01-01T00:00:00Z";

impl Plugin {
    /// `name` must be unique among all tests.
    pub(crate) fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("k8s-informer-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("plugin"),
            "cd \"$(dirname \"$0\")\"\nprintf x >> runs\ncat answer\n",
        )
        .unwrap();
        Self { folder }
    }

    pub(crate) fn config(&self) -> ExecConfig {
        // A file that was just written may be busy and cannot be executed then.
        ExecConfig::new("sh").args([self.folder.join("plugin").to_string_lossy()])
    }

    pub(crate) fn credential_file(&self) -> PathBuf {
        self.folder.join("answer")
    }

    pub(crate) fn set_credential(&self, status: &Value) {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        // Replaces the file in one step, because the plugin may be reading it.
        let new = self.folder.join("new");
        fs::write(&new, credential.to_string()).unwrap();
        fs::rename(new, self.credential_file()).unwrap();
    }

    pub(crate) fn runs(&self) -> u64 {
        fs::metadata(self.folder.join("runs")).map_or(0, |runs| runs.len())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
