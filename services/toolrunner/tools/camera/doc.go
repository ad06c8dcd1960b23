// Package camera is the tool camera:look, which takes a picture with one of the agent's cameras: a
// camera listener, or the camera that a person shares with the session on the page.
//
// # Subjects
//
// Produced: service.camera.look, which every process with cameras receives; the one that has the
// camera answers. Consumed: the reports of listeners (package senses), for the names of cameras.
//
// # Which camera
//
// Without an argument it is the one that a person shares with the session, and else the only camera
// listener of the agent. Nobody answers for a page without a camera, so the tool waits for one for a
// short time, while it also asks the only listener. A camera that is shared, and that a camera listener
// watches (page: true), has that listener's masks, and is not asked while it is switched off.
//
// # Guarantee
//
// A picture is one of now: the camera takes it after it was asked. It is an artifact of the call, and
// a file of the result. Nothing is taken while the camera is switched off; the error says by whom.
package camera
