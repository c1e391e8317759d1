/// So many pages in a row that bring nothing new are a list without an end. A server that filters behind its
/// pages may send some.
const WITHOUT_PROGRESS: u32 = 100;

/// Finds out that the pages of a list have no end: a continue token comes again, or page after page brings
/// nothing.
///
/// Holds one token, whatever the length of the list (Brent's algorithm): a cycle of N pages is found before
/// the third time that one of them comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCheck {
    /// A token of some page before, and which page that was.
    kept: String,
    kept_page: u32,
    /// The page after which the next token is kept.
    keep_after: u32,
    page: u32,
    /// How much the list had after the page before.
    amount: usize,
    without_progress: u32,
}

impl PageCheck {
    /// For a page that was requested with this token.
    #[cfg(feature = "client")]
    pub(crate) fn after(token: Option<&str>) -> Self {
        Self {
            kept: token.unwrap_or_default().to_owned(),
            keep_after: 1,
            ..Self::default()
        }
    }

    /// Another page has come, and names the next one. `amount` is how much the list has brought by now.
    /// An error says why there is no end.
    pub(crate) fn follow(&mut self, token: &str, amount: usize) -> Result<(), String> {
        self.page = self.page.saturating_add(1);
        if token == self.kept {
            let of = match self.kept_page {
                0 => "that it was requested with".to_owned(),
                page => format!("of page {page}"),
            };
            let page = self.page;
            return Err(format!(
                "the list has no end: the continue token of page {page} is the one {of}"
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
        match self.without_progress < WITHOUT_PROGRESS {
            true => Ok(()),
            false => Err(format!(
                "the list has no end: the last {WITHOUT_PROGRESS} of {} pages brought nothing new",
                self.page
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page at which the list is given up.
    fn given_up(
        tokens: impl Iterator<Item = String>,
        amount: impl Fn(usize) -> usize,
    ) -> (usize, String) {
        let mut check = PageCheck::default();
        let mut pages = tokens.enumerate();
        pages
            .find_map(|(at, token)| Some((at + 1, check.follow(&token, amount(at + 1)).err()?)))
            .unwrap()
    }

    #[test]
    fn cycles_of_tokens_are_found_within_three_rounds() {
        for before in [0, 1, 2, 5, 40] {
            for length in [1, 2, 3, 7, 64] {
                let token = |page: usize| match page {
                    page if page < before => format!("before-{page}"),
                    page => format!("{}", (page - before) % length),
                };
                let (page, error) = given_up((0..).map(token), |page| page);
                assert!(
                    page > before + length && page <= 3 * before.max(length) + 2,
                    "{before} {length}: {page}"
                );
                assert!(
                    error.contains(&format!(
                        "the continue token of page {page} is the one of page"
                    )),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn pages_without_progress_are_counted_in_a_row() {
        let (page, error) = given_up((0..).map(|page| page.to_string()), |page| page.min(7));
        assert_eq!(page, 107);
        assert_eq!(
            error,
            "the list has no end: the last 100 of 107 pages brought nothing new"
        );
        let (page, _) = given_up((0..).map(|page| page.to_string()), |page| {
            page.min(990) / 99
        });
        assert_eq!(page, 1090);
    }

    #[cfg(feature = "client")]
    #[test]
    fn page_followed_by_itself_is_found_at_once() {
        let error = PageCheck::after(Some("x")).follow("x", 1).unwrap_err();
        assert_eq!(
            error,
            "the list has no end: the continue token of page 1 is the one that it was requested with"
        );
        PageCheck::after(None).follow("x", 1).unwrap();
    }
}
