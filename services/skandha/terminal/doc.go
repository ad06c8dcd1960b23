// Package terminal is the conversation with an agent at a terminal: skandha chat.
//
// It draws inline. What is finished is printed above and becomes the terminal's own
// scroll-back; below it lives a region of at most the screen's height less one row:
// the answer that is being written, calls that run with the last lines that they
// print, a request for approval, inputs that wait, the state, the editor and the
// completions of slash commands.
//
// The parts are apart. The model takes messages (keys, what happens in the session,
// what became of sending) and changes; it reaches the world through the commands
// that it returns alone, so that it is tested without a terminal. [Client] is the way
// to the session, and knows the bus.
//
// What happens comes from the session's log, in order, none missing and none twice;
// token deltas and what tools print are lossy, and the committed message replaces
// them. What is typed has an id, so that sending it twice stores it once; it is shown
// as on its way until it was taken up. When the bus is away, that is said, and what
// is typed waits for it, for half a minute at most; then it is given back.
//
// Text of models, tools, hooks and other people goes through package safetext: no
// escape sequence gets through. What one approves by, a tool's name and arguments, is
// shown with everything that is not seen spelled out: an edit as a diff, texts of
// several lines as lines, the rest as JSON. A request takes an approval only when it has
// stood for a moment, all of it was on the screen or was printed, and the editor is
// empty: neither what was being typed nor what is pasted answers it. For 1.5 s after it
// has appeared, and after the last key for the editor, keys go to the editor; Esc ends that.
//
// A line that begins with a slash is a slash command, which core answers; "//", or a
// space in front, begins a text. Two are the terminal's own: /quit leaves, and /retry,
// or Ctrl-R, sends an input again whose turn failed.
//
// It subscribes to agent.<agent>.<session>.> and stream.<agent>.<session> by package
// follow, and publishes inputs, commands, confirmations and cancels of its writer by
// package client.
package terminal
