//! From the command line to the description of a load.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    load: LoadArgs,
}

fn spec(args: &str) -> anyhow::Result<LoadSpec> {
    Cli::try_parse_from(["load"].into_iter().chain(args.split_whitespace()))?.load.spec()
}

#[test]
fn fios_names_mean_what_they_mean_in_fio() {
    let s = spec("--rw randrw --rwmixread 70 --bs 16k --iodepth 32 --numjobs 4 --runtime 30 --size 1g").unwrap();
    assert!(s.random && s.open.is_none());
    assert_eq!((s.read_percent, s.block_bytes, s.depth, s.jobs), (70, 16384, 32, 4));
    assert_eq!((s.runtime_ns, s.size_bytes), (Some(30_000_000_000), Some(1 << 30)));
    let s = spec("--rw write --number_ios 7 --cpus_allowed 1,2 --numjobs 3").unwrap();
    assert_eq!((s.random, s.read_percent, s.ios, s.threads, s.cpus), (false, 0, Some(7), 2, vec![1, 2]));
}

#[test]
fn a_rate_makes_an_open_loop_per_connection() {
    let s = spec("--rate_iops 10k --numjobs 2 --rate_process poisson").unwrap();
    let open = s.open.unwrap();
    assert_eq!((open.schedule.mean_iops(), open.process, s.depth), (20_000.0, Process::Poisson, OPEN_LOOP_DEPTH));
    let s = spec("--rate_iops 10k --schedule 10%:1s,100%:1s --iodepth 8").unwrap();
    assert_eq!((s.open.unwrap().schedule.mean_iops(), s.depth), (5_500.0, 8));
}

#[test]
fn patterns_are_those_of_the_paper() {
    let of = |name: &str| {
        let s = spec(&format!("--pattern {name}")).unwrap();
        assert!(s.open.is_none() && s.file_bytes.is_none() && s.depth == 1);
        (s.random, s.read_percent, s.block_bytes)
    };
    assert_eq!((of("rand_r"), of("rand_w")), ((true, 100, 8192), (true, 0, 8192)));
    assert_eq!((of("seq_r"), of("seq_w")), ((false, 100, 131_072), (false, 0, 131_072)));
    assert_eq!(of("rand_rw"), (true, 70, 8192));
}

#[test]
fn training_reads_whole_files_at_the_accelerator_s_rate() {
    let of = |args: &str| {
        let s = spec(args).unwrap();
        assert!(!s.random && s.read_percent == 100);
        let bytes_per_s = s.open.unwrap().schedule.mean_iops() * f64::from(s.block_bytes);
        (s.file_bytes.unwrap(), s.depth, s.block_bytes, bytes_per_s.round())
    };
    assert_eq!(of("--pattern unet3d"), (146_600_628, 4, 131_072, 431_051_538.0));
    assert_eq!(of("--pattern bert"), (783_830_000, 1, 131_072, 123_967.0));
    assert_eq!(of("--pattern bert --numjobs 16").3, 1_983_471.0, "each connection is an accelerator");
}

#[test]
fn an_option_beside_a_pattern_has_precedence_or_is_refused() {
    let s = spec("--pattern rand_rw --bs 32k --iodepth 16 --rate_iops 1k").unwrap();
    assert_eq!((s.block_bytes, s.depth, s.read_percent), (32768, 16, 70));
    assert_eq!(s.open.unwrap().schedule.mean_iops(), 1000.0);
    let s = spec("--pattern unet3d --bs 64k --iodepth 8").unwrap();
    let bytes_per_s = s.open.unwrap().schedule.mean_iops() * 65536.0;
    assert_eq!((s.depth, bytes_per_s.round()), (8, 431_051_538.0), "the same bytes a second");
    assert_eq!(spec("--pattern bert --rate_iops 500").unwrap().open.unwrap().schedule.mean_iops(), 500.0);
    for args in ["--rw read", "--rwmixread 50", "--trace t.csv"] {
        assert!(spec(&format!("--pattern rand_rw {args}")).is_err(), "{args}");
    }
    assert!(spec("--pattern rand_r --verify").is_err() && spec("--pattern rand_rw --verify").is_ok());
}

#[test]
fn impossible_wishes_are_refused() {
    for args in ["--schedule 5%:1s", "--rate_iops 0", "--iodepth 0", "--verify", "--rwmixread 101 --rw rw", "--bs x"] {
        assert!(spec(args).is_err(), "{args}");
    }
}
