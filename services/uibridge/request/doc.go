// Package request is what callers can ask for by name, whichever door they come
// through: it reads the parameters of a method strictly and calls the backend.
//
// The methods of [Desk.Names] are submitUserInput, provideConfirmation, cancelTurn and
// runCommand, whose parameters are read here, and those that the backend adds
// ([contract.Backend.Methods]), which read their own. Parameters are a JSON object, or
// an array of the same values in the order that [Desk.Call] lists: the specification's
// submitUserInput(input) and provideConfirmation(confirmationId, approved) are
// ["hello"] and ["main-…", true]. schemas/ui/methods states those of every method, and
// their order.
//
// An error is always a [contract.Error] and names the parameter: one that is unknown,
// missing, of a wrong type or followed by something else is refused, none is guessed.
// Names count in their exact case. A null is the same as leaving the parameter out.
//
// When submitUserInput, provideConfirmation, cancelTurn or runCommand has returned
// without error, the bus has acknowledged it; after unavailable the same input with the
// same id may be sent again and is the same input.
package request
