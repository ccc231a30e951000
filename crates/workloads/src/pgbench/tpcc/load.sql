-- Fills the tables (clause 4.3.3.1): for each warehouse ten districts, each with as many orders as customers, of which the last
-- three in ten are new. With 3,000 customers and 100,000 items these are the specification's sizes.

CREATE FUNCTION tpcc_load(warehouses int, customers int, items int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    names int := least(customers, 1000) - 1;
    delivered int := customers * 7 / 10;
    begun timestamptz := now();
BEGIN
    PERFORM setseed(0.5);
    INSERT INTO tpcc_size VALUES (warehouses, customers, items);
    INSERT INTO item
        SELECT i, tpcc_rnd(1, 10000), tpcc_text(14, 24), tpcc_rnd(100, 10000) / 100.0, tpcc_data()
        FROM generate_series(1, items) AS i;
    INSERT INTO warehouse
        SELECT w, tpcc_text(6, 10), tpcc_text(10, 20), tpcc_text(10, 20), tpcc_text(10, 20), 'EU',
               lpad(tpcc_rnd(0, 9999)::text, 4, '0') || '11111', tpcc_rnd(0, 2000) / 10000.0, customers * 100
        FROM generate_series(1, warehouses) AS w;
    INSERT INTO stock
        SELECT w, i, tpcc_rnd(10, 100), array_fill(md5(random()::text)::char(24)::text, ARRAY[10]), 0, 0, 0, tpcc_data()
        FROM generate_series(1, warehouses) AS w, generate_series(1, items) AS i;
    INSERT INTO district
        SELECT w, d, tpcc_text(6, 10), tpcc_text(10, 20), tpcc_text(10, 20), tpcc_text(10, 20), 'EU',
               lpad(tpcc_rnd(0, 9999)::text, 4, '0') || '11111', tpcc_rnd(0, 2000) / 10000.0, customers * 10, customers + 1
        FROM generate_series(1, warehouses) AS w, generate_series(1, 10) AS d;
    -- The first thousand of a district have each name once, the others as they are asked for, but with another constant.
    INSERT INTO customer
        SELECT w, d, c, tpcc_text(8, 16), 'OE',
               tpcc_last(CASE WHEN c <= 1000 THEN c - 1 ELSE tpcc_nurand(255, 0, names, 157) END),
               tpcc_text(10, 20), tpcc_text(10, 20), tpcc_text(10, 20), 'EU',
               lpad(tpcc_rnd(0, 9999)::text, 4, '0') || '11111', lpad(tpcc_rnd(0, 999999999)::text, 16, '0'), begun,
               CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END, 50000, tpcc_rnd(0, 5000) / 10000.0, -10, 10, 1, 0,
               tpcc_text(300, 500)
        FROM generate_series(1, warehouses) AS w, generate_series(1, 10) AS d, generate_series(1, customers) AS c;
    INSERT INTO history SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, begun, 10, tpcc_text(12, 24) FROM customer;
    -- Each customer of a district has one order, in an order of chance.
    INSERT INTO orders
        SELECT c_w_id, c_d_id, o, c_id, begun, CASE WHEN o <= delivered THEN tpcc_rnd(1, 10) END, tpcc_rnd(5, 15), 1
        FROM (SELECT *, row_number() OVER (PARTITION BY c_w_id, c_d_id ORDER BY random()) AS o FROM customer) AS dealt;
    INSERT INTO new_order SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_carrier_id IS NULL;
    INSERT INTO order_line
        SELECT o_w_id, o_d_id, o_id, n, tpcc_rnd(1, items), o_w_id, CASE WHEN o_carrier_id IS NOT NULL THEN o_entry_d END, 5,
               CASE WHEN o_carrier_id IS NOT NULL THEN 0 ELSE tpcc_rnd(1, 999999) / 100.0 END, tpcc_text(24, 24)
        FROM orders, generate_series(1, o_ol_cnt) AS n;
END $$;
