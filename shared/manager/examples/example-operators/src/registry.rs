//! Where the versions of [`tracks`](crate::tracks) come from. A program of its own would take the place of this file.

use std::{collections::HashMap, io, net::SocketAddr};

use futures::{Stream, stream};
use manager::ObjectKey;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

/// A stand-in for a registry of programs and its message queue.
#[derive(Debug, Default)]
pub struct Registry {
    versions: Mutex<HashMap<ObjectKey, String>>,
    subscribers: Mutex<Vec<UnboundedSender<ObjectKey>>>,
}

impl Registry {
    /// Publishes a version, and sends a message about it.
    pub fn publish(&self, track: &ObjectKey, version: &str) {
        self.versions.lock().insert(track.clone(), version.to_owned());
        self.subscribers.lock().retain(|subscriber| subscriber.send(track.clone()).is_ok());
    }

    /// The newest version of a Track's program.
    pub(crate) fn version(&self, track: &ObjectKey) -> Option<String> {
        self.versions.lock().get(track).cloned()
    }

    /// Subscribes to the messages that are sent from now on.
    pub(crate) fn subscribe(&self) -> impl Stream<Item = ObjectKey> + use<> {
        let (sender, mut receiver) = unbounded_channel();
        self.subscribers.lock().push(sender);
        stream::poll_fn(move |context| receiver.poll_recv(context))
    }

    /// Publishes what clients send: lines `NAMESPACE/NAME VERSION`.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let parts = line.split_once(' ').and_then(|(key, version)| Some((key.split_once('/')?, version)));
                if let Some(((namespace, name), version)) = parts {
                    self.publish(&ObjectKey::new(namespace, name), version.trim());
                }
            }
        }
    }
}
