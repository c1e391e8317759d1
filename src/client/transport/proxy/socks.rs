//! SOCKS5: RFC 1928, with the user and password authentication of RFC 1929. The Go counterpart is
//! `golang.org/x/net/internal/socks`.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use super::User;
use crate::client::transport::authority::without_brackets;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Requests a tunnel to `host`. An IPv6 address has brackets. The proxy resolves names.
pub(super) fn open(
    stream: &mut (impl Read + Write),
    host: &str,
    port: u16,
    user: Option<&User>,
) -> io::Result<()> {
    let hello: &[u8] = match user {
        None => &[VERSION, 1, NO_AUTHENTICATION],
        Some(_) => &[VERSION, 2, NO_AUTHENTICATION, USER_AND_PASSWORD],
    };
    stream.write_all(hello)?;
    let [version, method] = read(stream)?;
    check_version(version)?;
    match (method, user) {
        (NO_AUTHENTICATION, _) => {}
        (USER_AND_PASSWORD, Some(user)) => authenticate(stream, user)?,
        (NONE_ACCEPTABLE, None) => {
            return Err(io::Error::other(
                "a user name and a password are required; set them in the proxy's URL",
            ));
        }
        (NONE_ACCEPTABLE, Some(_)) => {
            return Err(io::Error::other(
                "authentication with a user name and password is not supported",
            ));
        }
        _ => {
            return Err(io::Error::other(
                "the chosen authentication method was not offered",
            ));
        }
    }

    stream.write_all(&request(host, port)?)?;
    let [version, reply, reserved, kind] = read(stream)?;
    check_version(version)?;
    if reply != 0 {
        return Err(io::Error::other(format!(
            "the tunnel to {host}:{port} was refused: {}",
            reason(reply)
        )));
    }
    if reserved != 0 {
        return Err(io::Error::other("the response is not SOCKS5"));
    }
    // Skips the proxy's outgoing address and port.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => usize::from(read::<1>(stream)?[0]),
        _ => return Err(io::Error::other("the response is not SOCKS5")),
    };
    stream.read_exact(&mut [0; 255 + 2][..length + 2])
}

fn authenticate(stream: &mut (impl Read + Write), user: &User) -> io::Result<()> {
    let (name, password) = (&user.name[..], &user.password[..]);
    let too_long = |_| io::Error::other("the user name or password is longer than 255 bytes");
    let lengths = [name, password].map(|text| u8::try_from(text.len()).map_err(too_long));
    let [name_length, password_length] = lengths;
    stream.write_all(&[&[1, name_length?], name, &[password_length?], password].concat())?;
    match read(stream)? {
        [1, 0] => Ok(()),
        [1, _] => Err(io::Error::other("the user name and password were rejected")),
        _ => Err(io::Error::other("the response is not SOCKS5")),
    }
}

fn request(host: &str, port: u16) -> io::Result<Vec<u8>> {
    let bare = without_brackets(host);
    let mut request = vec![VERSION, CONNECT, 0];
    match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(bare.len())
                .map_err(|_| io::Error::other("the server's name is too long"))?;
            request.extend([NAME, length]);
            request.extend(bare.bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn check_version(version: u8) -> io::Result<()> {
    match version {
        VERSION => Ok(()),
        _ => Err(io::Error::other("the response is not SOCKS5")),
    }
}

fn reason(reply: u8) -> String {
    match reply {
        1 => "general failure",
        2 => "not allowed by the proxy's rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => return format!("unknown code {reply}"),
    }
    .to_owned()
}
