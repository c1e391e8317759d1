/// A request of the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Patch,
}

/// The kinds of answers that the recorder tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// The event does not exist (404).
    NotFound,
    AlreadyExists,
    /// The same request can succeed later: the connection broke, nothing arrived in time, or the
    /// server is overloaded. The server may have executed the request.
    Later,
    /// The server refuses the request, and would do so again.
    Refused,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The server has the event with its count.
    Written,
    /// Send this request at once.
    Send(Verb),
    /// Send this request after a pause.
    Retry(Verb),
    Failed,
}

/// Decides what follows an answer to an event with this count. `in_doubt` is whether an earlier
/// request for the same event may have been executed without an answer.
pub fn next(verb: Verb, answer: Answer, count: u32, in_doubt: bool) -> Next {
    match (verb, answer) {
        (_, Answer::Accepted) => Next::Written,
        (_, Answer::Later) => Next::Retry(verb),
        // The event has expired, or was never created.
        (Verb::Patch, Answer::NotFound) => Next::Send(Verb::Create),
        // An earlier create is executed meanwhile, with an older count.
        (_, Answer::AlreadyExists) if count > 1 => Next::Retry(Verb::Patch),
        (Verb::Create, Answer::AlreadyExists) if in_doubt => Next::Written,
        _ => Next::Failed,
    }
}
