// Package planner turns what a model asks for into an execution plan: calls
// with dependencies and with references to earlier results.
//
// Ids are normalised (models write 1 and "1"), and a plan is refused as a whole
// with every reason at once: an unknown dependency, a step that depends on
// itself and a cycle are three different errors. A reference ${step.field} in
// an argument stands for a value in the data of an earlier step's result and
// makes that step a dependency.
//
// The package is pure.
package planner
