//! An exec plugin for tests; those from end to end use it, too.

use std::fs;
use std::path::PathBuf;

use k8s_informer::client::ExecConfig;
use serde_json::{Value, json};

/// A plugin that hands out what stands in a file, and counts how often it is asked.
pub(crate) struct Plugin {
    folder: PathBuf,
}

/// Times at which a credential can expire.
pub(crate) const PAST: &str = "2001-01-01T00:00:00Z";
pub(crate) const FUTURE: &str = "2901-01-01T00:00:00Z";

impl Plugin {
    /// `name` is of one test only.
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
        // A file that was just written may be busy, and can't be run then.
        ExecConfig::new("sh").args([self.folder.join("plugin").to_string_lossy()])
    }

    /// The file of what it hands out.
    pub(crate) fn credential_file(&self) -> PathBuf {
        self.folder.join("answer")
    }

    pub(crate) fn hand_out(&self, status: &Value) {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        // In one step, as it may just be read.
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
