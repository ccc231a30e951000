//! System calls of kernel TLS: keys into a socket, records with their type out of it and into it. All `unsafe` is of these calls.

use std::io::{Error, IoSlice, IoSliceMut, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_void, cmsghdr, msghdr};
use zeroize::Zeroize;

use crate::hash::Hash;
use crate::secrets::Keys;

/// `TCP_ULP` of linux/tcp.h.
const TCP_ULP: c_int = 31;
/// `SOL_TLS` of linux/socket.h.
const SOL_TLS: c_int = 282;
/// `TLS_SET_RECORD_TYPE` of linux/tls.h.
const SET_RECORD_TYPE: c_int = 1;
/// `TLS_GET_RECORD_TYPE` of linux/tls.h.
const GET_RECORD_TYPE: c_int = 2;
/// `TLS_1_3_VERSION` of linux/tls.h.
const TLS_1_3: u16 = 0x0304;
/// `TLS_CIPHER_AES_GCM_128` and `_256` of linux/tls.h.
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
/// Maximum of `struct tls12_crypto_info_aes_gcm_256`: header 4, IV 8, key 32, salt 4, record number 8.
const MAX_CRYPTO_INFO: usize = 56;

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Side {
    /// `TLS_TX`.
    Send = 1,
    /// `TLS_RX`.
    Receive = 2,
}

/// Room for one control message with a record type of one byte, aligned as `cmsghdr`.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: computes a length; nothing is accessed.
const CONTROL: usize = unsafe { libc::CMSG_SPACE(1) } as usize;

/// Attaches kernel TLS, which has no effect before keys are set.
pub(crate) fn attach(socket: BorrowedFd<'_>) -> Result<()> {
    set_option(socket, libc::IPPROTO_TCP, TCP_ULP, b"tls\0")
}

/// Gives the kernel the keys of one direction, from its first record on.
pub(crate) fn set_keys(socket: BorrowedFd<'_>, side: Side, hash: Hash, keys: &Keys) -> Result<()> {
    let mut info = [0; MAX_CRYPTO_INFO];
    let len = crypto_info(hash, keys, &mut info);
    let result = set_option(socket, SOL_TLS, side as c_int, &info[..len]);
    info.zeroize();
    result
}

/// Builds `struct tls12_crypto_info_aes_gcm_*`, which TLS 1.3 uses too: the first four bytes of the nonce are its salt. The record number
/// is 0. Returns the length.
fn crypto_info(hash: Hash, keys: &Keys, info: &mut [u8; MAX_CRYPTO_INFO]) -> usize {
    let cipher = if keys.key.len() == Hash::Sha256.key_len() { AES_GCM_128 } else { AES_GCM_256 };
    debug_assert_eq!(keys.key.len(), hash.key_len());
    let (salt, iv) = keys.iv.split_at(4);
    let parts = [&TLS_1_3.to_ne_bytes()[..], &cipher.to_ne_bytes(), iv, &keys.key, salt, &[0; 8]];
    let mut len = 0;
    for part in parts {
        info[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    len
}

fn set_option(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &[u8]) -> Result<()> {
    // SAFETY: `value` is readable for the length that is passed.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), value.len() as u32) };
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Receives the content of records of one type: bytes, and the type; `None` at the end of the connection. `buffers` have room for at
/// least a byte.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffers: &mut [IoSliceMut<'_>]) -> Result<(usize, Option<u8>)> {
    let mut control = Control([0; CONTROL]);
    // `IoSliceMut` has the layout of `iovec`.
    let mut message = message(buffers.as_mut_ptr().cast(), buffers.len());
    add_control(&mut message, &mut control);
    let received = retried(|| {
        // SAFETY: the message points to buffers that are borrowed mutably here, and to `control`.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) }
    })?;
    // SAFETY: the kernel has filled `message.msg_control` for `message.msg_controllen` bytes; a header is null or lies within.
    let kind = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_type = !header.is_null() && ((*header).cmsg_level, (*header).cmsg_type) == (SOL_TLS, GET_RECORD_TYPE);
        is_type.then(|| *libc::CMSG_DATA(header))
    };
    Ok((received, kind))
}

/// Sends application data; returns how many bytes the kernel has taken.
pub(crate) fn send(socket: BorrowedFd<'_>, buffers: &[IoSlice<'_>]) -> Result<usize> {
    send_message(socket, &message(buffers.as_ptr().cast_mut().cast(), buffers.len()))
}

/// Sends a record of another type.
pub(crate) fn send_record(socket: BorrowedFd<'_>, kind: u8, content: &[u8]) -> Result<usize> {
    let (mut control, buffers) = (Control([0; CONTROL]), [IoSlice::new(content)]);
    let mut message = message(buffers.as_ptr().cast_mut().cast(), 1);
    add_control(&mut message, &mut control);
    // SAFETY: `control` has room for a header with one byte of data, and is aligned for it.
    unsafe {
        let header: *mut cmsghdr = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = SOL_TLS;
        (*header).cmsg_type = SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(header) = kind;
    }
    send_message(socket, &message)
}

fn send_message(socket: BorrowedFd<'_>, message: &msghdr) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the callers' buffers and control buffer outlive this call, and sending only reads them.
    retried(|| unsafe { libc::sendmsg(socket.as_raw_fd(), message, flags) })
}

fn message(buffers: *mut libc::iovec, count: usize) -> msghdr {
    // SAFETY: a `msghdr` of zeros is valid.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = buffers;
    message.msg_iovlen = count as _;
    message
}

fn add_control(message: &mut msghdr, control: &mut Control) {
    message.msg_control = (&raw mut control.0).cast::<c_void>();
    message.msg_controllen = CONTROL as _;
}

/// Repeats a system call that a signal interrupted.
fn retried(mut call: impl FnMut() -> isize) -> Result<usize> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(bytes);
        }
        let error = Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
