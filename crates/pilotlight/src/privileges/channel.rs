//! Packets between a server and its helper process, with at most one descriptor (unix(7), `SCM_RIGHTS`).
//!
//! A side that ends with packets unread resets the connection: for the other side this is its end too.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair, sockopt,
};

/// Two connected ends.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Whether a descriptor is an end of a [`pair`].
pub(super) fn is_end(fd: impl AsFd) -> bool {
    sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
}

/// Sends a packet.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], attached: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: &[BorrowedFd<'_>] = attached.as_slice();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let sent = retry(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a packet and discards attached descriptors; `None` at the end of the other side. A longer packet is cut to `MAX`
/// bytes, one more than the longest valid one.
pub(super) fn receive<const MAX: usize>(socket: impl AsFd) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; MAX];
    let Some((length, _)) = unless_reset(retry(|| recv(&socket, &mut bytes[..], RecvFlags::empty())))? else {
        return Ok(None);
    };
    bytes.truncate(length);
    Ok((length > 0).then_some(bytes))
}

/// Receives a packet with the descriptor that is attached, if one is; `None` at the end of the other side.
pub(super) fn receive_with<const MAX: usize>(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut receive = || recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let Some(received) = unless_reset(retry(&mut receive))? else { return Ok(None) };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().last();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "no descriptor is free for the file: raise the limit of open files (ulimit -n, LimitNOFILE=)",
        ));
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some((bytes, file)))
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn unless_reset<T>(received: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match received {
        Err(Errno::CONNRESET) => Ok(None),
        other => Ok(Some(other?)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_packet_arrives_with_its_file() {
        let (a, b) = pair().unwrap();
        assert!(is_end(&a) && !is_end(std::fs::File::open("/dev/null").unwrap()));
        let file = tempfile::tempfile().unwrap();
        send(&a, &[1, 2], Some(file.as_fd())).unwrap();
        send(&a, &[3], None).unwrap();
        let (bytes, attached) = receive_with::<8>(&b).unwrap().unwrap();
        let inode = |file: &std::fs::File| file.metadata().unwrap().ino();
        assert_eq!((bytes, inode(&attached.unwrap().into())), (vec![1, 2], inode(&file)));
        assert_eq!(receive::<8>(&b).unwrap(), Some(vec![3]));
        send(&a, &[0; 9], None).unwrap();
        assert!(receive_with::<8>(&b).is_err(), "longer than any");
        drop(a);
        assert_eq!(receive::<8>(&b).unwrap(), None);
    }

    #[test]
    fn a_side_that_ends_with_a_packet_unread_has_ended() {
        let ends_unread = || {
            let (a, b) = pair().unwrap();
            send(&a, &[1], None).unwrap();
            drop(b);
            a
        };
        assert_eq!(receive::<8>(ends_unread()).unwrap(), None);
        assert!(receive_with::<8>(ends_unread()).unwrap().is_none());
    }
}
