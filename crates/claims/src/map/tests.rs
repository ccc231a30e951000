//! Parsing of maps.

use super::*;

fn read(text: &str) -> Result<Map, MapError> {
    parse(&[("map.toml".to_owned(), text.to_owned())])
}

#[test]
fn every_kind_of_row_is_parsed() {
    let map = read(
        "[[row]]\nid='q'\nexperiment='e'\nmetric='w'\npolicy='sandman'\nversus='static'\ncompare='reduction %'\n\
         [[row]]\nid='o'\nexperiment='e'\nmetric='w'\nholds=['a < {b, c}']\n\
         [[row]]\nid='v'\nfile='profiles/p.toml'\nkey='a.b'\nfactor=0.001\n\
         [[row]]\nid='f'\nformula='1 + 1'\n\
         [[row]]\nid='t'\ntest='crates/x/tests/y.rs::z'\n\
         [[not_modelled]]\nid='n'\nreason='the model has no fans'\n",
    );
    let map = map.unwrap();
    assert_eq!(map.rows.keys().collect::<Vec<_>>(), ["f", "o", "q", "t", "v"]);
    assert!(matches!(&map.rows["q"].check, Check::Quantity(q) if q.versus.as_ref().unwrap().policy == "static"));
}

#[test]
fn errors_contain_id_and_key() {
    let cases = [
        ("id='x'\nexperimant='e'", "row x", "experimant"),
        ("id='x'\nexperiment='e'\nmetric='w'\npolicy='p'", "row x", "compare: is missing"),
        ("id='x'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='ratio'", "row x", "versus: is missing"),
        ("id='x'\nexperiment='e'\nmetric='w'\npolicy='p'\nversus='q'\ncompare='value'", "row x", "versus: does not"),
        ("id='x'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='quotient'", "row x", "compare"),
        ("id='x'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\npoint='fast'", "row x", "point: \"fast\""),
        ("id='x'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\nmargin=0.1", "row x", "margin: does not go"),
        ("id='x'\nholds=['a <']\nexperiment='e'", "row x", "holds: "),
        ("id='x'\nholds=[]\nexperiment='e'", "row x", "holds: has no statement"),
        ("id='x'\nholds=['a < b']\nmargin=10", "row x", "margin: 10 is no share"),
        ("id='x'\nholds=['a < b']\nmargin_of='c'", "row x", "margin_of: there is no term c"),
        ("id='x'\nholds=['a < b']\nterms={a={policy='p', colour=1}}", "row x", "terms"),
        ("id='x'\nfile='a'", "row x", "key: is missing"),
        ("id='x'\nfile='a'\nkey=['b', 'c']\nexpect='d'", "row x", "key: must be one key"),
        ("id='x'\nfile='a'\nkey=3", "row x", "a key, or a list of keys"),
        ("id='x'\nfile='a'\nkey='b'\nfactor='c'", "row x", "factor"),
        ("id='x'\ntest='a'", "row x", "test: "),
        ("id='x'\nmetric='w'", "row x", "a key: none of holds"),
        ("metric='w'", "row number 1", "id: is missing"),
    ];
    for (text, id, part) in cases {
        let error = read(&format!("[[row]]\n{text}\n")).unwrap_err().to_string();
        assert!(error.contains(id) && error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_claim_has_one_row() {
    let row = "[[row]]\nid='x'\nformula='1'\n";
    assert!(read(&format!("{row}{row}")).unwrap_err().to_string().contains("row x: id: is a duplicate"));
    let listed = "[[not_modelled]]\nid='x'\nreason='no fans at all'\n";
    assert!(read(&format!("{row}{listed}")).unwrap_err().to_string().contains("row x: id: is mapped and"));
    assert!(read("[[not_modelled]]\nid='x'\nreason='no'\n").unwrap_err().to_string().contains("row x: reason"));
    assert!(read("[[rows]]\nid='x'\n").unwrap_err().to_string().contains("rows"));
}
