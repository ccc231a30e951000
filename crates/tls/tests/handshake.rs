//! Handshakes: what succeeds, and what each failure says.

mod common;

use std::io::Read;
use std::os::unix::net::UnixStream;

use common::{advance, handshake, long_identity, psk, send_plain, server_of, tcp_pair};
use pilotlight_tls::{Alert, ClientConfig, Failure, Handshake, Hash, Step};

const IDENTITY: &[u8] = b"NVMe0R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:storage";

fn ends(client: Vec<pilotlight_tls::Psk>, server: Vec<pilotlight_tls::Psk>) -> (common::End, common::End) {
    let (a, b) = UnixStream::pair().expect("socket pair");
    handshake(&ClientConfig::new(client), &server_of(server), &a, &b)
}

#[test]
fn each_hash_selects_its_cipher_suite_and_both_sides_know_the_identity() {
    for (hash, suite) in [(Hash::Sha256, "TLS_AES_128_GCM_SHA256"), (Hash::Sha384, "TLS_AES_256_GCM_SHA384")] {
        let key = psk(&long_identity(), 3, hash);
        let (a, b) = tcp_pair();
        let (client, server) = handshake(&ClientConfig::new(vec![key.clone()]), &server_of(vec![key]), &a, &b);
        for session in [client.expect("client"), server.expect("server")] {
            assert_eq!(session.cipher_suite(), suite);
            assert_eq!(session.identity(), long_identity());
        }
    }
}

#[test]
fn the_first_known_identity_is_selected() {
    let known = [psk(b"second", 2, Hash::Sha384), psk(b"third", 3, Hash::Sha256)];
    let offered = [psk(b"first", 1, Hash::Sha256), known[0].clone(), known[1].clone()];
    let (client, server) = ends(offered.to_vec(), known.to_vec());
    assert_eq!(client.expect("client").identity(), b"second");
    assert_eq!(server.expect("server").identity(), b"second");
}

#[test]
fn the_server_distinguishes_a_wrong_key_from_an_unknown_identity_and_the_client_does_not() {
    let (refused, wrong) = ends(vec![psk(IDENTITY, 1, Hash::Sha256)], vec![psk(IDENTITY, 2, Hash::Sha256)]);
    assert_eq!(wrong.expect_err("another key"), Failure::WrongKey);
    let alert = Failure::Alert(Alert(51));
    assert_eq!(refused.expect_err("another key"), alert);

    let (refused, unknown) = ends(vec![psk(IDENTITY, 1, Hash::Sha256)], vec![psk(b"other", 1, Hash::Sha256)]);
    let identity = String::from_utf8(IDENTITY.to_vec()).expect("ASCII");
    assert_eq!(unknown.expect_err("unknown"), Failure::UnknownIdentity { identity, offered: 1 });
    assert_eq!(refused.expect_err("unknown"), alert);
}

#[test]
fn a_client_with_another_hash_for_the_key_is_told_so() {
    for (offered, configured) in [(Hash::Sha256, Hash::Sha384), (Hash::Sha384, Hash::Sha256)] {
        let (refused, failed) = ends(vec![psk(IDENTITY, 1, offered)], vec![psk(IDENTITY, 1, configured)]);
        assert_eq!(failed.expect_err("another hash"), Failure::BinderHash);
        assert_eq!(refused.expect_err("another hash"), Failure::Alert(Alert(51)));
    }
}

#[test]
fn an_identity_in_a_message_is_printable_and_short() {
    let (_, failed) = ends(vec![psk(&[b'\n'; 60_000], 1, Hash::Sha256), psk(b"b", 1, Hash::Sha256)], vec![]);
    let message = failed.expect_err("unknown").to_string();
    assert!(message.contains("\\n") && message.contains("or 1 more") && message.len() < 1000, "{message}");
}

/// A side of a server that gets these bytes, and the end of the connection if it waits for more.
fn server_end(bytes: &[u8]) -> (Failure, Vec<u8>) {
    let (client, socket) = UnixStream::pair().expect("socket pair");
    send_plain(&client, bytes);
    let mut server = Handshake::server(&server_of(vec![psk(IDENTITY, 1, Hash::Sha256)])).expect("server");
    let mut end = advance(&mut server, &socket);
    if end.is_none() {
        client.shutdown(std::net::Shutdown::Write).expect("shutdown");
        end = advance(&mut server, &socket);
    }
    drop(socket);
    let mut sent = vec![];
    let _ = (&client).read_to_end(&mut sent); // reset if the server left bytes unread
    (end.expect("the connection has ended").expect_err("no peer has the key"), sent)
}

#[test]
fn plain_bytes_are_recognized() {
    let ic_req = [&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat();
    let (client, socket) = UnixStream::pair().expect("socket pair");
    send_plain(&client, &ic_req);
    let mut server = Handshake::server(&server_of(vec![])).expect("server");
    let Step::Failed(failure) = server.step(&socket) else { panic!("the client waits for the server") };
    assert_eq!(failure, Failure::NotTls { first: 0 });
    let (failure, sent) = server_end(&ic_req[..16]);
    assert_eq!(failure, Failure::NotTls { first: 0 });
    assert!(failure.to_string().contains("plain NVMe/TCP"), "{failure}");
    assert_eq!(sent, [], "TLS is not sent to a peer without TLS");
    assert_eq!(server_end(b"GET / HTTP/1.1\r\n\r\n").0, Failure::NotTls { first: b'G' });
    assert_eq!(server_end(b"\x80\x2e\x01\x03\x01").0, Failure::NotTls { first: 0x80 }, "a ClientHello of SSL 2");
}

/// A ClientHello in its record, with the extensions that are given here.
fn client_hello(suites: &[u8], extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let extensions: Vec<u8> =
        extensions.iter().flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &sized(data)].concat()).collect();
    let body = [&[3, 3], &[5; 32][..], &[0], &sized(suites), &[1, 0], &sized(&extensions)].concat();
    let message = [&[1, 0], &sized(&body)[..]].concat();
    [&[22, 3, 1], &sized(&message)[..]].concat()
}

#[test]
fn a_clients_offer_that_cannot_be_used_is_named() {
    let identities = [&[0, IDENTITY.len() as u8], IDENTITY, &[0; 4]].concat();
    let psks = [&(identities.len() as u16).to_be_bytes(), &identities[..], &[0, 33, 32], &[0; 32]].concat();
    let versions: (u16, &[u8]) = (43, &[2, 3, 4]);
    let modes: (u16, &[u8]) = (45, &[1, 1]);
    let groups: (u16, &[u8]) = (10, &[0, 2, 0, 23]);
    let share = [&[0, 69, 0, 23, 0, 65], &[4; 65][..]].concat();
    let psks: (u16, &[u8]) = (41, &psks);
    let all = |suites: &[u8]| client_hello(suites, &[versions, modes, groups, (51, &share), psks]);
    let needed = "TLS_AES_128_GCM_SHA256";
    let cases = [
        (client_hello(&[0x13, 1], &[modes, groups, psks]), Failure::NoTls13, 70),
        (client_hello(&[0x13, 1], &[versions, modes, groups]), Failure::NoPsk, 40),
        (client_hello(&[0x13, 1], &[versions, (45, &[1, 0]), groups, psks]), Failure::NoDhe, 40),
        (all(&[0x13, 2, 0x13, 3]), Failure::NoCommonCipher { needed }, 40),
        (all(&[0x13, 1]), Failure::WrongKey, 51),
    ];
    for (hello, expected, alert) in cases {
        let (failure, sent) = server_end(&hello);
        assert_eq!(failure, expected);
        assert_eq!(sent, [21, 3, 3, 0, 2, 2, alert], "{failure}");
    }
}

#[test]
fn a_half_open_handshake_waits_for_its_caller_and_ends_with_the_connection() {
    let hello = client_hello(&[0x13, 1], &[(43, &[2, 3, 4])]);
    let (client, socket) = UnixStream::pair().expect("socket pair");
    let mut server = Handshake::server(&server_of(vec![])).expect("server");
    assert!(matches!(server.step(&socket), Step::WantRead));
    for byte in &hello[..hello.len() - 1] {
        send_plain(&client, &[*byte]);
        assert!(matches!(server.step(&socket), Step::WantRead));
    }
    drop(client);
    assert!(matches!(server.step(&socket), Step::Failed(Failure::Closed)));
    for len in [0, 1, 5, 20] {
        assert_eq!(server_end(&hello[..len]).0, Failure::Closed, "after {len} bytes");
    }
}

#[test]
fn a_client_refuses_a_server_without_its_key() {
    let (a, b) = UnixStream::pair().expect("socket pair");
    let mut client = Handshake::client(&ClientConfig::new(vec![psk(IDENTITY, 1, Hash::Sha256)])).expect("client");
    assert!(matches!(client.step(&a), Step::WantRead));
    send_plain(&b, &[21, 3, 3, 0, 2, 2, 40]);
    let Step::Failed(failure) = client.step(&a) else { panic!("the server refused") };
    assert_eq!(failure, Failure::Alert(Alert(40)));
    assert_eq!(failure.to_string(), "the peer refused the handshake: alert 40 (handshake_failure)");
}

#[test]
fn keys_that_tls_does_not_allow_are_refused() {
    let long = vec![1; 65_536];
    for (identity, secret) in [(&b"a"[..], &[1; 15][..]), (&[], &[1; 32]), (&long, &[1; 32])] {
        let error = pilotlight_tls::Psk::new(identity, secret, Hash::Sha256).expect_err("a wrong length");
        assert!(error.to_string().contains("at least 16 bytes"), "{error}");
    }
    let shown = format!("{:?}", psk(b"id", 0x41, Hash::Sha256));
    assert_eq!(shown, r#"Psk { identity: "id", hash: Sha256, .. }"#);
}
