// Package sensor is the listener that looks for itself: it polls an address, runs a command,
// follows a file, watches a directory or asks Prometheus. Rules (see package mapping) say which
// readings become inputs. Each listener has one source and one rule.
//
// # Sources
//
//   - http: the body of a response is a reading.
//   - command: the standard output of a command is a reading.
//   - file: each line that is added to a file is a reading. Rotation by renaming and by
//     truncating is followed; a line counts when its end is written.
//   - directory: a file that is new or has changed is a reading once it has not changed for a
//     time, as {"name", "path", "size", "modified", "event"}.
//   - prometheus: an instant query; each series is a reading {"value", "metric"} under its name.
//
// # Guarantee
//
// The positions of file and directory are kept in the bucket listeners (key
// position.<listener>), after everything that follows from the readings is durable. A process
// that dies in between takes the readings again, and their inputs have the same ids. What
// happens while the listener does not run is read afterwards, as far as the file, or the one it
// was renamed to in the same directory, still has it. A poll has no position.
//
// # Back-pressure
//
// A source does not read on while its readings wait.
//
// # Failure
//
// A poll that fails or takes too long makes the listener down, with the reason, until one
// succeeds. A command is killed with its process group; output and bodies are bounded.
package sensor
