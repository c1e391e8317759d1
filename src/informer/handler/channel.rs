use std::sync::Arc;

use super::{Notification, ResourceEventHandler};
use crate::base::derive::debug_fields;
use crate::base::sync::channel::{self, Receiver, Select, Sender};
use crate::object::Deleted;
use crate::stop::{Stop, Subscription};

/// A handler that sends every notification into a channel. Use it to receive notifications in a
/// `select!` with other channels, or on your own thread.
///
/// The channel holds up to `capacity` notifications. With a capacity of zero, each notification is
/// handed directly to the receiver. Further notifications wait in the handler's
/// [buffer](crate::handler::HandlerOptions::buffer), which counts them and can coalesce them.
///
/// When the handler is removed or the informer stops, the channel closes after its remaining
/// notifications, and a blocked receiver returns. If you drop the receiver, all further
/// notifications are dropped.
///
/// The handler [is synced](crate::handler::HandlerRegistration::synced) when the whole initial list
/// has been sent into the channel.
///
/// The receiver is a [crossbeam](crate::crossbeam_channel) receiver and works with its `select!`.
///
/// ```
/// use k8s_informer::handler::ChannelHandler;
/// use k8s_informer::{DynamicObject, Notification, Object, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::Arc;
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// let (handler, events) = ChannelHandler::new(0);
/// informer.add_handler(handler)?;
///
/// let stop = Stopper::new();
/// let running = std::thread::spawn({ let stop = stop.signal(); move || informer.run(&stop) });
/// let patience = k8s_informer::crossbeam_channel::after(std::time::Duration::from_secs(60));
/// k8s_informer::crossbeam_channel::select! {
///     recv(events) -> event => match event? {
///         Notification::Added { object, is_in_initial_list: true } => assert_eq!(object.name(), "a"),
///         _ => panic!("expected an add"),
///     },
///     recv(patience) -> _ => panic!("no event arrived"),
/// }
/// stop.stop();
/// running.join().unwrap()?;
/// assert!(events.recv().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChannelHandler<T> {
    events: Sender<Notification<T>>,
    /// Closed when the handler is removed, which ends a blocked send.
    removed: Option<(Receiver<()>, Subscription)>,
}

impl<T> ChannelHandler<T> {
    /// Returns the handler, and the receiver of a channel with the given capacity.
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
            // `begin` was not called, so the handler runs outside of an informer. If the receiver
            // is gone, the event is dropped.
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

debug_fields!(ChannelHandler<T>:);
