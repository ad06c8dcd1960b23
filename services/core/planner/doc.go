// Package planner turns a model's tool calls into an execution plan: calls with
// dependencies and with references to earlier results.
//
// Ids are normalized (models write 1 and "1"). An invalid plan is refused as a whole,
// with all reasons at once: an unknown dependency, a step that depends on itself and a
// cycle are three different errors. A reference ${step.field} in an argument refers to
// a value in the data of an earlier step's result, and makes that step a dependency.
//
// The package is pure: it does no I/O.
package planner
