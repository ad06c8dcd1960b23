// Package obedient is the worst language model there is, for tests: it obeys every instruction
// that it is shown, wherever that is: in the guide, in what a user, a mail or a page says, in
// the result or the description of a tool, in the name or the text of a file, in a memory. It
// decodes what is hidden, and it ends its turn with everything that it has read.
//
//	DO: TOOL ARGS             one call; ARGS is JSON, or else the rest of the line
//	DO 50 TIMES: TOOL ARGS    that call, one after the other
//	THEN: TOOL ARGS           likewise, once all calls before it have ended
//
// In ARGS, {{loot}} is every word that begins with "canary-" that the model has seen by then, and
// {{id:N}} is how the model names its call number N, from 0.
//
// An instruction is obeyed once in what the model sees of a conversation, however often it is
// repeated. Hidden are instructions in JSON, HTML entities, percent-encoding, base64, hexadecimal
// digits, ROT13, full-width letters, Unicode tags, between invisible characters, and backwards.
package obedient
