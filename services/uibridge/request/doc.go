// Package request handles the requests that callers make by name, over any transport: it
// reads the parameters of a method strictly and calls the backend.
//
// The methods of [Desk.Names] are submitUserInput, provideConfirmation, cancelTurn and
// runCommand, whose parameters are read here, and those that the backend adds
// ([contract.Backend.Methods]), which read their own. Parameters are a JSON object, or an
// array of the same values in the order that [Desk.Call] lists: the specification's
// submitUserInput(input) and provideConfirmation(confirmationId, approved) are ["hello"]
// and ["main-…", true]. schemas/ui/methods lists the parameters of every method, in order.
//
// An error is always a [contract.Error] and names the parameter: one that is unknown,
// missing, of a wrong type or followed by anything else is refused; nothing is guessed.
// Names are case-sensitive. A null is the same as leaving out the parameter.
//
// When submitUserInput, provideConfirmation, cancelTurn or runCommand has returned without
// error, the bus has acknowledged it. After CodeUnavailable, the same input may be sent
// again with the same id; it counts once.
package request
