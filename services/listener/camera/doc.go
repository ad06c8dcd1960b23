// Package camera is the listener that sees: a camera of the network, of this machine, or of the page,
// or a file with a film. Motion and changes of the scene become inputs with pictures, and the tool
// camera:look takes a picture at any time.
//
// # Subjects
//
// Produced: see package capture; and answers to service.camera.look, as responder camera. Consumed:
// service.camera.look, without a queue group; with page, media.frame.<agent>.<session>.
//
// # What is perceived
//
// Pictures are compared, as a grid of 64 by 48 cells of brightness, with a background that follows
// slowly. An event begins when the share of changed cells reaches motion.area in motion.frames
// pictures in a row, and ends when pictures have been alike for motion.quiet, or after ten minutes;
// what has come to rest is then a part of the background. It becomes ONE
// input, motion.after after its beginning or at its end, whichever is first, with the pictures in
// which most had changed until then. If most of the picture changes at once, the event is a change
// of the scene: the camera was turned, covered or uncovered, or the light was switched.
//
// Masked areas are ignored, and are black in every picture that leaves this process. A camera of the
// page also stores its masks for the UI bridges, so that they hold for pictures that do not come from here.
//
// # Guarantee, consent, back-pressure
//
// See package capture. Pictures never wait: if they come faster than they can be compared, those in
// between are dropped and counted. Only the last picture is kept in memory, and up to
// motion.pictures of a current event.
//
// # Failure
//
// A picture that is damaged, or larger than [senses.MaxPixels], is dropped and counted; a stream without a
// picture for stall, or with no picture in 8 MiB, is a failed source. camera:look is answered with
// the reason while there is no picture: switched off and by whom, or why the source cannot be read.
package camera
