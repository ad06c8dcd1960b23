// Package email is the listener that turns e-mail into inputs, and sends the answers into the
// thread. The accounts are those of the section email; see services/internal/mail.
//
// # Subjects
//
// Produced: agent.<agent>.<session>.sense.input.<listener>. A thread is one session, called
// mail-<thread>; see [letter.Thread]. Attachments are artifacts of the session. How far the listener
// has read is in the bucket email, under its name.
//
// # Guarantee
//
// Every letter that arrives in the folder, and that the configuration accepts, becomes one
// input. Its id is made of UIDVALIDITY and UID, so a letter that is read again after a crash is the
// same input. Only letters that arrive after the first start count, unless Start is all. A letter
// becomes read or is moved only after the log has acknowledged the input.
//
// The server reports new mail at once (IDLE); beside that the listener asks for UIDs it has not
// seen, every Poll, and connects anew every Redial, because connections are known to die
// silently. If the server numbers its letters anew (UIDVALIDITY), the listener says so in the
// log, and continues with letters that are not older than the last one and not among the last 200.
//
// # Who wakes the agent
//
// Only senders that match From. An address in a letter proves nothing: name your receiving
// server in AuthServer, so that only letters count that it has verified by DMARC. Without it, the
// listener warns at the start, and every input says that the sender was not verified.
//
// The listener's own letters, bounces, automatic replies (RFC 3834) and mailing lists never wake
// the agent, so that two programs do not answer each other for ever. Answers are marked
// Auto-Submitted: auto-replied.
//
// # Failure
//
// While the mail server or the bus is unavailable, the listener tries again, with pauses of up to a
// minute; [Listener.Ready] says why. A letter that the log refuses as invalid is skipped, with
// an error in the log of the process.
package email
