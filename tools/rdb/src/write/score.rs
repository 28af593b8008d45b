//! Scores as texts: as C writes them with `%.17g`.

/// Digits of a score.
const DIGITS: i32 = 17;
/// Integers up to here are exact, and are written as such.
const EXACT: f64 = 4_503_599_627_370_496.0;

/// The integer that a score is, if Redis writes it as one.
pub(crate) fn exact(score: f64) -> Option<i64> {
    let is_in = (-EXACT..=EXACT).contains(&score);
    if !is_in || score.fract() != 0.0 || (score == 0.0 && score.is_sign_negative()) {
        return None;
    }
    format!("{score:.0}").parse().ok()
}

/// The text of a score.
pub(crate) fn text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if score == 0.0 {
        return if score.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{score:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let shorten = |text: &str| -> String {
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        }
    };
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", shorten(digits), exponent.abs());
    }
    let behind = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
    shorten(&format!("{score:.behind$}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scores_are_written_as_c_does() {
        for (score, written) in [
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (-2.5e-7, "-2.4999999999999999e-07"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
            (-0.0, "-0"),
        ] {
            assert_eq!(text(score), written);
        }
        assert_eq!(exact(-7.0), Some(-7));
        assert_eq!((exact(0.5), exact(-0.0), exact(1e300)), (None, None, None));
    }

    proptest! {
        #[test]
        fn a_score_is_read_as_it_was(bits in any::<u64>()) {
            let score = f64::from_bits(bits);
            prop_assume!(!score.is_nan());
            prop_assert_eq!(text(score).parse(), Ok(score));
        }
    }
}
