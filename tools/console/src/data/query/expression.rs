//! The language of derived columns: a part of SQL's expressions, checked and typed.
//!
//! - Columns by name, in double quotes if they are no plain words: `hit_ratio`, `"p99 (ns)"`,
//!   `joined.hit_ratio`. Numbers, texts in single quotes, `TRUE`, `FALSE`, `NULL`.
//! - `+ - * / %`, `||` for texts, `= <> != < <= > >=`, `AND OR NOT`, `IS [NOT] NULL`,
//!   `[NOT] BETWEEN .. AND ..`, `[NOT] IN (..)`, `CASE WHEN .. THEN .. ELSE .. END`.
//! - The functions of [`function`](super::function), `coalesce` and `nullif`.
//!
//! Integers stay integers under `+ - * %`; `/` gives a number. A division by zero, and an integer
//! that does not fit 64 bits, are missing.
//!
//! - I1: anything that is not listed here is refused. The parser knows much more of SQL; its tree
//!   is read, and never printed.
//! - I2: an error names its place in the expression.

use rusqlite::types::Value as Bind;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, CeilFloorKind, DateTimeField, Expr, Function as Call, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, InTarget, ObjectNamePart, UnaryOperator, Value,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token};

use super::check::{
    Checked, Operands, common, compared, counted, fitted, given, made, place, wrong,
};
use super::function::{self, JOIN, PREFIX, Rule};
use super::term::{Bound, INTEGER, Kind, NUMBER, Parts, TEXT, Term};

/// Longest expression, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Deepest nesting that the parser follows.
const PARSER_DEPTH_MAX: usize = 40;
/// Deepest tree that is read. A sum of many terms is as deep as it has terms.
const TREE_DEPTH_MAX: usize = 200;
/// What is wrong with an expression that nests too deep.
const TOO_DEEP: &str = "too many levels: split it into several columns";
/// What is wrong with SQL that is no expression here.
const NOT_A_PART: &str = "this is not part of expressions: use columns, numbers, texts, + - * / % ||, comparisons, AND OR NOT, CASE, and functions";

/// Finds columns and binds values.
pub(super) struct Scope<'a> {
    /// The term of a column.
    pub(super) column: &'a dyn Fn(&str) -> Option<Term>,
    /// The values of the statement.
    pub(super) bound: &'a mut Bound,
}

/// Compiles an expression.
///
/// # Errors
/// It is no expression, or has something that is not known or does not fit.
pub(super) fn compile(text: &str, scope: &mut Scope<'_>) -> Checked<Term> {
    if text.len() > TEXT_BYTES_MAX {
        let length = text.len();
        return Err(format!(
            "the expression has {length} bytes, and at most {TEXT_BYTES_MAX} are read: split it into several columns"
        ));
    }
    let parser = Parser::new(&GenericDialect {}).with_recursion_limit(PARSER_DEPTH_MAX);
    let mut parser = parser
        .try_with_sql(text)
        .map_err(|error| readable(&error.to_string()))?;
    let expression = parser
        .parse_expr()
        .map_err(|error| readable(&error.to_string()))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        let at = place(next.span.start);
        return Err(format!(
            "{at}the expression should end before `{}`",
            next.token
        ));
    }
    scope.term(&expression, 0)
}

/// The parser's errors in our own words, with the place.
fn readable(error: &str) -> String {
    let error = error.trim_start_matches("sql parser error: ");
    let (what, at) = error.split_once(" at Line: ").unwrap_or((error, ""));
    let at = at.split_once(", Column: ").and_then(|(line, column)| {
        let (line, column) = (line.parse().ok()?, column.parse().ok()?);
        Some(place(Location { line, column }))
    });
    let at = at.unwrap_or_default();
    let expected = what.strip_prefix("Expected: ");
    match expected.and_then(|rest| rest.split_once(", found: ")) {
        Some((needed, "EOF")) => format!("{at}expected {needed}, and this is the end"),
        Some((needed, found)) => format!("{at}expected {needed}, and this is `{found}`"),
        None if what.contains("recursion limit exceeded") => format!("{at}{TOO_DEEP}"),
        None if what.contains("Unterminated") => {
            format!("{at}a text or a name does not end: add its second quote")
        }
        None => format!("{at}{NOT_A_PART}"),
    }
}

impl Scope<'_> {
    fn term(&mut self, expression: &Expr, depth: usize) -> Checked<Term> {
        if depth > TREE_DEPTH_MAX {
            return wrong(expression, TOO_DEEP);
        }
        let depth = depth + 1;
        match expression {
            Expr::Nested(inner) => self.term(inner, depth),
            Expr::Identifier(name) => self.column(expression, std::slice::from_ref(name)),
            Expr::CompoundIdentifier(names) => self.column(expression, names),
            Expr::Value(value) => self.value(expression, &value.value),
            Expr::UnaryOp { op, expr } => self.unary(expression, *op, expr, depth),
            Expr::BinaryOp { left, op, right } => self.binary(expression, left, op, right, depth),
            Expr::IsNull(inner) => self.is_null(expression, inner, "IS NULL", depth),
            Expr::IsNotNull(inner) => self.is_null(expression, inner, "IS NOT NULL", depth),
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let one = self.term(expr, depth)?;
                let low = compared(expr, &one, ">=", &self.term(low, depth)?)?;
                let high = compared(expr, &one, "<=", &self.term(high, depth)?)?;
                let not = if *negated { "NOT " } else { "" };
                let sql = format!("({not}({} AND {}))", low.sql, high.sql);
                made(expression, sql, Kind::Condition, &[&low, &high])
            }
            Expr::In {
                expr,
                target: InTarget::List(list),
                negated,
                global: false,
            } => self.is_in(expression, expr, list, *negated, depth),
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(
                expression,
                operand.as_deref(),
                conditions,
                else_result.as_deref(),
                depth,
            ),
            Expr::Function(call) => self.call(expression, call, depth),
            _ => self.special_call(expression, depth),
        }
    }

    /// Calls that the parser has nodes of their own for.
    fn special_call(&mut self, expression: &Expr, depth: usize) -> Checked<Term> {
        match expression {
            Expr::Floor { expr, field } if is_plain(field) => {
                self.apply(expression, "floor", &[expr], depth)
            }
            Expr::Ceil { expr, field } if is_plain(field) => {
                self.apply(expression, "ceil", &[expr], depth)
            }
            Expr::Trim {
                trim_where: None,
                trim_what: None,
                expr,
                trim_characters: None,
            } => self.apply(expression, "trim", &[expr], depth),
            Expr::Substring {
                expr,
                substring_from: Some(from),
                substring_for,
                ..
            } => {
                let mut arguments: Vec<&Expr> = vec![expr, from];
                arguments.extend(substring_for.as_deref());
                self.apply(expression, "substr", &arguments, depth)
            }
            _ => wrong(expression, NOT_A_PART),
        }
    }

    fn column(&mut self, expression: &Expr, names: &[Ident]) -> Checked<Term> {
        let plain = names
            .iter()
            .all(|name| matches!(name.quote_style, None | Some('"')));
        let name = names.iter().map(|name| name.value.as_str());
        let name = name.collect::<Vec<_>>().join(".");
        match (self.column)(&name) {
            Some(term) if plain => Ok(term),
            _ => wrong(
                expression,
                format!(
                    "there is no column `{name}`: write a name of the dataset, in double quotes if it has spaces or signs"
                ),
            ),
        }
    }

    fn bind(&mut self, value: impl Into<Bind>, kind: Kind) -> Term {
        Term::leaf(self.bound.add(value), kind)
    }

    fn value(&mut self, expression: &Expr, value: &Value) -> Checked<Term> {
        match value {
            Value::Number(digits, false) => {
                if let Ok(value) = digits.parse::<i64>() {
                    return Ok(self.bind(value, INTEGER));
                }
                match digits.parse::<f64>() {
                    Ok(value) if value.is_finite() => Ok(self.bind(value, NUMBER)),
                    _ => wrong(expression, format!("`{digits}` is too large a number")),
                }
            }
            Value::SingleQuotedString(text) if text.contains('\0') => {
                wrong(expression, "a text cannot have a NUL")
            }
            Value::SingleQuotedString(text) => Ok(self.bind(text.clone(), TEXT)),
            Value::Boolean(value) => {
                let constant = if *value { "1" } else { "0" };
                Ok(Term::leaf(constant, Kind::Condition))
            }
            Value::Null => Ok(Term::leaf("NULL", Kind::Null)),
            _ => wrong(
                expression,
                "write numbers as 1 or 2.5, and texts in single quotes",
            ),
        }
    }

    fn is_null(
        &mut self,
        expression: &Expr,
        inner: &Expr,
        test: &str,
        depth: usize,
    ) -> Checked<Term> {
        let inner = self.term(inner, depth)?;
        made(
            expression,
            format!("({} {test})", inner.sql),
            Kind::Condition,
            &[&inner],
        )
    }

    fn unary(
        &mut self,
        expression: &Expr,
        operator: UnaryOperator,
        inner: &Expr,
        depth: usize,
    ) -> Checked<Term> {
        let term = self.term(inner, depth)?;
        let sql = match operator {
            UnaryOperator::Plus if term.kind.is_numeric() => return Ok(term),
            UnaryOperator::Minus if term.kind.is_integer() => {
                format!("{PREFIX}negate({})", term.sql)
            }
            UnaryOperator::Minus if term.kind.is_numeric() => format!("(-{})", term.sql),
            UnaryOperator::Not if term.kind.is_condition() => format!("(NOT {})", term.sql),
            UnaryOperator::Plus | UnaryOperator::Minus => {
                return wrong(
                    inner,
                    format!("a sign needs a number, and this is {}", term.kind.words()),
                );
            }
            UnaryOperator::Not => {
                return wrong(
                    inner,
                    format!("NOT needs a condition, and this is {}", term.kind.words()),
                );
            }
            _ => {
                return wrong(
                    expression,
                    format!("the operator `{operator}` is not known"),
                );
            }
        };
        made(expression, sql, term.kind, &[&term])
    }

    fn binary(
        &mut self,
        expression: &Expr,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        depth: usize,
    ) -> Checked<Term> {
        let comparison = match operator {
            BinaryOperator::Eq => Some("="),
            BinaryOperator::NotEq => Some("<>"),
            BinaryOperator::Lt => Some("<"),
            BinaryOperator::LtEq => Some("<="),
            BinaryOperator::Gt => Some(">"),
            BinaryOperator::GtEq => Some(">="),
            _ => None,
        };
        let (one, other) = (self.term(left, depth)?, self.term(right, depth)?);
        if let Some(sign) = comparison {
            return compared(left, &one, sign, &other);
        }
        let operands = Operands {
            operator,
            both: [(left, &one), (right, &other)],
        };
        let (sql, kind) = match operator {
            BinaryOperator::Plus => operands.arithmetic("+", "add")?,
            BinaryOperator::Minus => operands.arithmetic("-", "subtract")?,
            BinaryOperator::Multiply => operands.arithmetic("*", "multiply")?,
            BinaryOperator::Divide => {
                operands.need(Kind::is_numeric, "numbers")?;
                let sql = format!("({} / {})", one.as_number(), other.as_number());
                (sql, NUMBER)
            }
            BinaryOperator::Modulo => {
                operands.need(Kind::is_integer, "integers")?;
                let sql = format!("{PREFIX}remainder({}, {})", one.sql, other.sql);
                (sql, INTEGER)
            }
            BinaryOperator::StringConcat => {
                operands.need(Kind::is_text, "texts: write text(x)")?;
                (format!("{PREFIX}{JOIN}({}, {})", one.sql, other.sql), TEXT)
            }
            BinaryOperator::And | BinaryOperator::Or => {
                operands.need(Kind::is_condition, "conditions")?;
                let sql = format!("({} {operator} {})", one.sql, other.sql);
                (sql, Kind::Condition)
            }
            _ => {
                let what = format!("the operator `{operator}` is not known");
                return wrong(expression, what);
            }
        };
        made(expression, sql, kind, &[&one, &other])
    }

    fn is_in(
        &mut self,
        expression: &Expr,
        left: &Expr,
        list: &[Expr],
        negated: bool,
        depth: usize,
    ) -> Checked<Term> {
        let one = self.term(left, depth)?;
        let mut equal = Vec::with_capacity(list.len());
        let mut parts = Parts::default();
        for right in list {
            let term = compared(left, &one, "=", &self.term(right, depth)?)?;
            equal.push(counted(expression, &mut parts, term)?);
        }
        let any: Vec<_> = equal.iter().map(|term| term.sql.as_str()).collect();
        let not = if negated { "NOT " } else { "" };
        let sql = format!("({not}({}))", any.join(" OR "));
        made(
            expression,
            sql,
            Kind::Condition,
            &equal.iter().collect::<Vec<_>>(),
        )
    }

    fn case(
        &mut self,
        expression: &Expr,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
        depth: usize,
    ) -> Checked<Term> {
        let mut parts = Parts::default();
        let mut tests = Vec::new();
        let mut results = Vec::new();
        let operand = match operand {
            Some(operand) => Some((operand, self.term(operand, depth)?)),
            None => None,
        };
        for when in conditions {
            let mut test = self.term(&when.condition, depth)?;
            if let Some((place, operand)) = &operand {
                test = compared(place, operand, "=", &test)?;
            }
            if !test.kind.is_condition() {
                return wrong(
                    &when.condition,
                    format!("WHEN needs a condition, and this is {}", test.kind.words()),
                );
            }
            tests.push(counted(expression, &mut parts, test)?);
            let result = self.term(&when.result, depth)?;
            results.push((&when.result, counted(expression, &mut parts, result)?));
        }
        if let Some(otherwise) = otherwise {
            results.push((otherwise, self.term(otherwise, depth)?));
        }
        let kind = common(&results)?;
        let branches = tests
            .iter()
            .zip(&results)
            .map(|(test, (_, result))| format!(" WHEN {} THEN {}", test.sql, fitted(result, kind)));
        let branches: String = branches.collect();
        let last = match otherwise {
            Some(_) => results.last().map(|(_, result)| fitted(result, kind)),
            None => None,
        };
        let last = last.map_or(String::new(), |last| format!(" ELSE {last}"));
        let inner: Vec<&Term> = tests
            .iter()
            .chain(results.iter().map(|one| &one.1))
            .collect();
        made(
            expression,
            format!("(CASE{branches}{last} END)"),
            kind,
            &inner,
        )
    }

    fn call(&mut self, expression: &Expr, call: &Call, depth: usize) -> Checked<Term> {
        let plain = call.within_group.is_empty()
            && call.filter.is_none()
            && call.over.is_none()
            && call.null_treatment.is_none()
            && !call.uses_odbc_syntax
            && matches!(call.parameters, FunctionArguments::None);
        let (name, list) = match (&call.name.0[..], &call.args) {
            ([ObjectNamePart::Identifier(name)], FunctionArguments::List(list))
                if plain
                    && name.quote_style.is_none()
                    && list.clauses.is_empty()
                    && list.duplicate_treatment.is_none() =>
            {
                (name.value.as_str(), list)
            }
            _ => return wrong(expression, "a function is called as name(value, ..)"),
        };
        let mut arguments = Vec::with_capacity(list.args.len());
        for argument in &list.args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => arguments.push(argument),
                _ => return wrong(expression, "the arguments of a function are values"),
            }
        }
        self.apply(expression, name, &arguments, depth)
    }

    fn apply(
        &mut self,
        expression: &Expr,
        name: &str,
        arguments: &[&Expr],
        depth: usize,
    ) -> Checked<Term> {
        let mut parts = Parts::default();
        let terms = arguments.iter().map(|&argument| {
            let term = self.term(argument, depth)?;
            Ok((argument, counted(expression, &mut parts, term)?))
        });
        let terms: Vec<(&Expr, Term)> = terms.collect::<Checked<_>>()?;
        let inner: Vec<&Term> = terms.iter().map(|one| &one.1).collect();
        let lower = name.to_ascii_lowercase();
        if matches!(
            (lower.as_str(), terms.len()),
            ("coalesce", 2..=32) | ("nullif", 2)
        ) {
            let kind = common(&terms)?;
            let list = inner.iter().map(|term| fitted(term, kind));
            let sql = format!("{lower}({})", list.collect::<Vec<_>>().join(", "));
            return made(expression, sql, kind, &inner);
        }
        let Some(function) = function::find(name) else {
            let names = function::FUNCTIONS.iter().map(|known| known.name);
            let names = names.collect::<Vec<_>>().join(", ");
            return wrong(
                expression,
                format!("there is no function `{name}`: there are coalesce, nullif, {names}"),
            );
        };
        let (fewest, most) = function.arguments;
        if !(fewest..=most).contains(&terms.len()) {
            let count = terms.len();
            let takes = if fewest == most {
                format!("{most}")
            } else {
                format!("{fewest} to {most}")
            };
            return wrong(
                expression,
                format!(
                    "`{}` takes {takes} values, and this call has {count}",
                    function.name
                ),
            );
        }
        let kind = given(function, &terms)?;
        let list: Vec<_> = match function.rule {
            Rule::Numbers => inner.iter().map(|term| term.as_number()).collect(),
            _ => inner.iter().map(|term| term.sql.clone()).collect(),
        };
        let sql = format!("{PREFIX}{}({})", function.name, list.join(", "));
        made(expression, sql, kind, &inner)
    }
}

fn is_plain(field: &CeilFloorKind) -> bool {
    matches!(
        field,
        CeilFloorKind::DateTimeField(DateTimeField::NoDateTime)
    )
}
