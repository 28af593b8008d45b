//! Queries that are wrong or that attack: each is an error that names its field and place.

use serde_json::{Value, json};

use super::{Place, query, small};
use crate::data::cell::{Cell, Column, ColumnType};
use crate::data::query::Query;

/// A dataset whose names try to leave their place.
fn place() -> (Place, i64) {
    let place = Place::new(small());
    let columns = [
        Column::new("n", ColumnType::Integer),
        Column::new("x", ColumnType::Number),
        Column::new("t", ColumnType::Text),
        Column::new("a\"; DROP TABLE datasets; --", ColumnType::Text),
        Column::new(
            "1) UNION SELECT password FROM users --",
            ColumnType::Integer,
        ),
    ];
    let row = [
        Cell::Integer(3),
        Cell::Number(0.5),
        Cell::Text("'; DROP TABLE d_1; --"),
        Cell::Text("\"); DELETE FROM d_1; --"),
        Cell::Integer(1),
    ];
    let id = place.dataset(&columns, [row.to_vec()]).id;
    (place, id)
}

/// The field and the sentence of the error of a query.
fn wrong(place: &Place, value: Value) -> (String, String) {
    let parsed: Query = serde_json::from_value(value.clone()).unwrap();
    let error = place.answer(parsed).expect_err(&value.to_string());
    assert_eq!(error.code(), "invalid", "{value}: {error:?}");
    let shown = format!("{error:?}");
    let field = shown.split("field: Some(\"").nth(1).unwrap_or_default();
    (
        field.split('"').next().unwrap().to_owned(),
        error.message().to_owned(),
    )
}

fn derive(id: i64, expression: &str) -> Value {
    json!({"source": id, "derive": [{"name": "d", "expression": expression}]})
}

/// Expressions that are wrong, and what their errors say.
const WRONG: [(&str, &str); 41] = [
    ("n + y", "column 5: there is no column `y`"),
    ("n +", "expected an expression, and this is the end"),
    ("(n", "expected ), and this is the end"),
    ("n + )", "column 5: expected an expression, and this is `)`"),
    ("'n", "column 1: a text or a name does not end"),
    ("n 5", "column 3: the expression should end before `5`"),
    (
        "n; DROP TABLE d_1",
        "column 2: the expression should end before `;`",
    ),
    (
        "n -- x\n + (t + 1)",
        "line 2, column 5: `+` needs numbers, and this is a text",
    ),
    ("t || n", "column 6: `||` needs texts"),
    (
        "n = t",
        "column 1: an integer cannot be compared with a text",
    ),
    ("NOT n", "NOT needs a condition, and this is an integer"),
    ("-t", "a sign needs a number"),
    (
        "CASE WHEN n THEN 1 END",
        "column 11: WHEN needs a condition",
    ),
    (
        "CASE WHEN n > 1 THEN 1 ELSE 'a' END",
        "column 29: this is a text, and a value before it is an integer",
    ),
    (
        "round(t)",
        "column 7: `round` needs a number here, and this is a text",
    ),
    (
        "round(1, 2, 3)",
        "`round` takes 1 to 2 values, and this call has 3",
    ),
    (
        "load_extension('x')",
        "there is no function `load_extension`: there are coalesce",
    ),
    ("x % 2", "`%` needs integers, and this is a number"),
    ("1e999", "too large a number"),
    ("99999999999999999999999 + n", ""),
    (
        "(SELECT password FROM users)",
        "this is not part of expressions",
    ),
    ("EXISTS (SELECT 1)", "this is not part of expressions"),
    ("n IN (SELECT 1)", "this is not part of expressions"),
    ("CAST(n AS TEXT)", "this is not part of expressions"),
    ("n COLLATE nocase", ""),
    ("t LIKE '%'", "this is not part of expressions"),
    ("sum(n) OVER ()", "a function is called as name(value, ..)"),
    (
        "sqrt(DISTINCT n)",
        "a function is called as name(value, ..)",
    ),
    ("sqrt(*)", "the arguments of a function are values"),
    ("main.sqrt(n)", "a function is called as name(value, ..)"),
    ("n & 1", "the operator `&` is not known"),
    ("?1", ""),
    (":name", ""),
    ("@x", ""),
    ("`n`", "there is no column `n`"),
    ("l.c0", "there is no column `l.c0`"),
    ("c0", "there is no column `c0`"),
    ("rowid", "there is no column `rowid`"),
    ("x'00'", ""),
    ("'a\0b'", "NUL"),
    ("", ""),
];

#[test]
fn errors_of_expressions_name_the_place() {
    let (place, id) = place();
    for (expression, words) in WRONG {
        // The largest integers become numbers; everything else here is wrong.
        if expression.starts_with("999") {
            place.answer(query(derive(id, expression))).unwrap();
            continue;
        }
        let (field, message) = wrong(&place, derive(id, expression));
        assert_eq!(field, "derive[0].expression", "{expression}");
        assert!(message.contains(words), "{expression}: {message}");
    }
    assert_eq!(place.tables(), ["d_1"]);
}

#[test]
fn names_and_values_are_never_sql() {
    let (place, id) = place();
    let name = "a\"; DROP TABLE datasets; --";
    let value = json!({
        "source": id,
        "derive": [
            {"name": "' OR 1=1 --", "expression": format!("\"{}\" || '''; --'", name.replace('"', "\"\""))},
            {"name": "b", "expression": "\"1) UNION SELECT password FROM users --\" + 1"},
        ],
        "filter": [
            {"column": name, "operator": "contains", "value": "\"); DELETE FROM d_1; --"},
            {"column": "t", "operator": "=", "value": "'; DROP TABLE d_1; --"},
        ],
        "group": [name, "' OR 1=1 --"],
        "aggregates": [{"function": "sum", "column": "b", "name": "\"; VACUUM; --"}],
        "order": [{"column": "\"; VACUUM; --", "descending": true}],
    });
    let answer = place.answer(query(value)).unwrap();
    let text = "\"); DELETE FROM d_1; --";
    assert_eq!(answer["rows"], json!([[text, format!("{text}'; --"), 2]]));
    assert_eq!(place.tables(), ["d_1"]);
}

/// Parts of queries that are wrong, the fields of their errors, and what they say.
fn wrong_parts(id: i64) -> Vec<(Value, &'static str, &'static str)> {
    let filter = |column: &str, operator: &str, value: Value| json!({"filter": [{"column": column, "operator": operator, "value": value}]});
    let sum = |function: &str, column: Option<&str>| json!({"aggregates": [{"function": function, "column": column, "name": "s"}]});
    let derive = |name: &str| json!({"derive": [{"name": name, "expression": "1"}]});
    let join = |left: &str, right: &str| json!({"join": {"dataset": id, "left": left, "right": right, "kind": "inner"}});
    let count = json!({"function": "count", "name": "n"});
    let many = vec![json!({"column": "n", "operator": "is_null"}); 33];
    vec![
        (
            filter("y", "=", json!(1)),
            "filter[0].column",
            "no column `y`",
        ),
        (
            filter("n", "=", json!("x")),
            "filter[0].value",
            "`n` is an integer",
        ),
        (
            filter("n", "=", json!(null)),
            "filter[0].value",
            "an integer",
        ),
        (
            filter("t", "=", json!(1)),
            "filter[0].value",
            "`t` is a text",
        ),
        (
            filter("n", "contains", json!("1")),
            "filter[0].operator",
            "for texts",
        ),
        (json!({"filter": many}), "filter", "at most 32"),
        (json!({"group": ["y"]}), "group[0]", "no column `y`"),
        (json!({"group": ["n", "n"]}), "group[1]", "already"),
        (
            sum("sum", None),
            "aggregates[0].column",
            "choose the column",
        ),
        (sum("p99", Some("t")), "aggregates[0].column", "is a text"),
        (
            json!({"group": ["n"], "aggregates": [count]}),
            "aggregates[0].name",
            "already",
        ),
        (
            json!({"group": ["n"], "order": [{"column": "x"}]}),
            "order[0].column",
            "no column `x`",
        ),
        (json!({"limit": 10_001}), "limit", "at most 10000 rows"),
        (derive(" "), "derive[0].name", "0 characters"),
        (derive("n"), "derive[0].name", "already"),
        (join("n", "t"), "join", "one type"),
        (join("y", "t"), "join.left", "no column `y`"),
        (join("n", "y"), "join.right", "no column `y`"),
    ]
}

#[test]
fn fields_that_do_not_fit_are_named() {
    let (place, id) = place();
    for (part, field, words) in wrong_parts(id) {
        let mut value = part;
        value["source"] = json!(id);
        let (found, message) = wrong(&place, value.clone());
        assert_eq!(found, field, "{value}");
        assert!(message.contains(words), "{value}: {message}");
    }
    let join = json!({"dataset": 99, "left": "n", "right": "n", "kind": "inner"});
    let error = place
        .answer(query(json!({"source": id, "join": join})))
        .unwrap_err();
    assert_eq!(error.code(), "not_found");
    assert!(format!("{error:?}").contains("join.dataset"), "{error:?}");
}

#[test]
fn columns_that_build_on_each_other_do_not_explode() {
    let (place, id) = place();
    let names = (0..32).map(|at| match at {
        0 => json!({"name": "d0", "expression": "n + n"}),
        _ => json!({"name": format!("d{at}"), "expression": format!("d{} * d{}", at - 1, at - 1)}),
    });
    let names: Vec<_> = names.collect();
    let (field, message) = wrong(&place, json!({"source": id, "derive": names}));
    assert!(field.starts_with("derive[1"), "{field}");
    assert!(message.contains("save an intermediate result"), "{message}");
    // As many as fit are computed: 6 to the power of 2, 4, 8 and so on.
    let answer = place
        .answer(query(json!({"source": id, "derive": names[..4]})))
        .unwrap();
    assert_eq!(
        answer["rows"][0].as_array().unwrap()[5..],
        [json!(6), json!(36), json!(1_296), json!(1_679_616)]
    );
    for expression in [
        "(".repeat(2_000) + "n" + &")".repeat(2_000),
        "-".repeat(4_000) + "n",
        "NOT ".repeat(1_000) + "true",
        vec!["n"; 1_500].join("+"),
        "abs(".repeat(900) + "n" + &")".repeat(900),
        "CASE WHEN n > 1 THEN ".repeat(150) + "n" + &" END".repeat(150),
        "n".repeat(5_000),
        format!("n IN ({})", vec!["1"; 2_000].join(",")),
    ] {
        let asked = place.answer(query(derive(id, &expression)));
        if let Err(error) = asked {
            assert_eq!(error.code(), "invalid", "{expression:.40}: {error:?}");
        }
    }
}

#[test]
fn long_columns_are_counted_as_they_are_put_in() {
    let (place, id) = place();
    let names = (0..10).map(|at| match at {
        0 => json!({"name": "d0", "expression": "n + n"}),
        _ => json!({"name": format!("d{at}"), "expression": format!("d{} * d{}", at - 1, at - 1)}),
    });
    let names: Vec<_> = names.collect();
    // What comes after the parts are too many is not looked at: there is no column `y`.
    for expression in [
        "d9 IN (1, 2, 3, y)",
        "CASE d9 WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 3 THEN 3 WHEN y THEN 4 END",
        "coalesce(d9, d9, d9, y)",
    ] {
        let mut derive = names.clone();
        derive.push(json!({"name": "last", "expression": expression}));
        let (field, message) = wrong(&place, json!({"source": id, "derive": derive}));
        assert_eq!(field, "derive[10].expression");
        assert!(message.contains("save an intermediate"), "{message}");
    }
}
