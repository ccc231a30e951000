//! The smallest server: `cargo run --release -p pilotlight-target --example serve -- mem:1GiB 4420 0`.
use pilotlight_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let backend = args.next().unwrap_or_else(|| "mem:1GiB".into()).parse()?;
    let port: u16 = args.next().unwrap_or_else(|| "4420".into()).parse()?;
    let core: u32 = args.next().unwrap_or_else(|| "0".into()).parse()?;
    let namespace = NamespaceConfig { nsid: 1, backend, block_size: 4096, uuid: None };
    let subsystem = SubsystemConfig {
        nqn: "nqn.2014-08.org.pilotlight:demo".into(),
        serial: None,
        allowed_hosts: Vec::new(),
        namespaces: vec![namespace],
    };
    let config = ServerConfig {
        listeners: vec![([127, 0, 0, 1], port).into()],
        subsystems: vec![subsystem],
        cores: vec![core],
        main_core: core,
        ..ServerConfig::default()
    };
    let server = Server::start(config)?;
    println!("serving on {:?}", server.local_addrs());
    loop {
        std::thread::park();
    }
}
