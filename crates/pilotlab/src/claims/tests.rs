//! The command from files to output, and its errors.

use clap::Parser as _;
use serde_json::Value;

use super::*;
use crate::cli::{Cli, Command};

const CALIBRATION: &str = "profiles/calibration/sandman-epyc-9454p.toml";
const CLAIM: &str = "\
[[claim]]
id = 'sandman-saving'
seed = 'sandman'
where = 's5; Fig 4(a)'
kind = 'predict'
system = 'sandman'
versus = 'spdk-static'
metric = 'system power reduction (%)'
value = 40
relation = 'eq'
null = 0
unit = '%'
condition = ''
";
const ROW: &str = "\
[[row]]
id = 'sandman-saving'
experiment = 'fig4'
metric = 'system_power_w'
policy = 'sandman'
versus = 'spdk-static'
compare = 'reduction %'
";

/// Power of both policies in three replications, for a variant.
fn power(variant: &str, sandman: f64) -> String {
    let line = |i: u32, policy: &str, power: f64| format!("fig4,-,{variant},{policy},{i},1,system_power_w,W,{power}\n");
    (0..3).map(|i| line(i, "sandman", sandman + f64::from(i)) + &line(i, "spdk-static", 700.0 + f64::from(i))).collect()
}

/// A folder with a claim, a map and results, including changed and random constants.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let header =
        "# schema=2\n# profile=epyc hash=12ab\nexperiment,point,variant,policy,replication,seed,metric,unit,value\n";
    let mut results = header.to_owned() + &power("default", 420.0);
    results += &power("perturb:poll.loop_ns:+20", 560.0);
    for i in 1..=9_u32 {
        results += &power(&format!("lhs:{i}/9"), 400.0 + f64::from(10 * i));
    }
    std::fs::create_dir_all(folder.path().join("results/fig4")).unwrap();
    std::fs::create_dir_all(folder.path().join("papers")).unwrap();
    std::fs::create_dir_all(folder.path().join("profiles/calibration")).unwrap();
    for (file, text) in [
        (CLAIMS, CLAIM),
        (MAP, ROW),
        ("results/fig4/values.csv", results.as_str()),
        (CALIBRATION, "[[constant]]\nkey = 'poll.loop_ns'\nvalue = 1\nsource = 's'\nfitted_on = []\n"),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    folder
}

fn ask(folder: &Path, more: &[&str]) -> anyhow::Result<String> {
    let root = folder.display().to_string();
    let args = ["pilotlab", "claims", "--root", &root];
    let Command::Claims(args) = Cli::parse_from(args.iter().chain(more)).command else { panic!("not claims") };
    let (root, claims) = claims(&args)?;
    let files = Files::read(&args, root, claims)?;
    files.judged(None, |lab| render(&args, &files, None, lab))
}

#[test]
fn files_give_a_row_with_a_verdict() {
    let folder = folder();
    let json: Value = serde_json::from_str(&ask(folder.path(), &["--json"]).unwrap()).unwrap();
    let row = &json["rows"][0];
    assert_eq!((row["id"].as_str(), row["verdict"].as_str()), (Some("sandman-saving"), Some("reproduced")));
    assert!((row["ours"]["value"].as_f64().unwrap() - 39.94).abs() < 0.01, "{row}");
    assert_eq!(json["results"]["sandman"]["reproduced"], 1);
    assert_eq!(json["profiles"][0]["hash"], "12ab");
    let text = ask(folder.path(), &[]).unwrap();
    assert!(text.contains("\nsandman, Fig 4\n") && text.contains("profile epyc, 12ab"), "{text}");
}

#[test]
fn a_calibrated_row_lists_its_fits_and_choices() {
    let folder = folder();
    let path = folder.path().join(CALIBRATION);
    let fitted = std::fs::read_to_string(&path).unwrap().replace("[]", "['sandman-saving']");
    let chosen = "[[choice]]\nwhat='the guards'\nplace='a.rs'\nchosen_on=['sandman-saving']\nsource='s'\n";
    std::fs::write(&path, fitted + chosen).unwrap();
    let json: Value = serde_json::from_str(&ask(folder.path(), &["--json"]).unwrap()).unwrap();
    let row = &json["rows"][0];
    assert_eq!((row["verdict"].as_str(), row["otherwise"].as_str()), (Some("calibrated"), Some("reproduced")));
    assert_eq!(row["fitted"], serde_json::json!(["poll.loop_ns", "the guards"]));
    let text = ask(folder.path(), &[]).unwrap();
    assert!(text.contains("fitted or chosen on it: poll.loop_ns; the guards"), "{text}");
    assert!(text.contains("verdicts before overriding: calibrated: 1 reproduced"), "{text}");
    let contradicts =
        "[[contradicts]]\nid='sandman-saving'\nbecause='the table prints less'\ninequality='39 < [sandman-saving]'\n";
    std::fs::write(folder.path().join(MAP), ROW.to_owned() + contradicts).unwrap();
    let json: Value = serde_json::from_str(&ask(folder.path(), &["--json"]).unwrap()).unwrap();
    let row = &json["rows"][0];
    assert_eq!(row["verdict"], "contradicts");
    assert_eq!(row["fitted"], serde_json::json!(["poll.loop_ns", "the guards"]));
}

#[test]
fn a_row_whose_result_was_known_when_a_reading_was_chosen_is_calibrated() {
    let folder = folder();
    let reading = |known: &str| {
        std::fs::write(folder.path().join(READINGS), format!("[[reading]]\nid = 'clients'\nknown = [{known}]\n"))
            .unwrap();
        let json: Value = serde_json::from_str(&ask(folder.path(), &["--json"]).unwrap()).unwrap();
        (json["rows"][0]["verdict"].clone(), json["rows"][0]["otherwise"].clone())
    };
    assert_eq!(reading("'sandman-saving'"), ("calibrated".into(), "reproduced".into()));
    assert_eq!(reading(""), ("reproduced".into(), Value::Null));
}

#[test]
fn readings_name_rows_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let claims = claim::parse(&texts(&[root.join(CLAIMS)]).unwrap()).unwrap();
    for (id, known) in readings(&root).unwrap() {
        let strange: Vec<_> = known.iter().filter(|row| !claims.iter().any(|claim| claim.id == **row)).collect();
        assert!(strange.is_empty(), "{id}: {strange:?}");
    }
}

#[test]
fn a_calibrated_row_that_misses_is_listed_with_misses() {
    let folder = folder();
    let path = folder.path().join(CALIBRATION);
    let fitted = std::fs::read_to_string(&path).unwrap().replace("[]", "['sandman-saving']");
    std::fs::write(&path, fitted).unwrap();
    let claims = folder.path().join(CLAIMS);
    let text = std::fs::read_to_string(&claims).unwrap();
    let missed = text.replacen("[[claim]]", "[[claim]]\nNEW\n[[claim]]", 1);
    let other = text.trim_start_matches("[[claim]]").replace("sandman-saving", "sandman-other");
    std::fs::write(&claims, missed.replace("NEW", &other).replace("value = 40", "value = -90")).unwrap();
    let map = folder.path().join(MAP);
    let rows = std::fs::read_to_string(&map).unwrap();
    std::fs::write(&map, format!("{rows}\n{}", rows.replace("sandman-saving", "sandman-other"))).unwrap();
    let verdicts = ask(folder.path(), &["--table", "verdicts"]).unwrap();
    assert!(verdicts.contains("| sandman | 2 | 1 (+1) | 1 |"), "{verdicts}");
    assert!(verdicts.contains("| sandman | as printed | 1 | 0 of 1 | 0 of 1 | 0 of 1 |"), "{verdicts}");
    assert!(verdicts.contains("(+N): N fitted and still missing"), "{verdicts}");
    assert!(ask(folder.path(), &[]).unwrap().contains("1 (+1)"));
}

#[test]
fn changed_random_and_omitted_constants_are_reported() {
    let folder = folder();
    let text = ask(folder.path(), &["--perturb", "--uncertainty"]).unwrap();
    assert!(text.contains("suspect: one figure only"), "{text}");
    assert!(text.contains("sandman-saving +20: reproduced becomes direction (sandman Fig 4)"), "{text}");
    assert!(text.contains("29.96 to 41.37"), "{text}"); // of 490 and 410 W
    let table = ask(folder.path(), &["--table", "leave-one-out"]).unwrap();
    assert!(table.starts_with("1 free constants; 1 results, of which 1 are reproduced"), "{table}");
    assert!(table.contains("| sandman, Fig 4 | 1 | 1 | none | 1 | none |"), "{table}");
    assert!(ask(folder.path(), &["--table", "verdicts"]).unwrap().contains("| sandman | 1 | 1 |"));
    let rows = ask(folder.path(), &["--table", "rows"]).unwrap();
    assert!(rows.contains("| sandman-saving | Fig 4 | = 40 % | 39.94 ("), "{rows}");
}

#[test]
fn a_page_is_written() {
    let folder = folder();
    let page = folder.path().join("claims.html");
    ask(folder.path(), &["--html", page.to_str().unwrap()]).unwrap();
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("sandman-saving"), "{html}");
}

#[test]
fn errors_name_file_and_key() {
    let folder = folder();
    let refused = |file: &str, text: &str| {
        let path = folder.path().join(file);
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        let error = format!("{:#}", ask(folder.path(), &[]).unwrap_err());
        std::fs::write(&path, before).unwrap();
        error
    };
    let misspelt = refused(MAP, &ROW.replace("policy =", "polcy ="));
    assert!(misspelt.contains("claims-map.toml: row sandman-saving") && misspelt.contains("polcy"), "{misspelt}");
    let contradicts =
        "[[contradicts]]\nid='sandman-saving'\nbecause='more than that'\ninequality='[sandman-saving] > 41'\n";
    let false_one = refused(MAP, &format!("{ROW}{contradicts}"));
    assert!(false_one.contains("row sandman-saving: inequality") && false_one.contains("does not hold"), "{false_one}");
    let no_row = refused("results/fig4/values.csv", "# schema=2\nexperiment\n1\n");
    assert!(no_row.contains("fig4/values.csv, line 3"), "{no_row}");
    let earlier = refused("results/fig4/values.csv", "experiment\n1\n");
    assert!(earlier.contains("no schema version") && earlier.contains("run the experiment again"), "{earlier}");
    assert!(refused(CALIBRATION, "[[constant]]\n").contains(CALIBRATION));
    let absent = format!("{:#}", ask(folder.path(), &["--results", "nowhere.csv"]).unwrap_err());
    assert!(absent.contains("cannot read nowhere.csv"), "{absent}");
}
