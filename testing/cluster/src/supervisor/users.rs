//! Serves the users of the cluster: each connection has a thread, which handles its requests one after the other.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::Result;

use super::Event;
use crate::layout::Layout;
use crate::protocol;

pub(super) fn listen(layout: &Layout, events: Sender<Event>) -> Result<()> {
    let listener = protocol::listen(layout)?;
    thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let events = events.clone();
            thread::spawn(move || {
                if events.send(Event::Joined).is_ok() {
                    let _ = serve(stream, &events); // an error means that the user has disconnected
                    let _ = events.send(Event::Left);
                }
            });
        }
    });
    Ok(())
}

fn serve(mut stream: UnixStream, events: &Sender<Event>) -> Result<()> {
    for line in BufReader::new(stream.try_clone()?).lines() {
        let (sender, reply) = mpsc::channel();
        events.send(Event::Asked(serde_json::from_str(&line?)?, sender))?;
        let mut answer = serde_json::to_string(&reply.recv()?)?;
        answer.push('\n');
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}
