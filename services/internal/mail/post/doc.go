// Package post composes and sends e-mail, once per key, and finds out what became of a letter.
//
// # Guarantee
//
// A letter's Message-ID is derived from the key, so it is the same in every attempt.
// [Sender.Send] gives the letter to all recipients or to none: if the server refuses one, nothing
// is sent. It calls begin when the server has received the whole letter except for the line that
// ends it. If the process dies before begin returns, the letter was certainly not sent; after
// that line only the mailbox can tell.
//
// [Sender.Probe] looks for the Message-ID. What it can prove depends on [mail.Sent]:
//
//   - copy: the account itself is one of the recipients, and the server accepts a letter for all
//     recipients or for none. The letter in the inbox, or moved to the folder for sent mail,
//     proves that the server accepted it.
//   - server: the server files what it accepts. The same holds.
//   - append: the letter is filed after it was sent. One that was sent just before the process
//     died is not found.
//
// A letter that is not found is not proof of the opposite: the server may still hold it. The
// outcome then stays unknown. Only the server's refusal proves that a letter was not sent.
//
// # Failure
//
// An error of Send wraps [ErrNotSent] or [ErrUnknown]. A server that closes the connection
// after the end of the letter leaves the outcome unknown.
package post
