// Package letter reads e-mail: the header, the text, the attachments, and whether a program
// wrote it. It does no I/O and never fetches remote content.
//
// # Guarantee
//
// [Parse] returns a letter for any bytes. Size, nesting, the number of parts and the size of
// header and text are bounded by [Limits]; what is left out or could not be decoded is named
// in [Letter.Notes]. HTML becomes text; elements that a reader would not see are dropped.
//
// # Threads
//
// The Message-ID of a letter that Skandha sends contains the id of its thread, so that an
// answer belongs to the thread even if its References header is missing; see [Thread] and
// [NewID]. Nothing is stored for that.
package letter
