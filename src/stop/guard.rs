use super::Stopper;

/// Sets a [`Stop`](super::Stop) when it is dropped, so also after a panic.
pub struct StopOnDrop(pub Stopper);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
