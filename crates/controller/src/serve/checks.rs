//! Named health checks, and their endpoints `/healthz` and `/readyz`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::sync::Arc;

use super::http::{Request, Response};
use crate::log;
use k8s_informer::__private::EscapedText;
use k8s_informer::__private::catch;
use parking_lot::Mutex;

/// The checks of one endpoint. controller-runtime's `healthz.Handler`.
///
/// The endpoint itself runs all checks, in the order of their names. It withholds the reasons of
/// failures, because it is often public, and logs them. The path of a single check, such as
/// `/readyz/informers`, shows the reason.
pub(crate) struct Checks {
    endpoint: &'static str,
    /// An innermost lock. No check runs, and none is dropped, under it.
    checks: Mutex<BTreeMap<String, Check>>,
}

type Check = Arc<dyn Fn() -> Outcome + Send + Sync>;

/// The outcome of a check.
enum Outcome {
    Passed,
    /// The check failed for this reason.
    Failed(String),
}

impl Checks {
    /// Creates an endpoint without checks, such as `readyz`. It always succeeds, with the check
    /// `ping`.
    pub(crate) fn new(endpoint: &'static str) -> Self {
        Self {
            endpoint,
            checks: Mutex::default(),
        }
    }

    /// Adds a check. It replaces a check with the same name. A panic in a check is a failure.
    ///
    /// Threads of the HTTP server call it for each probe, possibly at the same time. It has no time
    /// limit, but a probe has, so it must be fast.
    pub(crate) fn add<E: Display>(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) {
        let check: Check =
            Arc::new(
                move || match catch(|| check().map_err(|reason| reason.to_string())) {
                    Ok(Ok(())) => Outcome::Passed,
                    Ok(Err(reason)) => Outcome::Failed(reason),
                    Err(panicked) => Outcome::Failed(panicked.to_string()),
                },
            );
        let replaced = self.checks.lock().insert(name.into(), check);
        drop(replaced);
    }

    /// Whether a check has this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.checks.lock().contains_key(name)
    }

    /// Returns the response to a request of this endpoint or of one of its checks. Returns `None`
    /// for another path and for an unknown check.
    pub(crate) fn get(&self, request: &Request) -> Option<Response> {
        let path = request.path().strip_prefix('/')?;
        match path.strip_prefix(self.endpoint)? {
            "" | "/" => Some(self.run_all(request)),
            name => self.run_one(name.strip_prefix('/')?),
        }
    }

    fn run_all(&self, request: &Request) -> Response {
        let mut excluded: BTreeSet<&str> = request.query("exclude").collect();
        let (mut text, mut failed) = (String::new(), false);
        // Writing to a string does not fail.
        for (name, check) in self.all() {
            let shown = EscapedText(&name);
            let _ = if excluded.remove(&*name) {
                writeln!(text, "[+]{shown} excluded: ok")
            } else if let Outcome::Failed(reason) = check() {
                failed = true;
                let (endpoint, reason) = (self.endpoint, EscapedText(&reason));
                log::info!("{endpoint} check {shown} failed: {reason}");
                writeln!(text, "[-]{shown} failed: reason withheld")
            } else {
                writeln!(text, "[+]{shown} ok")
            };
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(",");
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {names}"
            );
        }
        let endpoint = self.endpoint;
        if failed {
            return Response::text(500, format!("{text}{endpoint} check failed\n"));
        }
        if request.query("verbose").next().is_none() {
            return Response::text(200, "ok");
        }
        Response::text(200, format!("{text}{endpoint} check passed\n"))
    }

    fn run_one(&self, name: &str) -> Option<Response> {
        let (_, check) = self.all().into_iter().find(|(other, _)| other == name)?;
        Some(match check() {
            Outcome::Passed => Response::text(200, "ok"),
            Outcome::Failed(reason) => {
                let reason = EscapedText(&reason);
                Response::text(500, format!("internal server error: {reason}\n"))
            }
        })
    }

    /// Returns the checks, or `ping` if there are none.
    fn all(&self) -> Vec<(String, Check)> {
        let checks = self.checks.lock().clone();
        if checks.is_empty() {
            return vec![("ping".to_owned(), Arc::new(|| Outcome::Passed))];
        }
        checks.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn get(checks: &Checks, target: &str) -> Option<(u16, String)> {
        let response = checks.get(&Request::get(target))?;
        assert_eq!(response.content_type, "text/plain; charset=utf-8");
        Some((response.status, response.body))
    }

    fn ok(body: &str) -> Option<(u16, String)> {
        Some((200, body.to_owned()))
    }

    fn failed(body: &str) -> Option<(u16, String)> {
        Some((500, body.to_owned()))
    }

    #[test]
    fn cr11_endpoint_without_checks_has_ping() {
        let checks = Checks::new("healthz");
        assert_eq!(get(&checks, "/healthz"), ok("ok"));
        assert_eq!(get(&checks, "/healthz/"), ok("ok"));
        assert_eq!(get(&checks, "/healthz/ping"), ok("ok"));
        let verbose = ok("[+]ping ok\nhealthz check passed\n");
        assert_eq!(get(&checks, "/healthz?verbose"), verbose);
        assert_eq!(get(&checks, "/healthz?verbose=false"), verbose);
        for other in ["/healthz/other", "/healthzz", "/readyz", "/"] {
            assert_eq!(get(&checks, other), None);
        }
    }

    #[test]
    fn cr11_failure_is_verbose_and_withholds_the_reason() {
        let checks = Checks::new("readyz");
        checks.add("queue", || Ok::<_, Infallible>(()));
        checks.add("informers", || Err("pods: no contact\nfor 9 s".to_owned()));
        assert_eq!(
            get(&checks, "/readyz"),
            failed("[-]informers failed: reason withheld\n[+]queue ok\nreadyz check failed\n")
        );
        assert_eq!(
            get(&checks, "/readyz/informers"),
            failed("internal server error: pods: no contact for 9 s\n")
        );
        assert_eq!(get(&checks, "/readyz/queue"), ok("ok"));
        assert_eq!(get(&checks, "/readyz/ping"), None);
    }

    #[test]
    fn cr11_excluded_checks_are_not_run() {
        let checks = Checks::new("readyz");
        checks.add("a", || -> Result<(), Infallible> { panic!("excluded") });
        checks.add("my check", || Err(String::new()));
        let all = "/readyz?exclude=a&exclude=my%20check";
        assert_eq!(get(&checks, all), ok("ok"));
        let unknown = "/readyz?exclude=my+check&exclude=a&exclude=b%22&exclude=c&verbose";
        let text = "[+]a excluded: ok\n[+]my check excluded: ok\n\
                    warn: some health checks cannot be excluded: no matches for \"b\\\"\",\"c\"\n\
                    readyz check passed\n";
        assert_eq!(get(&checks, unknown), ok(text));
    }

    #[test]
    fn panic_in_a_check_is_a_failure() {
        let checks = Checks::new("healthz");
        checks.add("bug", || -> Result<(), Infallible> { panic!("index 7") });
        assert_eq!(
            get(&checks, "/healthz"),
            failed("[-]bug failed: reason withheld\nhealthz check failed\n")
        );
        assert_eq!(
            get(&checks, "/healthz/bug"),
            failed("internal server error: panicked: index 7\n")
        );
    }

    #[test]
    fn check_can_add_and_replace_checks() {
        let checks = Arc::new(Checks::new("readyz"));
        let (inner, added) = (Arc::downgrade(&checks), AtomicBool::new(false));
        checks.add("first", move || {
            if !added.swap(true, Ordering::Relaxed) {
                let checks = inner.upgrade().ok_or("gone")?;
                checks.add("second", || Ok::<_, Infallible>(()));
            }
            Ok::<_, &str>(())
        });
        assert_eq!(get(&checks, "/readyz/first"), ok("ok"));
        assert_eq!(get(&checks, "/readyz/second"), ok("ok"));
        checks.add("first", || Ok::<_, Infallible>(()));
        assert_eq!(
            get(&checks, "/readyz?verbose"),
            ok("[+]first ok\n[+]second ok\nreadyz check passed\n")
        );
    }
}
