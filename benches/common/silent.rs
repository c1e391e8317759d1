//! A server with empty lists and silent watches.

use crate::server::{Reply, reply};

pub(crate) fn serve(request: &str) -> Reply {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    const LIST: &str =
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;
    if request.contains("watch=") {
        Reply::WriteAndHang(HEAD.into())
    } else {
        Reply::Write(reply("200 OK", "Content-Type: application/json\r\n", LIST))
    }
}
