// Package engine chooses the tools for a request, and their arguments.
//
// It works in five steps: the scenario of the request, its intents, the tools that match,
// which of them is best, and the arguments. Each step is a small interface ([Classifier],
// [Recognizer], [Matcher], which matches and evaluates, and [Extractor]). [Rules] and
// [Answer] are two implementations of three of them: the first reads the words of the
// request, the second the answer of a model.
//
// [Decide] asks the rules. If they are certain, their [Selection] needs no model. Otherwise
// the outcome has a [Question], which asks a model for everything that is open at once, and
// [Conclude] reads its answer. An answer that cannot be used is repaired once: the model
// sees what is wrong with it. What then remains open is asked of the person, never guessed.
//
// # Guarantee
//
// The package is pure: no I/O, no clock, no chance. Every argument of a selection has passed the tool's schema, except for
// those with references to earlier steps, which are checked before their call runs. A
// selection names only tools that were to choose from.
//
// # Failure
//
// No answer of a model is an error of this package: one that stays unusable leads to a
// clarifying question or to an empty [Outcome], with which the model answers as if there
// were no engine.
package engine
