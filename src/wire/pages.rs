/// A list is considered endless after this number of consecutive pages without anything new. A
/// server that filters objects after paging may send a few of these pages.
const MAX_PAGES_WITHOUT_PROGRESS: u32 = 100;

/// Detects a list whose pages never end, because a continue token repeats or because page after
/// page contains nothing new.
///
/// It keeps only one token, whatever the length of the list (Brent's algorithm). If a cycle of N
/// pages begins after M other pages, it is detected within about `3 * max(M, N)` pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCheck {
    /// The token of an earlier page, and the number of that page.
    kept: String,
    kept_page: u32,
    /// The page after which the next token is kept.
    keep_after: u32,
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
            kept: token.unwrap_or_default().to_owned(),
            keep_after: 1,
            ..Self::default()
        }
    }

    /// Records a page with the token of the next one. `amount` is the size of the list so far. The
    /// error explains why the list never ends.
    pub(crate) fn record_page(&mut self, token: &str, amount: usize) -> Result<(), String> {
        self.page = self.page.saturating_add(1);
        if token == self.kept {
            let of = match self.kept_page {
                0 => "of its request".to_owned(),
                page => format!("of page {page}"),
            };
            let page = self.page;
            return Err(format!(
                "the list never ends: page {page} repeats the continue token {of}"
            ));
        }
        if self.page > self.keep_after {
            token.clone_into(&mut self.kept);
            self.kept_page = self.page;
            self.keep_after = self.page.saturating_mul(2);
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
            false => Err(format!(
                "the list never ends: the last {MAX_PAGES_WITHOUT_PROGRESS} of {} pages contained nothing new",
                self.page
            )),
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
                Some((at + 1, check.record_page(&token, amount(at + 1)).err()?))
            })
            .unwrap()
    }

    #[test]
    fn continue_token_cycles_are_found_within_three_rounds() {
        for before in [0, 1, 2, 5, 40] {
            for length in [1, 2, 3, 7, 64] {
                let token = |page: usize| match page {
                    page if page < before => format!("before-{page}"),
                    page => format!("{}", (page - before) % length),
                };
                let (page, error) = failing_page((0..).map(token), |page| page);
                assert!(
                    page > before + length && page <= 3 * before.max(length) + 2,
                    "{before} {length}: {page}"
                );
                assert!(
                    error.contains(&format!("page {page} repeats the continue token of page")),
                    "{error}"
                );
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
            error,
            "the list never ends: page 1 repeats the continue token of its request"
        );
        PageCheck::after(None).record_page("x", 1).unwrap();
    }
}
