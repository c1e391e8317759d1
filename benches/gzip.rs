//! The bandwidth that compressed lists save, and the CPU time that they cost. The client reads and
//! discards pages of Pods over a local socket. The pages are compressed as by an API server.
//!
//! ```text
//! cargo bench --bench gzip --features gzip
//! ```
#![allow(clippy::unwrap_used, reason = "a bench may panic on errors")]

mod common;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Instant;

use common::pods::Pods;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ListOptions, ListerWatcher};
use k8s_informer::{Client, Config, Stop};

/// The level of kube-apiserver.
const LEVEL: Compression = Compression::new(1);

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let (count, rounds) = if test { (50, 1) } else { (5000, 9) };
    println!(
        "{count} Pods | on the wire, kB | kB a Pod | CPU time of the reader, us a Pod | total ms"
    );
    for page in [500, count] {
        for disable in [true, false] {
            let pages = Pages::new(Pods::new(count), page);
            let sizes = if disable {
                &pages.plain
            } else {
                &pages.compressed
            };
            let bytes: usize = sizes.iter().map(Vec::len).sum();
            let pages_count = pages.plain.len();
            let client =
                Client::new(Config::new(format!("http://{}", serve(pages))).compression(!disable));
            let lists = client
                .unwrap()
                .lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
            let mut results: Vec<(f64, f64)> =
                (0..rounds).map(|_| read(&*lists, pages_count)).collect();
            results.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (processor, wall) = results[rounds / 2];
            println!(
                "{} in pages of {page} | {} | {:.2} | {:.1} | {wall:.0}",
                if disable { "plain" } else { "gzip" },
                bytes / 1000,
                bytes as f64 / 1e3 / count as f64,
                processor / 1e3 / count as f64
            );
        }
    }
}

/// Returns the CPU time of this thread in nanoseconds and the wall time in milliseconds.
fn read(lists: &dyn ListerWatcher, pages: usize) -> (f64, f64) {
    let (begun, before) = (Instant::now(), processor_time());
    for page in 0..pages {
        let mut options = ListOptions::default();
        options.continue_token = Some(page.to_string());
        let mut body = lists.list(&options, &Stop::never()).unwrap();
        io::copy(&mut body, &mut io::sink()).unwrap();
    }
    (
        processor_time() - before,
        begun.elapsed().as_secs_f64() * 1e3,
    )
}

fn processor_time() -> f64 {
    // The kernel updates the figure when the thread yields.
    thread::yield_now();
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    schedule
        .split(' ')
        .next()
        .and_then(|time| time.parse().ok())
        .expect("the first field is the CPU time")
}

struct Pages {
    plain: Vec<Vec<u8>>,
    compressed: Vec<Vec<u8>>,
}

impl Pages {
    fn new(pods: Pods, page: usize) -> Self {
        let body = |start| {
            let mut bytes = Vec::new();
            pods.page(0, start, page).read_to_end(&mut bytes).unwrap();
            bytes
        };
        let plain: Vec<Vec<u8>> = (0..pods.len()).step_by(page).map(body).collect();
        let compress = |bytes: &Vec<u8>| {
            let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let compressed = plain.iter().map(compress).collect();
        Self { plain, compressed }
    }
}

/// Serves one connection. The continue token of a request selects the page.
fn serve(pages: Pages) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        loop {
            let head: Vec<String> = lines
                .by_ref()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let Some(first) = head.first() else {
                return Ok(());
            };
            let page: usize = first
                .split(['=', '&', ' '])
                .find_map(|word| word.parse().ok())
                .unwrap();
            let gzip = head
                .iter()
                .any(|line| line.eq_ignore_ascii_case("accept-encoding: gzip"));
            let (body, encoding) = if gzip {
                (&pages.compressed[page], "gzip")
            } else {
                (&pages.plain[page], "identity")
            };
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
            )?;
            stream.write_all(body)?;
        }
    });
    address
}
