//! What a peer can do wrong, one test for each row of `docs/faults.md`: a real target, a peer without manners, and the
//! answer that the table promises, byte for byte.
//!
//! A test is named after its row (`f07_...`), does what the row says and returns what came back; what the table says
//! about it is read from the table, so that documentation and behaviour cannot drift apart. All rows share one target:
//! each begins with well-mannered connections of its own, which must work whatever the others are doing to the target.

mod hostile {
    pub(crate) mod answer;
    pub(crate) mod stage;
    pub(crate) mod table;

    mod admin;
    mod capsules;
    mod connect;
    mod data;
    mod features;
    mod framing;
    mod io;
    mod life;

    /// Defines tests and the list of their names. Each returns an [`answer::Answer`], to be found in the table.
    macro_rules! rows {
        ($($(#[$attribute:meta])* fn $name:ident() -> Answer $body:block)*) => {
            $(
                $(#[$attribute])*
                #[test]
                fn $name() {
                    let row: fn() -> Answer = || $body;
                    crate::hostile::table::check(stringify!($name), &row());
                }
            )*
            pub(super) const ROWS: &[&str] = &[$(stringify!($name)),*];
        };
    }
    pub(crate) use rows;

    #[test]
    fn every_row_of_the_table_is_a_test_and_every_test_a_row() {
        let modules = [
            framing::ROWS,
            capsules::ROWS,
            data::ROWS,
            connect::ROWS,
            admin::ROWS,
            features::ROWS,
            io::ROWS,
            life::ROWS,
        ];
        let mut tested: Vec<String> = modules.concat().iter().map(|name| table::id_of(name)).collect();
        let mut told: Vec<String> = table::rows().into_iter().map(|row| row.id).collect();
        assert!(told.is_sorted() && told.windows(2).all(|pair| pair[0] != pair[1]), "ids ascend, each once: {told:?}");
        tested.sort();
        told.sort();
        assert_eq!(tested, told, "left: tests; right: rows of docs/faults.md");
    }
}
