// Package commands knows the slash commands: their names and arguments, what a user
// may have meant by an unknown one, and the texts that answer them. It is pure.
// Package decide, which imports it, says what a command does, and passes what
// its answer shows as plain data.
//
// Guarantee: an answer is Markdown that is also readable without rendering. It is a
// function of its arguments, because it becomes part of the log. Names and
// descriptions that plugins supply are escaped.
package commands
