//! Protocol violations by a peer: one test for each row of `docs/faults.md`, which has the exact response.
//!
//! A test is named after its row (`f101_...`) and returns the response, which is compared with the row, so that documentation and
//! behaviour agree. All rows share one target: each uses its own connections, which must work while other rows violate the protocol.

mod hostile {
    pub(crate) mod answer;
    pub(crate) mod fixture;
    pub(crate) mod table;

    mod admin;
    mod capsules;
    mod connect;
    mod data;
    mod features;
    mod framing;
    mod io;
    mod life;

    /// Defines tests and the list of their names. Each returns an [`answer::Answer`], which the table must contain.
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
    fn the_table_and_the_tests_have_the_same_rows() {
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
        let mut documented: Vec<String> = table::rows().into_iter().map(|row| row.id).collect();
        assert!(
            documented.is_sorted() && documented.windows(2).all(|pair| pair[0] != pair[1]),
            "IDs are unique and ascending: {documented:?}"
        );
        tested.sort();
        documented.sort();
        assert_eq!(tested, documented, "left: tests; right: rows of docs/faults.md");
    }
}
