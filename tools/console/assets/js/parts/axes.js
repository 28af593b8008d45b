// Limits of the axes of charts, and the steps between their ticks.

/** Steps between ticks of bytes: round in the units that bytes are shown in. */
export const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);
/** Steps between the places of names. */
export const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/** A range that is wide enough for ticks that differ: of one value, a little around it. */
export function wide(low, high) {
  if (low === null || high === null) {
    return [0, 1];
  }
  const size = Math.max(Math.abs(low), Math.abs(high));
  return high - low > size * 1e-9 ? [low, high] : [low - (size * 1e-3 || 0.5), high + (size * 1e-3 || 0.5)];
}

/** Limits of a logarithmic axis: the powers around its values. */
export function powers(low, high, base) {
  if (!(low > 0) || !(high > 0)) {
    return [1, base];
  }
  const power = (value, round) => {
    const exact = Math.log(value) / Math.log(base);
    const near = Math.round(exact);
    return base ** (Math.abs(exact - near) < 1e-9 ? near : round(exact));
  };
  const [from, to] = [power(low, Math.floor), power(high, Math.ceil)];
  return from < to ? [from, to] : [from, from * base];
}

/** Limits of the y axis: given ones, or from 0 to a little above the highest value. */
export function rangeOf(low, high, limits, isFitted) {
  if (limits) {
    return limits;
  }
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) {
    return [0, 1];
  }
  if (isFitted && low > high / 2) {
    const room = (high - low) * 0.1 || high * 0.05;
    return [low - room, high + room];
  }
  const top = high > 0 ? high * 1.06 : 0;
  const bottom = low < 0 ? low * 1.06 : 0;
  return top === bottom ? [0, 1] : [bottom, top];
}
