// Package mapping turns readings (messages of a device, measurements, lines of a file) into
// inputs, by the rules that a configuration declares. It is pure: time comes with the readings,
// and a [Mapper] does no I/O.
//
// # Rules
//
// A reading has a name (a topic, a series, a file) and a value: its whole text, or what
// value_field, a JSON pointer, leads to. For each name separately:
//
//   - without a condition, each reading is an input;
//   - above and below make an input when the value leaves the band, and not again until it has
//     come back into the band by the hysteresis;
//   - on_change makes an input when the value differs from that of the last input;
//   - debounce delays that until the condition or the new value has held for a time;
//   - window summarises all readings of a time into one input; with above or below, the mean
//     is judged;
//   - every limits the rate: what would be an input earlier is dropped and counted. A crossing
//     or change that still holds with a later reading becomes an input then.
//
// # State
//
// What a rule has to remember is kept for each name (at most max_names of them). The caller
// stores what [Mapper.Changed] returns, after the inputs are stored and before it confirms the
// readings, and gives it to [Mapper.Load] at the next start.
//
// # Guarantee
//
// The id of an input is derived from the rule, the name, the number of inputs so far and the
// reading. A reading that is taken again before its state was stored yields an input of the
// same id; one that is taken again afterwards, and says so, yields none.
package mapping
