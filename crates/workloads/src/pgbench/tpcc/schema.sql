-- Tables like TPC-C's (TPC Benchmark C, revision 5.11, clause 1.3). Texts are `text`; the ten S_DIST_xx of a stock are one array.
-- tpcc_size says how large everything is.

CREATE TABLE tpcc_size (warehouses int NOT NULL, customers int NOT NULL, items int NOT NULL);

CREATE TABLE warehouse (
    w_id int PRIMARY KEY, w_name text NOT NULL, w_street_1 text NOT NULL, w_street_2 text NOT NULL, w_city text NOT NULL,
    w_state text NOT NULL, w_zip text NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL
);
CREATE TABLE district (
    d_w_id int NOT NULL, d_id int NOT NULL, d_name text NOT NULL, d_street_1 text NOT NULL,
    d_street_2 text NOT NULL, d_city text NOT NULL, d_state text NOT NULL, d_zip text NOT NULL, d_tax numeric(4,4) NOT NULL,
    d_ytd numeric(12,2) NOT NULL, d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id)
);
CREATE TABLE customer (
    c_w_id int NOT NULL, c_d_id int NOT NULL, c_id int NOT NULL, c_first text NOT NULL, c_middle text NOT NULL,
    c_last text NOT NULL, c_street_1 text NOT NULL, c_street_2 text NOT NULL, c_city text NOT NULL, c_state text NOT NULL,
    c_zip text NOT NULL, c_phone text NOT NULL, c_since timestamptz NOT NULL, c_credit text NOT NULL,
    c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL,
    c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, c_data text NOT NULL,
    PRIMARY KEY (c_w_id, c_d_id, c_id)
);
CREATE TABLE history (
    h_c_id int NOT NULL, h_c_d_id int NOT NULL, h_c_w_id int NOT NULL, h_d_id int NOT NULL, h_w_id int NOT NULL,
    h_date timestamptz NOT NULL, h_amount numeric(6,2) NOT NULL, h_data text NOT NULL
);
CREATE TABLE orders (
    o_w_id int NOT NULL, o_d_id int NOT NULL, o_id int NOT NULL, o_c_id int NOT NULL, o_entry_d timestamptz NOT NULL,
    o_carrier_id int, o_ol_cnt int NOT NULL, o_all_local int NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)
);
CREATE TABLE new_order (
    no_w_id int NOT NULL, no_d_id int NOT NULL, no_o_id int NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id)
);
CREATE TABLE order_line (
    ol_w_id int NOT NULL, ol_d_id int NOT NULL, ol_o_id int NOT NULL, ol_number int NOT NULL, ol_i_id int NOT NULL,
    ol_supply_w_id int NOT NULL, ol_delivery_d timestamptz, ol_quantity int NOT NULL, ol_amount numeric(6,2) NOT NULL,
    ol_dist_info text NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
);
CREATE TABLE item (
    i_id int PRIMARY KEY, i_im_id int NOT NULL, i_name text NOT NULL, i_price numeric(5,2) NOT NULL, i_data text NOT NULL
);
CREATE TABLE stock (
    s_w_id int NOT NULL, s_i_id int NOT NULL, s_quantity int NOT NULL, s_dist text[] NOT NULL, s_ytd int NOT NULL,
    s_order_cnt int NOT NULL, s_remote_cnt int NOT NULL, s_data text NOT NULL, PRIMARY KEY (s_w_id, s_i_id)
);
CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);

-- A whole number from lo to hi.
CREATE FUNCTION tpcc_rnd(lo int, hi int) RETURNS int LANGUAGE sql VOLATILE AS
$$ SELECT lo + floor(random() * (hi - lo + 1))::int $$;

-- The uneven draw of clause 2.1.6; `run` is its constant C.
CREATE FUNCTION tpcc_nurand(a int, lo int, hi int, run int) RETURNS int LANGUAGE sql VOLATILE AS
$$ SELECT ((tpcc_rnd(0, a) | tpcc_rnd(lo, hi)) + run) % (hi - lo + 1) + lo $$;

-- The last name with this number, of three syllables (clause 4.3.2.3).
CREATE FUNCTION tpcc_last(number int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT s[number / 100 % 10 + 1] || s[number / 10 % 10 + 1] || s[number % 10 + 1]
    FROM (SELECT ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'] AS s) AS syllables
$$;

-- A text of lo to hi characters that means nothing.
CREATE FUNCTION tpcc_text(lo int, hi int) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT left(repeat(md5(random()::text), 16), tpcc_rnd(lo, hi)) $$;

-- Data of an item or stock: one in ten is ORIGINAL (clause 4.3.3.1).
CREATE FUNCTION tpcc_data() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN random() < 0.1 THEN 'ORIGINAL' ELSE '' END || tpcc_text(18, 42) $$;
