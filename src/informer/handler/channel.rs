use std::fmt;
use std::sync::Arc;

use super::{Notification, ResourceEventHandler};
use crate::object::Deleted;
use crate::stop::{Stop, Subscription};
use crate::sync::channel::{self, Receiver, Select, Sender};

/// A handler that sends every event into a channel, for who would rather receive than be called: in a
/// `select!` with other channels, or on a thread of his own.
///
/// The channel has room for as many events as you say, for none if zero: then each is handed over. What it
/// has no room for waits in the handler's [buffer](crate::handler::HandlerOptions::buffer), where it is counted, and
/// merged if you like. The channel ends when the handler is removed or the informer stops, after what is in
/// it; whoever waits for the channel then goes on. If the receiver is dropped the events are, too.
///
/// The handler [is synced](crate::handler::HandlerRegistration::synced) when the whole initial list is in the channel.
///
/// The receiver is one of [crossbeam](crate::crossbeam_channel)'s, whose `select!` takes it.
///
/// ```
/// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
/// use k8s_informer::{DynamicObject, Notification, Object, SharedIndexInformer, Stop};
/// use k8s_informer::handler::ChannelHandler;
/// use std::sync::Arc;
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// let (handler, events) = ChannelHandler::new(0);
/// informer.add_handler(handler)?;
///
/// let stop = Stop::new();
/// let running = std::thread::spawn({ let stop = stop.clone(); move || informer.run(&stop) });
/// let patience = k8s_informer::crossbeam_channel::after(std::time::Duration::from_secs(60));
/// k8s_informer::crossbeam_channel::select! {
///     recv(events) -> event => match event? {
///         Notification::Added { object, is_in_initial_list: true } => assert_eq!(object.name(), "a"),
///         _ => panic!("not an add"),
///     },
///     recv(patience) -> _ => panic!("nothing came"),
/// }
/// stop.stop();
/// running.join().unwrap()?;
/// assert!(events.recv().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChannelHandler<T> {
    events: Sender<Notification<T>>,
    /// Closed when the handler is removed, which ends a wait for room.
    removed: Option<(Receiver<()>, Subscription)>,
}

impl<T> ChannelHandler<T> {
    /// The handler, and the end where its events come out; the channel has room for `capacity` events.
    #[cfg_attr(
        all(test, shuttle),
        expect(private_interfaces, reason = "the channel of the interleaving tests")
    )]
    pub fn new(capacity: usize) -> (Self, Receiver<Notification<T>>) {
        let (events, receiver) = channel::bounded(capacity);
        (
            Self {
                events,
                removed: None,
            },
            receiver,
        )
    }

    fn send(&self, event: Notification<T>) {
        let Some((removed, _)) = &self.removed else {
            // Nobody has begun it: it is called by hand. Whoever dropped the receiver does not care.
            let _ = self.events.send(event);
            return;
        };
        let mut select = Select::new();
        let sent = select.send(&self.events);
        select.recv(removed);
        let ready = select.select();
        if ready.index() == sent {
            let _ = ready.send(&self.events, event);
        } else {
            let _ = ready.recv(removed);
        }
    }
}

impl<T: Send + Sync> ResourceEventHandler<T> for ChannelHandler<T> {
    fn begin(&mut self, removed: &Stop) {
        let (open, closed) = channel::bounded(0);
        let subscription = removed.on_stop(move || drop(open));
        self.removed = Some((closed, subscription));
    }

    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        self.send(Notification::Added {
            object: Arc::clone(object),
            is_in_initial_list,
        });
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        self.send(Notification::Modified {
            old: Arc::clone(old),
            new: Arc::clone(new),
        });
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        self.send(Notification::deleted(gone.clone(), None));
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, gone: &Deleted<T>) {
        let last_delivered = Some(Arc::clone(last_delivered));
        self.send(Notification::Deleted {
            gone: gone.clone(),
            last_delivered,
        });
    }
}

impl<T> fmt::Debug for ChannelHandler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelHandler").finish_non_exhaustive()
    }
}
