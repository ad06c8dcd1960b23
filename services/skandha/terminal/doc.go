// Package terminal implements skandha chat: a conversation with an agent at a terminal.
//
// It draws inline. Finished output is printed above and becomes part of the terminal's
// own scroll-back. Below it is a live region of at most the screen's height less one
// row: the answer that is being generated, running calls with the last lines of their
// output, a request for approval, waiting inputs, the state, the editor and the
// completions of slash commands.
//
// The model receives messages (keys, events of the session, results of sending) and
// changes its state. It has effects only through the commands that it returns, so that
// it can be tested without a terminal. [Client] gives access to the session, and is the
// only part that uses the bus.
//
// Events come from the session's log, in order, none missing and none twice. Token
// deltas and output of tools are lossy; the committed message replaces them. Each input
// has an id, so that sending it twice stores it once; it is shown as "sending" until
// core has started on it. While the bus is unreachable, the terminal shows that, and
// typed inputs wait for at most half a minute; then they are returned to the user.
//
// Text from models, tools, hooks and other users goes through package safetext, which
// removes escape sequences. What an approval is about, a tool's name and arguments, is shown
// with invisible characters spelled out: an edit as a diff, multi-line strings as lines, the
// rest as JSON. A request accepts an approval only when it has been shown for a moment, all
// of it was on the screen or was printed, and the editor is empty: neither typing in
// progress nor pasted text answers it. For 1.5 s after it appears, and after the last key
// for the editor, keys go to the editor; Esc ends that.
//
// A line that begins with a slash is a slash command, which core answers; "//", or a
// space in front, begins a text. The terminal itself handles two: /quit leaves, and
// /retry, or Ctrl-R, sends the input of a failed turn again.
//
// It subscribes to agent.<agent>.<session>.> and stream.<agent>.<session> by package
// follow, and publishes inputs, commands, confirmations and cancels of its writer by
// package client.
package terminal
