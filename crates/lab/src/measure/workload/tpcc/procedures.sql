-- The five transactions as procedures of PostgreSQL: one round trip each. The server commits when a
-- call ends; New-Order rolls back itself where an item does not exist.

-- The middle one, by first name, of all who have a last name; of an even number the earlier.
CREATE FUNCTION tpcc_customer(of_warehouse int, of_district int, called text)
RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    numbers int[];
BEGIN
    SELECT array_agg(c_id ORDER BY c_first) INTO numbers FROM customer
        WHERE c_w_id = of_warehouse AND c_d_id = of_district AND c_last = called;
    IF numbers IS NULL THEN
        RAISE EXCEPTION 'nobody in district % is called %', of_district, called;
    END IF;
    RETURN numbers[(array_length(numbers, 1) + 1) / 2];
END $$;

CREATE PROCEDURE tpcc_new_order(
    at_warehouse int, at_district int, by_customer int,
    items int[], suppliers int[], quantities int[],
    INOUT new_number int, INOUT hundredths bigint)
LANGUAGE plpgsql AS $$
DECLARE
    line_count int := array_length(items, 1);
    warehouse_tax numeric;
    district_tax numeric;
    buyer record;
    ware record;
    held record;
    amount numeric;
    total numeric := 0;
BEGIN
    SELECT w_tax INTO STRICT warehouse_tax FROM warehouse WHERE w_id = at_warehouse;
    SELECT d_tax, d_next_o_id INTO STRICT district_tax, new_number FROM district
        WHERE d_w_id = at_warehouse AND d_id = at_district FOR UPDATE;
    UPDATE district SET d_next_o_id = d_next_o_id + 1
        WHERE d_w_id = at_warehouse AND d_id = at_district;
    SELECT c_discount, c_last, c_credit INTO STRICT buyer FROM customer
        WHERE c_w_id = at_warehouse AND c_d_id = at_district AND c_id = by_customer;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
        VALUES (at_warehouse, at_district, new_number, by_customer, CURRENT_TIMESTAMP, line_count,
            CASE WHEN at_warehouse = ALL (suppliers) THEN 1 ELSE 0 END);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id)
        VALUES (at_warehouse, at_district, new_number);
    FOR line IN 1 .. line_count LOOP
        SELECT i_price, i_name, i_data INTO ware FROM item WHERE i_id = items[line];
        IF NOT FOUND THEN
            ROLLBACK;
            new_number := NULL;
            hundredths := NULL;
            RETURN;
        END IF;
        SELECT s_quantity, s_data,
            (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05,
                   s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10])[at_district] AS place
            INTO STRICT held FROM stock
            WHERE s_w_id = suppliers[line] AND s_i_id = items[line] FOR UPDATE;
        UPDATE stock SET
            s_quantity = CASE WHEN held.s_quantity >= quantities[line] + 10
                THEN held.s_quantity - quantities[line]
                ELSE held.s_quantity - quantities[line] + 91 END,
            s_ytd = s_ytd + quantities[line],
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN suppliers[line] = at_warehouse THEN 0 ELSE 1 END
            WHERE s_w_id = suppliers[line] AND s_i_id = items[line];
        amount := ware.i_price * quantities[line];
        total := total + amount;
        INSERT INTO order_line
            (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
             ol_dist_info)
            VALUES (at_warehouse, at_district, new_number, line, items[line], suppliers[line],
                quantities[line], amount, held.place);
    END LOOP;
    hundredths := total * (1 - buyer.c_discount) * (1 + warehouse_tax + district_tax) * 100;
END $$;

CREATE PROCEDURE tpcc_payment(
    at_warehouse int, at_district int, of_warehouse int, of_district int,
    of_customer int, called text, paid bigint,
    INOUT balance bigint)
LANGUAGE plpgsql AS $$
DECLARE
    amount numeric := paid * 0.01;
    payer int := coalesce(of_customer, tpcc_customer(of_warehouse, of_district, called));
    shop record;
    counter record;
    client record;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = at_warehouse;
    SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip INTO STRICT shop
        FROM warehouse WHERE w_id = at_warehouse;
    UPDATE district SET d_ytd = d_ytd + amount
        WHERE d_w_id = at_warehouse AND d_id = at_district;
    SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip INTO STRICT counter
        FROM district WHERE d_w_id = at_warehouse AND d_id = at_district;
    SELECT * INTO STRICT client FROM customer
        WHERE c_w_id = of_warehouse AND c_d_id = of_district AND c_id = payer FOR UPDATE;
    IF client.c_credit = 'BC' THEN
        UPDATE customer SET c_balance = c_balance - amount,
            c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1,
            c_data = left(concat_ws(' ', payer, of_district, of_warehouse, at_district,
                at_warehouse, amount, client.c_data), 500)
            WHERE c_w_id = of_warehouse AND c_d_id = of_district AND c_id = payer;
    ELSE
        UPDATE customer SET c_balance = c_balance - amount,
            c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1
            WHERE c_w_id = of_warehouse AND c_d_id = of_district AND c_id = payer;
    END IF;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
        VALUES (payer, of_district, of_warehouse, at_district, at_warehouse, CURRENT_TIMESTAMP,
            amount, shop.w_name || '    ' || counter.d_name);
    balance := (client.c_balance - amount) * 100;
END $$;

CREATE PROCEDURE tpcc_order_status(
    of_warehouse int, of_district int, of_customer int, called text,
    INOUT last_number int, INOUT line_count bigint)
LANGUAGE plpgsql AS $$
DECLARE
    asker int := coalesce(of_customer, tpcc_customer(of_warehouse, of_district, called));
    client record;
    latest record;
BEGIN
    SELECT c_balance, c_first, c_middle, c_last INTO STRICT client FROM customer
        WHERE c_w_id = of_warehouse AND c_d_id = of_district AND c_id = asker;
    SELECT o_id, o_entry_d, o_carrier_id INTO STRICT latest FROM orders
        WHERE o_w_id = of_warehouse AND o_d_id = of_district AND o_c_id = asker
        ORDER BY o_id DESC LIMIT 1;
    last_number := latest.o_id;
    SELECT count(ROW (ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d))
        INTO line_count FROM order_line
        WHERE ol_w_id = of_warehouse AND ol_d_id = of_district AND ol_o_id = latest.o_id;
END $$;

CREATE PROCEDURE tpcc_delivery(from_warehouse int, carrier int, INOUT delivered int)
LANGUAGE plpgsql AS $$
DECLARE
    oldest int;
    buyer int;
    cost numeric;
BEGIN
    delivered := 0;
    FOR district_number IN 1 .. 10 LOOP
        SELECT no_o_id INTO oldest FROM new_order
            WHERE no_w_id = from_warehouse AND no_d_id = district_number
            ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order
            WHERE no_w_id = from_warehouse AND no_d_id = district_number AND no_o_id = oldest;
        UPDATE orders SET o_carrier_id = carrier
            WHERE o_w_id = from_warehouse AND o_d_id = district_number AND o_id = oldest
            RETURNING o_c_id INTO STRICT buyer;
        UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP
            WHERE ol_w_id = from_warehouse AND ol_d_id = district_number AND ol_o_id = oldest;
        SELECT sum(ol_amount) INTO STRICT cost FROM order_line
            WHERE ol_w_id = from_warehouse AND ol_d_id = district_number AND ol_o_id = oldest;
        UPDATE customer SET c_balance = c_balance + cost, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = from_warehouse AND c_d_id = district_number AND c_id = buyer;
        delivered := delivered + 1;
    END LOOP;
END $$;

CREATE PROCEDURE tpcc_stock_level(
    at_warehouse int, at_district int, threshold int, INOUT short bigint)
LANGUAGE plpgsql AS $$
DECLARE
    following int;
BEGIN
    SELECT d_next_o_id INTO STRICT following FROM district
        WHERE d_w_id = at_warehouse AND d_id = at_district;
    SELECT count(DISTINCT s_i_id) INTO STRICT short FROM order_line
        JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = at_warehouse AND ol_d_id = at_district
            AND ol_o_id < following AND ol_o_id >= following - 20 AND s_quantity < threshold;
END $$;
