//! The external system of the controller: it remembers an effect for each UID.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::ledger::Ledger;
use super::site::Point;
use super::supervisor::Supervisor;

/// Starts the server, which ends with the process.
///
/// A connection begins with a line that names the number of the controller's process. Each further
/// line is an operation, a UID and a key. The response is an empty line.
pub(crate) fn start(ledger: &Arc<Ledger>, supervisor: &Arc<Supervisor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port for the cloud");
    let address = listener.local_addr().expect("its address");
    let (ledger, supervisor) = (Arc::clone(ledger), Arc::clone(supervisor));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (ledger, supervisor) = (Arc::clone(&ledger), Arc::clone(&supervisor));
            thread::spawn(move || serve(&stream, &ledger, &supervisor));
        }
    });
    address
}

fn serve(stream: &TcpStream, ledger: &Ledger, supervisor: &Supervisor) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    let mut lines = BufReader::new(stream).lines();
    let Some(process) = lines.next().transpose()? else {
        return Ok(());
    };
    for line in lines {
        let line = line?;
        let mut words = line.split(' ');
        let [Some(operation), Some(uid), Some(key)] = [(); 3].map(|()| words.next()) else {
            return Ok(());
        };
        // An operation of a killed process must not be executed after its successor has started.
        let executed = supervisor.if_current(&process, || match operation {
            "effect" => ledger.effect(uid, key),
            _ => ledger.cleanup(uid),
        });
        let point = match operation {
            "effect" => Point::Effect,
            _ => Point::Cleanup,
        };
        if !executed || supervisor.trigger(point, key) {
            return Ok(());
        }
        (&mut &*stream).write_all(b"\n")?;
    }
    Ok(())
}

/// The client of the cloud.
pub(crate) struct Cloud {
    address: String,
    process: String,
    /// One request at a time.
    connection: Mutex<Option<BufReader<TcpStream>>>,
}

impl Cloud {
    pub(crate) fn new(address: &str, process: &str) -> Self {
        Self {
            address: address.to_owned(),
            process: process.to_owned(),
            connection: Mutex::default(),
        }
    }

    pub(crate) fn effect(&self, uid: &str, key: &str) -> io::Result<()> {
        self.send(&format!("effect {uid} {key}\n"))
    }

    pub(crate) fn cleanup(&self, uid: &str, key: &str) -> io::Result<()> {
        self.send(&format!("cleanup {uid} {key}\n"))
    }

    fn send(&self, line: &str) -> io::Result<()> {
        let connection = &mut *self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut stream = match connection.take() {
            Some(stream) => stream,
            None => {
                let mut stream = TcpStream::connect(&self.address)?;
                stream.set_nodelay(true)?;
                stream.write_all(format!("{}\n", self.process).as_bytes())?;
                BufReader::new(stream)
            }
        };
        stream.get_mut().write_all(line.as_bytes())?;
        if stream.read_line(&mut String::new())? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *connection = Some(stream);
        Ok(())
    }
}
