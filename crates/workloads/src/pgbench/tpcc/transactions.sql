-- The five transactions (clauses 2.4 to 2.8) as functions: one call each. `seed` decides what they draw, so that a seed of pgbench's
-- is a seed of the run. The constants C of uneven draws are those of a run; that of names differs from the loader's by 66.

-- Orders 5 to 15 items; one in a hundred lines comes from another warehouse, one in a hundred orders names an item that is not
-- there and is undone. Gives the total amount, or -1.
CREATE FUNCTION tpcc_new_order(w int, seed int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    size tpcc_size; d int; c int; o int; lines int; tax numeric; district_tax numeric; discount numeric; total numeric := 0;
    items int[] := '{}'; supplies int[] := '{}'; quantities int[] := '{}'; supply int; line record; price numeric; info text;
    number int := 0;
BEGIN
    PERFORM setseed(seed / 2147483647.0);
    SELECT * INTO size FROM tpcc_size;
    d := tpcc_rnd(1, 10);
    c := tpcc_nurand(1023, 1, size.customers, 259);
    lines := tpcc_rnd(5, 15);
    FOR n IN 1..lines LOOP
        supply := w;
        IF size.warehouses > 1 AND tpcc_rnd(1, 100) = 1 THEN
            supply := (w - 1 + tpcc_rnd(1, size.warehouses - 1)) % size.warehouses + 1;
        END IF;
        items := items || tpcc_nurand(8191, 1, size.items, 7911);
        supplies := supplies || supply;
        quantities := quantities || tpcc_rnd(1, 10);
    END LOOP;
    IF tpcc_rnd(1, 100) = 1 THEN
        items[lines] := size.items + 1;
    END IF;
    BEGIN
        SELECT w_tax INTO STRICT tax FROM warehouse WHERE w_id = w;
        SELECT c_discount INTO STRICT discount FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
        UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
            RETURNING d_next_o_id - 1, d_tax INTO STRICT o, district_tax;
        INSERT INTO orders VALUES (w, d, o, c, now(), NULL, lines, (supplies = array_fill(w, ARRAY[lines]))::int);
        INSERT INTO new_order VALUES (w, d, o);
        -- In one order for all, so that no two wait for each other.
        FOR line IN SELECT * FROM unnest(items, supplies, quantities) AS t(item, supply, quantity) ORDER BY supply, item LOOP
            number := number + 1;
            SELECT i_price INTO price FROM item WHERE i_id = line.item;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'item % is not there', line.item USING ERRCODE = 'TPCC1';
            END IF;
            UPDATE stock SET
                s_quantity = s_quantity - line.quantity + CASE WHEN s_quantity - line.quantity < 10 THEN 91 ELSE 0 END,
                s_ytd = s_ytd + line.quantity, s_order_cnt = s_order_cnt + 1,
                s_remote_cnt = s_remote_cnt + (line.supply <> w)::int
                WHERE s_w_id = line.supply AND s_i_id = line.item RETURNING s_dist[d] INTO STRICT info;
            INSERT INTO order_line
                VALUES (w, d, o, number, line.item, line.supply, NULL, line.quantity, line.quantity * price, info);
            total := total + line.quantity * price;
        END LOOP;
        RETURN total * (1 - discount) * (1 + tax + district_tax);
    EXCEPTION WHEN SQLSTATE 'TPCC1' THEN
        RETURN -1;
    END;
END $$;

-- Three in five times the middle one, by first name, of those with a last name; else a customer by number.
CREATE FUNCTION tpcc_customer(w int, d int, size tpcc_size) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    wanted text; found int;
BEGIN
    IF tpcc_rnd(1, 100) > 60 THEN
        RETURN tpcc_nurand(1023, 1, size.customers, 259);
    END IF;
    wanted := tpcc_last(tpcc_nurand(255, 0, least(size.customers, 1000) - 1, 223));
    SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO STRICT found
        FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = wanted;
    RETURN found;
END $$;

-- A customer pays, 15 in 100 at another warehouse than their own. Gives the amount.
CREATE FUNCTION tpcc_payment(w int, seed int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    size tpcc_size; d int; customer_w int := w; customer_d int; c int; amount numeric; names text; more text;
BEGIN
    PERFORM setseed(seed / 2147483647.0);
    SELECT * INTO size FROM tpcc_size;
    d := tpcc_rnd(1, 10);
    customer_d := d;
    IF size.warehouses > 1 AND tpcc_rnd(1, 100) > 85 THEN
        customer_w := (w - 1 + tpcc_rnd(1, size.warehouses - 1)) % size.warehouses + 1;
        customer_d := tpcc_rnd(1, 10);
    END IF;
    amount := tpcc_rnd(100, 500000) / 100.0;
    c := tpcc_customer(customer_w, customer_d, size);
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w RETURNING w_name INTO STRICT names;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d RETURNING names || '    ' || d_name INTO STRICT names;
    more := concat_ws(' ', c, customer_d, customer_w, d, w, amount);
    UPDATE customer SET
        c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC' THEN left(more || c_data, 500) ELSE c_data END
        WHERE c_w_id = customer_w AND c_d_id = customer_d AND c_id = c;
    INSERT INTO history VALUES (c, customer_d, customer_w, d, w, now(), amount, names);
    RETURN amount;
END $$;

-- What a customer ordered last: gives the number of its lines.
CREATE FUNCTION tpcc_order_status(w int, seed int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    size tpcc_size; d int; c int; o int; balance numeric; lines bigint;
BEGIN
    PERFORM setseed(seed / 2147483647.0);
    SELECT * INTO size FROM tpcc_size;
    d := tpcc_rnd(1, 10);
    c := tpcc_customer(w, d, size);
    SELECT c_balance INTO STRICT balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT o_id INTO o FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1;
    SELECT count(ol_amount) INTO lines FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
    RETURN lines;
END $$;

-- Delivers the oldest new order of each district, here at once and not in the background. Gives how many.
CREATE FUNCTION tpcc_delivery(w int, seed int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    carrier int; o int; c int; amount numeric; delivered int := 0;
BEGIN
    PERFORM setseed(seed / 2147483647.0);
    carrier := tpcc_rnd(1, 10);
    FOR d IN 1..10 LOOP
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id =
            (SELECT no_o_id FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE)
            RETURNING no_o_id INTO o;
        CONTINUE WHEN NOT FOUND;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO STRICT c;
        WITH lines AS (
            UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o RETURNING ol_amount
        ) SELECT sum(ol_amount) INTO amount FROM lines;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = w AND c_d_id = d AND c_id = c;
        delivered := delivered + 1;
    END LOOP;
    RETURN delivered;
END $$;

-- How many of the items in a district's last 20 orders are short.
CREATE FUNCTION tpcc_stock_level(w int, seed int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    d int; threshold int; next int; low bigint;
BEGIN
    PERFORM setseed(seed / 2147483647.0);
    d := tpcc_rnd(1, 10);
    threshold := tpcc_rnd(10, 20);
    SELECT d_next_o_id INTO STRICT next FROM district WHERE d_w_id = w AND d_id = d;
    SELECT count(DISTINCT s_i_id) INTO low FROM order_line JOIN stock ON s_w_id = w AND s_i_id = ol_i_id
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id BETWEEN next - 20 AND next - 1 AND s_quantity < threshold;
    RETURN low;
END $$;
