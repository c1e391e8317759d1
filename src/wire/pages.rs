use std::collections::HashSet;
use std::fmt;

use crate::base::digest::Digest;

/// A list is considered endless after this number of consecutive pages without anything new. A
/// server that filters objects after paging may send a few of these pages.
const MAX_PAGES_WITHOUT_PROGRESS: u32 = 100;

/// Detects a list whose pages never end, because a continue token repeats or because page after
/// page contains nothing new.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCheck {
    /// The digests of the continue tokens so far.
    tokens: HashSet<Digest>,
    page: u32,
    /// The size of the list after the previous page.
    amount: usize,
    without_progress: u32,
}

impl PageCheck {
    /// Creates a check whose first page was requested with this token.
    #[cfg(feature = "client")]
    pub(crate) fn after(token: Option<&str>) -> Self {
        Self {
            tokens: HashSet::from_iter(token.map(|token| Digest::of(token.as_bytes()))),
            ..Self::default()
        }
    }

    /// Records a page with the token of the next one. `amount` is the size of the list so far.
    pub(crate) fn record_page(&mut self, token: &str, amount: usize) -> Result<(), EndlessList> {
        self.page = self.page.saturating_add(1);
        let page = self.page;
        if !self.tokens.insert(Digest::of(token.as_bytes())) {
            return Err(EndlessList::RepeatedToken { page });
        }
        let has_progress = amount > self.amount;
        self.amount = amount;
        self.without_progress = if has_progress {
            0
        } else {
            self.without_progress + 1
        };
        match self.without_progress < MAX_PAGES_WITHOUT_PROGRESS {
            true => Ok(()),
            false => Err(EndlessList::NoProgress { pages: page }),
        }
    }
}

/// The reason why a list never ends.
#[derive(Debug)]
pub(crate) enum EndlessList {
    /// This page repeats a continue token.
    RepeatedToken { page: u32 },
    /// The last of these pages contained nothing new.
    NoProgress { pages: u32 },
}

impl fmt::Display for EndlessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the list never ends: ")?;
        match self {
            Self::RepeatedToken { page } => write!(f, "page {page} repeats a continue token"),
            Self::NoProgress { pages } => write!(
                f,
                "the last {MAX_PAGES_WITHOUT_PROGRESS} of {pages} pages contained nothing new"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the page at which the check fails, and the error.
    fn failing_page(
        tokens: impl Iterator<Item = String>,
        amount: impl Fn(usize) -> usize,
    ) -> (usize, String) {
        let mut check = PageCheck::default();
        let mut pages = tokens.enumerate();
        pages
            .find_map(|(at, token)| {
                let endless = check.record_page(&token, amount(at + 1)).err()?;
                Some((at + 1, endless.to_string()))
            })
            .unwrap()
    }

    #[test]
    fn repeated_continue_token_fails_at_once() {
        for before in [0, 1, 2, 40] {
            for length in [1, 2, 64] {
                let token = |page: usize| match page {
                    page if page < before => format!("before-{page}"),
                    page => format!("{}", (page - before) % length),
                };
                let (page, error) = failing_page((0..).map(token), |page| page);
                assert_eq!(page, before + length + 1);
                let expected = format!("the list never ends: page {page} repeats a continue token");
                assert_eq!(error, expected);
            }
        }
    }

    #[test]
    fn consecutive_pages_without_progress_fail() {
        let (page, error) = failing_page((0..).map(|page| page.to_string()), |page| page.min(7));
        assert_eq!(page, 107);
        assert_eq!(
            error,
            "the list never ends: the last 100 of 107 pages contained nothing new"
        );
        let (page, _) = failing_page((0..).map(|page| page.to_string()), |page| {
            page.min(990) / 99
        });
        assert_eq!(page, 1090);
    }

    #[cfg(feature = "client")]
    #[test]
    fn page_repeating_its_own_token_fails_at_once() {
        let error = PageCheck::after(Some("x")).record_page("x", 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the list never ends: page 1 repeats a continue token"
        );
        PageCheck::after(None).record_page("x", 1).unwrap();
    }
}
