-- The consistency conditions 1 to 10 and 12 (clause 3.3.2): a row for each place where one does not hold; none is good.

CREATE FUNCTION tpcc_check() RETURNS TABLE (condition int, w int, d int, one numeric, other numeric) LANGUAGE sql AS $$
    WITH per_district AS (
        SELECT d_w_id AS w, d_id AS d, d_next_o_id, d_ytd,
            (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS last_order,
            (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS last_new,
            (SELECT min(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS first_new,
            (SELECT count(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS new_orders,
            (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS said_lines,
            (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id) AS lines,
            (SELECT sum(h_amount) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id) AS paid
        FROM district
    ), per_order AS (
        SELECT o_w_id AS w, o_d_id AS d, o_carrier_id, o_ol_cnt, no_o_id, count(ol_number) AS lines,
            count(ol_delivery_d) AS delivered
        FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
            LEFT JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        GROUP BY o_w_id, o_d_id, o_id, no_o_id
    ), per_customer AS (
        SELECT c_w_id AS w, c_d_id AS d, c_balance, c_ytd_payment, coalesce(bought, 0) AS bought, coalesce(paid, 0) AS paid
        FROM customer
        LEFT JOIN (
            SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS bought
            FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id
        ) AS deliveries ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        LEFT JOIN (
            SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id
        ) AS payments ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
    )
    SELECT 1, w_id, 0, w_ytd, (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id) FROM warehouse
        WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)
    UNION ALL SELECT 2, w, d, d_next_o_id - 1, last_order FROM per_district
        WHERE d_next_o_id - 1 <> last_order OR last_new <> last_order
    UNION ALL SELECT 3, w, d, last_new - first_new + 1, new_orders FROM per_district
        WHERE new_orders > 0 AND last_new - first_new + 1 <> new_orders
    UNION ALL SELECT 4, w, d, said_lines, lines FROM per_district WHERE said_lines <> lines
    UNION ALL SELECT 5, w, d, o_carrier_id, no_o_id FROM per_order WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
    UNION ALL SELECT 6, w, d, o_ol_cnt, lines FROM per_order WHERE o_ol_cnt <> lines
    UNION ALL SELECT 7, w, d, o_carrier_id, delivered FROM per_order
        WHERE delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE lines END
    UNION ALL SELECT 8, w_id, 0, w_ytd, (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id) FROM warehouse
        WHERE w_ytd <> (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)
    UNION ALL SELECT 9, w, d, d_ytd, paid FROM per_district WHERE d_ytd <> paid
    UNION ALL SELECT 10, w, d, c_balance, bought - paid FROM per_customer WHERE c_balance <> bought - paid
    UNION ALL SELECT 12, w, d, c_balance + c_ytd_payment, bought FROM per_customer WHERE c_balance + c_ytd_payment <> bought
$$;
